"""Pages about what is kept and what goes."""
