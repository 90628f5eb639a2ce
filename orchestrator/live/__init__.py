"""Live views: a websocket follows a run's log by number. The log is the truth; a nudge
only starts a look at it.
"""
