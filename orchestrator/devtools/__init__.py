"""Tools for developers and the demo: a throw-away PostgreSQL and reference data.
Nothing in production needs them.
"""
