"""The acts of people on a review other than signing it: taking it, handing it on,
letting another person decide.
"""
