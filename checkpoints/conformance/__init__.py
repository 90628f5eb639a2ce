"""The suite that every payload backend and every store must pass: ours, and those that you write.

Call `check_payloads(make)` or `check_store(make)` from a test. No test framework is needed.
"""

from checkpoints.conformance.payloads import PAYLOAD_RULES, check_payloads
from checkpoints.conformance.rule import Broken

__all__ = ["PAYLOAD_RULES", "Broken", "check_payloads"]
