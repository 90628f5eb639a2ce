"""What developers and the demo use: a throw-away PostgreSQL, reference data. Nothing in production needs it."""
