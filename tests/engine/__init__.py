"""Tests of the ground: graphs, channels, tokens, reducing and playing. No database is
touched.
"""
