"""Passkeys on the page of a person's account."""
