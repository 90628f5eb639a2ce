"""Beginning a line at a checkpoint: the first of a fork or a replay, or the next line
of the same run.

The verbs of time travel call it, and have computed everything beforehand. Each function
joins the caller's transaction. Only a link to the point of departure is
written; its own rows stay as they are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from checkpoints import event_log, uploads
from checkpoints.core import tape
from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.db.clock import db_now
from checkpoints.db.rows import new_row
from checkpoints.db.statements import insert_rows, update_rows
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger import checkpoint_rows, locked_run, notes
from checkpoints.ledger.checkpoint_rows import Delta, NewCheckpoint, RunHeader
from checkpoints.ledger.commit import first_events, insert_run, metadata_facts
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.queue import notify
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine.frozen import frozen

Inside = Callable[[], None]
"""Writes other rows in the same transaction."""


@frozen
class NewLine:
    """A line before it is written: where it departs, its first checkpoint, the nodes
    before which it stops, the channels that its patch changed, who began it and why.
    `follows`: the row of its run after which the first checkpoint comes; None if it
    comes after the departure.
    """

    travel: str
    departure: Checkpoint
    checkpoint: NewCheckpoint
    stops: Sequence[str] = ()
    patched: Sequence[str] = ()
    patch: Any = None
    reason: str = ""
    by: Any = None
    follows: Checkpoint | None = None

    def facts(self) -> dict[str, Any]:
        """Return the facts that the log holds about it."""
        facts: dict[str, Any] = {
            "travel": str(self.travel),
            "departure": str(self.departure.id),
            "departure_seq": self.departure.seq,
            "departure_run": str(self.departure.run_id),
            "stops": list(self.stops),
            "patched": list(self.patched),
        }
        if self.reason:
            facts["reason"] = self.reason
        return facts


def create_departed_run(
    run: Run,
    new: NewLine,
    *,
    status: str,
    input_json: Any,
    events: Sequence[NewEvent],
    inside: Inside,
    metadata: Mapping[str, Any] | None = None,
    indexed: Collection[str] = (),
) -> bool:
    """Insert a run whose first checkpoint departs from one of another run: its row,
    line, checkpoint, log. In the caller's transaction. Returns False where its key is
    taken, and nothing was inserted.

    `run` is unsaved, with what the caller knows of it, its metadata too; its data key
    was made. Raises `IntegrityError` where its id is taken, `SaveFailed`.
    """
    metadata = metadata or {}
    at = timezone.now()
    run.created_at = at
    run.input = pack_json(input_json)
    run.status = str(status)
    run.superstep = new.checkpoint.superstep
    run.pending = new.checkpoint.payload.pending
    header = RunHeader.of(run)

    # The log refers to the checkpoint, and the checkpoint's hash covers the log.
    checkpoint_id = uuid7()
    change = checkpoint_rows.full_delta(new.checkpoint, header.protection)
    facts = {
        "change": change.hash,
        "origin": str(new.departure.id),
        **new.facts(),
        **metadata_facts(metadata, header.protection),
    }
    actor = new.by.get_username() if new.by else ""
    event_rows, end = first_events(
        run, header, checkpoint_id, actor=actor, at=at, also=events, **facts
    )
    seq = new.follows.seq + 1 if new.follows else 0
    row = _first_row(header, checkpoint_id, new, change, seq=seq, end=end, at=at)
    run.head_seq = row.seq

    # The other rows refer to the run's row, and a key that is taken shows there.
    if not insert_run(run, header, checkpoint_id, row.content_hash, end):
        return False
    # Missing files are no obstacle: an imported origin may name files that were
    # never here.
    uploads.note_references(run.id, input_json)
    insert_rows(Checkpoint, [row])
    _insert_line(run, new, number=1, at=at)
    of_run = notes.OfRun(run.id, run.graph, header.protection, indexed)
    notes.insert_metadata(of_run, notes.OF_RUN, metadata, at)
    event_log.insert_events(event_rows)
    inside()
    if status == Status.QUEUED:
        notify.notify_workers()
    return True


def begin_line(
    run: Run,
    new: NewLine,
    *,
    status: str,
    before: Sequence[NewEvent],
    events: Sequence[NewEvent],
    inside: Inside,
    checkpoint_id: UUID | None = None,
) -> int:
    """Begin the next line of a locked run that no worker has leased. Its log gets
    `before`, the event that the line begins, and `events`, which may name its first
    checkpoint by `checkpoint_id`. Returns the number of the event that the line begins.

    The epoch rises, so a worker that was frozen past its lease finds it lost. Raises
    `SaveFailed`, and `TamperedRow` or `WrongKey` if its head does not verify.
    """
    at = timezone.now()
    # The head becomes the end of its line, so it must no longer be replaced.
    preceding_events = [*before, *locked_run.keep_head(run)]
    # Before the header, which carries the line to every row that is made below.
    run.line += 1
    header = RunHeader.of(run)

    # The log refers to the checkpoint, and the checkpoint's hash covers the log.
    checkpoint_id = checkpoint_id or uuid7()
    change = checkpoint_rows.full_delta(new.checkpoint, header.protection)
    facts = {
        "line": run.line,
        "checkpoint": str(checkpoint_id),
        "change": change.hash,
        **new.facts(),
        "kept": True,
        "superstep": new.checkpoint.superstep,
        "source": str(new.checkpoint.source),
    }
    actor = new.by.get_username() if new.by else ""
    line_begun = NewEvent("line_begun", facts, actor=actor)
    event_rows, end = event_log.chain(
        run.id,
        LogEnd(run.event_seq, run.event_hash),
        [*preceding_events, line_begun, *events],
        at=at,
        protection=header.protection,
    )
    row = _first_row(
        header, checkpoint_id, new, change, seq=run.head_seq + 1, end=end, at=at
    )

    insert_rows(Checkpoint, [row])
    event_log.insert_events(event_rows)
    _insert_line(run, new, number=run.line, at=at)
    _take_head(run, row, end, status=status, pending=new.checkpoint.payload.pending)
    inside()
    notify.notify_workers()
    return event_rows[len(preceding_events)].seq


def _first_row(
    header: RunHeader,
    checkpoint_id: Any,
    new: NewLine,
    change: Delta,
    *,
    seq: int,
    end: LogEnd,
    at: datetime,
) -> Checkpoint:
    row, _ = checkpoint_rows.standalone_row(
        header,
        checkpoint_id,
        new.checkpoint,
        change,
        seq=seq,
        parent=new.follows or new.departure,
        end=end,
        at=at,
    )
    return row


def _insert_line(run: Run, new: NewLine, *, number: int, at: datetime) -> None:
    departure = new.departure
    row = new_row(
        RunLine,
        run_id=run.id,
        number=number,
        travel=new.travel,
        parent_line=departure.line,
        departure=departure.id,
        departure_run=departure.run_id,
        departure_seq=departure.seq,
        departure_hash=departure.content_hash,
        stops=sorted(new.stops),
        patched=sorted(new.patched),
        patch=b"" if new.patch is None else pack_json(new.patch),
        reason=pack_json(new.reason) if new.reason else b"",
        by_id=new.by.pk if new.by else None,
        at=at,
    )
    sealed_rows.seal_and_encrypt([row], sealed_rows.protection_of(run))
    insert_rows(RunLine, [row])


def _take_head(
    run: Run,
    row: Checkpoint,
    end: LogEnd,
    *,
    status: str,
    pending: str,
) -> None:
    """Put the run's row at the first checkpoint of its new line, as if nothing had
    followed the departure.
    """
    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    sealed = run_row.seal_columns(
        run, head=row.id, head_hash=row.content_hash, decisions=run.decisions, **log
    )
    new_head = {
        "line": run.line,
        "head": row.id,
        "head_seq": row.seq,
        "head_hash": row.content_hash,
    }
    no_lease = {
        "epoch": F("epoch") + 1,
        "lease_until": None,
        "leased_by": None,
        "claims_since_progress": 0,
    }
    nothing_behind = {
        "error": b"",
        "error_code": "",
        "progress": b"",
        "at_node": "",
        "ended_at": None,
        "cancel_at": None,
    }
    update_rows(
        Run,
        {"id": run.id},
        **log,
        **sealed,
        **new_head,
        **no_lease,
        **nothing_behind,
        superstep=row.superstep,
        pending=pending,
        tape=tape.extend(run.tape, tape.BACK),
        status=status,
        due_at=db_now() if status == Status.QUEUED else None,
        wakes=F("wakes") + 1,
    )


def allow_effects(
    run: Run,
    line: RunLine,
    nodes: Sequence[str],
    *,
    by: Any,
) -> NewEvent:
    """Let these nodes of a locked run's line start. Returns the event that says so."""
    protection = sealed_rows.protection_of(run)
    # Verified first, or the new seal would cover up stops that were taken away by hand.
    sealed_rows.verify_row(line, protection)
    remaining_stops = [node for node in line.stops if node not in nodes]
    changed_fields = sealed_rows.seal_again(line, protection, stops=remaining_stops)
    line.save(update_fields=changed_fields)
    actor = by.get_username() if by else ""
    facts = {"line": line.number, "nodes": sorted(nodes)}
    return NewEvent("effects_allowed", facts, actor=actor)
