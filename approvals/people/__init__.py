"""The acts of people on a review beside signing it: taking it, handing it on, letting
another person decide.
"""
