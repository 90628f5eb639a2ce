"""Results of what people decided: the effects behind the gates, and what is asked
again.
"""
