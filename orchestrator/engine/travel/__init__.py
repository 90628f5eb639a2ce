"""Patches of a state: what they change, and what may run afterwards. Pure."""
