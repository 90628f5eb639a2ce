"""The posts of a review other than signatures: drafts, comments, and passkey
challenges.
"""
