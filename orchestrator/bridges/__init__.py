"""Bridges to other engines, each behind an extra of the distribution: nothing here is
imported unless a program asks for it.
"""
