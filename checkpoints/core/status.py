"""The statuses of a run, each of which says what a person can do next. Pure; imported by everybody, imports nobody."""

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
"""A run in one of these is over."""

STOPPED = frozenset({Status.FAILED, Status.UNKNOWN, Status.INCOMPATIBLE, Status.TAMPERED})
"""A run in one of these goes on only after a person has acted."""

CLOSED_TO_DECISIONS = ENDS | {Status.TAMPERED, Status.INCOMPATIBLE}
"""In these nobody can decide an open request; in all others a decision is taken and kept."""
