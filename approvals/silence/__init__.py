"""Silence: what happens to a request over time while people have not decided."""
