"""The log of a run: its events are numbered without gaps, and each is chained to the
one before.

The caller that appends holds the run's row (the worker by its fenced UPDATE, all others
by SELECT FOR UPDATE) and ends with one UPDATE of the run's event_seq and event_hash.
This module computes and inserts events; it never touches the run's row.
"""

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from typing import Any
from uuid import UUID

from checkpoints.core import codec, traces
from checkpoints.db.rows import new_row
from checkpoints.db.statements import insert_rows
from checkpoints.models import RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

NOT_SAVED = "not_saved"
"""The code of the warning that a superstep was not saved. A run whose log has none is
durable.
"""


@frozen
class NewEvent:
    """An event before it has its number. `actor` is a user's name, empty for the
    system.
    """

    type: str
    payload: dict[str, Any] = field(default_factory=dict)
    node: str = ""
    task: str = ""
    actor: str = ""


@frozen
class LogEnd:
    """The end of a log: number and hash of its last event."""

    seq: int
    hash: str


def chain(
    run_id: UUID,
    end: LogEnd,
    drafts: Sequence[NewEvent],
    *,
    at: datetime,
    protection: Protection,
) -> tuple[list[RunEvent], LogEnd]:
    """Return the drafts as rows that follow `end`, sealed, and the new end. Nothing is
    written.
    """
    rows = []
    for draft in drafts:
        payload = canonical.dumps(draft.payload)
        row = new_row(
            RunEvent,
            run_id=run_id,
            seq=end.seq + 1,
            type=draft.type,
            at=at,
            node=draft.node,
            task=draft.task,
            actor=draft.actor,
            payload=codec.pack(payload),
        )
        # Over the plain payload, so that a rotation of keys changes no hash.
        row.hash = line_hash(end.hash, row, payload, protection)
        rows.append(row)
        end = LogEnd(row.seq, row.hash)
    sealed_rows.seal_and_encrypt(rows, protection)
    return rows, end


def insert_events(rows: list[RunEvent]) -> None:
    """Insert numbered events, in the caller's transaction. One statement."""
    insert_rows(RunEvent, rows)


def trace_of(run_id: UUID) -> str:
    """Return the `traceparent` with which a run was started, as the first line of its
    log keeps it; empty if it has none. One query.

    Raises `TamperedRow` and `WrongKey`.
    """
    first = RunEvent.objects.filter(run=run_id, seq=1).first()
    if first is None:
        return ""
    facts = read_value(first, "payload") or {}
    return traces.parse_traceparent(facts.get("trace"))


def line_hash(
    previous: str, row: RunEvent, payload: bytes, protection: Protection
) -> str:
    """Return the hash over that of the event before and all fields of this one, framed.
    `payload` is canonical, unpacked.
    """
    return protection.framed_hash(
        previous,
        row.run_id,
        row.seq,
        row.type,
        row.at.isoformat(),
        row.node,
        row.task,
        row.actor,
        payload,
    )
