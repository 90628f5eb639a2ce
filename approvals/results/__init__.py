"""Results of decisions: the effects that follow the gates, and the questions that are
asked again.
"""
