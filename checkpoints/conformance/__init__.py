"""The suite that every payload backend and every store must pass: ours, and those that
you write.

Call `check_payloads(make)` or `check_store(make)` from a test. No test framework is
needed.
"""

from checkpoints.conformance.payloads import PAYLOAD_RULES, check_payloads
from checkpoints.conformance.rule import Broken
from checkpoints.conformance.stores import STORE_RULES, Store, check_store

__all__ = [
    "PAYLOAD_RULES",
    "STORE_RULES",
    "Broken",
    "Store",
    "check_payloads",
    "check_store",
]
