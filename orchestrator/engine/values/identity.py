"""Identities that must be the same wherever they are computed: tasks, idempotency keys,
ids of writes.
"""

from typing import NamedTuple
from uuid import UUID

from orchestrator.engine.values.canonical import framed, framed_hash


class Task(NamedTuple):
    """One execution of a node. Visits count from 1, indices from 0 (a fan-out's tasks
    share their visit).
    """

    node: str
    visit: int
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a task

    def __str__(self) -> str:
        return f"{self.node}:{self.visit}:{self.index}"

    @classmethod
    def parse(cls, text: str) -> "Task":
        """Return the task that `node:visit:index` names. Raises `ValueError`."""
        node, _, numbers = text.partition(":")
        visit, _, index = numbers.partition(":")
        if not node or not (visit.isdecimal() and index.isdecimal()) or int(visit) < 1:
            raise ValueError(
                f"{text!r} names no task; a task is written node:visit:index"
            )
        return cls(node, int(visit), int(index))


def idempotency_key(
    run_id: UUID | str,
    line: int,
    task: Task,
) -> str:
    """Return the key that every attempt of one task carries: SHA-256 in hex. Another
    line or run has another key.
    """
    return framed_hash("idempotency-key", run_id, line, *task)


def write_id(
    run_id: UUID | str,
    line: int,
    task: Task,
    position: int,
) -> UUID:
    """Return the id of the write at `position` (from 0) of a task; the same however
    often it is computed.
    """
    name = bytes.fromhex(
        framed_hash(framed("write", str(run_id), line, *task), position)
    )
    # Version 5 is that of ids made from a hash of a name.
    return UUID(bytes=name[:16], version=5)
