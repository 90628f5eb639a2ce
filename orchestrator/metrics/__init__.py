"""The metrics of an installation, for a scraper: what the database and this process
hold when it asks.
"""
