"""Pages about notices: webhooks, and what a person chooses about mail."""
