"""Gates, and the decisions of people on them. Pure."""
