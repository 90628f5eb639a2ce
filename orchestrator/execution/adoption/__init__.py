"""Going on with another version of the graph: `pin` commits what `state_change` makes
of the state.
"""
