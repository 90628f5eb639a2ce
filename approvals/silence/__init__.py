"""Silence: what time does in a request while people have not decided."""
