"""Doors: addresses at which other services deliver signed news to runs that wait for it."""
