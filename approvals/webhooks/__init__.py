"""Webhooks: the addresses to which notices are sent, as people manage them."""
