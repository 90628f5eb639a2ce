"""The statuses of a run. Each determines what a person may do next. Pure; every module
may import it, and it imports none.
"""

from enum import StrEnum


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    INCOMPATIBLE = "incompatible"
    TAMPERED = "tampered"


ENDS = frozenset({Status.COMPLETED, Status.REJECTED, Status.CANCELLED})
"""A run with one of these is over."""

STOPPED = frozenset(
    {Status.FAILED, Status.UNKNOWN, Status.INCOMPATIBLE, Status.TAMPERED}
)
"""A run with one of these goes on only after a person has acted."""

CLOSED_TO_DECISIONS = ENDS | {Status.TAMPERED, Status.INCOMPATIBLE}
"""With these an open request cannot be decided; with all others a decision is accepted
and stored.
"""
