"""The log-in of a company: people sign in at an OpenID Connect provider, whose groups
are their groups here.

A Django app that is installed only where a provider is configured; django-allauth
speaks the protocol, and none of its pages is served.
"""
