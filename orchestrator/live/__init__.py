"""Live views: a websocket follows a run's log by number. The log is the truth; everything here only says when to look."""
