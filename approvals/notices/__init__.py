"""Notices of what waits and what came of it, on their way to people and services."""
