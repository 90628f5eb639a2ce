"""Results of decisions: the effects behind the gates, and the questions that are asked
again.
"""
