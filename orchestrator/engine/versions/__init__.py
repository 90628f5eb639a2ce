"""Differences between two versions of a graph, and their consequences. Pure."""
