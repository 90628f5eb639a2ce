"""A database that an older version wrote, and what is needed to go on with it: see
README.md.
"""
