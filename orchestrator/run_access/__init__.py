"""Access to the run that a verb acts on, shared by verbs and travel."""
