"""The run of two steps whose hashes stand in docs/integrity.md: fixed ids and times,
made by the code that runs use.
"""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from checkpoints import event_log
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger import checkpoint_rows, reader
from checkpoints.ledger.checkpoint_rows import NewCheckpoint, Payload, RunHeader
from checkpoints.models import Checkpoint
from checkpoints.models.checkpoint import Source
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.values import canonical

RUN = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
PLACE = RunHeader(RUN, "letters", "1", "f" * 64, 1, Protection())


def _payload(notes: list[str], frontier: dict[str, Any]) -> Payload:
    return Payload({"scratch": {"notes": notes}, "artifacts": {}}, {}, frontier)


def rows() -> list[Checkpoint]:
    """Checkpoints 0, 1 and 2."""
    first = NewCheckpoint(Source.INPUT, _payload([], {"tokens": ["START"]}), 0)
    row, head = checkpoint_rows.first_row(
        PLACE,
        UUID(int=10),
        first,
        checkpoint_rows.full_delta(first, Protection()),
        end=LogEnd(1, "a" * 64),
        at=AT,
    )
    made = [row]
    for n, note in ((1, "Grüße"), (2, "second")):
        notes = [*head.payload.state["scratch"]["notes"], note]
        step = NewCheckpoint(
            Source.SUPERSTEP,
            _payload(notes, {"tokens": [f"step {n}"]}),
            n,
            ops={"notes": {"op": "append", "items": [note]}},
            snapshot=10,
        )
        change = checkpoint_rows.delta_after(head, step, Protection())
        end = LogEnd(n + 1, "bc"[n - 1] * 64)
        row, head = checkpoint_rows.next_row(
            PLACE, UUID(int=10 + n), head, step, change, end=end, at=AT
        )
        made.append(row)
    return made


def checkpoints() -> list[dict[str, Any]]:
    """The rows as the docs show them: header, change as text, hashes."""
    parent = ""
    shown = []
    for row in rows():
        header = [
            parent,
            str(row.run_id),
            row.line,
            row.seq,
            row.superstep,
            str(row.source),
            row.fingerprint,
            row.format,
            int(row.committed),
            row.event_seq,
            row.event_hash,
        ]
        change = reader.bytes_of(row, "change").decode()
        shown.append(
            {
                "header": header,
                "change": change,
                "change_hash": row.change_hash,
                "content_hash": row.content_hash,
            }
        )
        parent = row.content_hash
    return shown


def events() -> list[dict[str, Any]]:
    """Two lines of a log, as the docs show them."""
    drafts = [
        NewEvent("run_started", {"graph": "letters"}, actor="olive"),
        NewEvent("run_completed"),
    ]
    made, _ = event_log.chain(
        RUN, LogEnd(0, ""), drafts, at=AT, protection=Protection()
    )
    before = ""
    shown = []
    for row in made:
        fields = [
            before,
            str(RUN),
            row.seq,
            row.type,
            row.at.isoformat(),
            row.node,
            row.task,
            row.actor,
        ]
        payload = canonical.dumps(drafts[row.seq - 1].payload).decode()
        shown.append({"fields": fields, "payload": payload, "hash": row.hash})
        before = row.hash
    return shown


def as_text() -> str:
    """Both as the docs have them."""
    return "\n".join(
        json.dumps(vector, ensure_ascii=False) for vector in [*checkpoints(), *events()]
    )
