"""The display of values, and of two values side by side. Pure."""
