"""Notices of what waits and how it was decided, on their way to people and services."""
