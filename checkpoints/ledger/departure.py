"""Beginning a line at a checkpoint: the first of a fork or a replay, or the next line of the same run.

Whoever goes back in time calls this, with everything computed. Each is one transaction, or joins the caller's. What is
written of the point of departure is a link; its own rows stay as they are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from checkpoints import event_log, uploads
from checkpoints.core import tape
from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.db.clock import db_now
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger import checkpoint_rows, locked_run, notes
from checkpoints.ledger.checkpoint_rows import Delta, NewCheckpoint, RunHeader
from checkpoints.ledger.commit import first_events, insert_run, metadata_facts
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.queue import notify
from checkpoints.sealing import data_keys, run_row, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine.frozen import frozen

Inside = Callable[[], None]
"""What else is written in the transaction."""


@frozen
class NewLine:
    """A line before it is written: where it departs, its first checkpoint, the nodes before which it stops, the
    channels that its patch changed, and who began it why. `behind`: a row of its run that is there already, which the
    first checkpoint follows; else it follows the departure.
    """

    travel: str
    departure: Checkpoint
    checkpoint: NewCheckpoint
    stops: Sequence[str] = ()
    patched: Sequence[str] = ()
    patch: Any = None
    reason: str = ""
    by: Any = None
    behind: Checkpoint | None = None

    def facts(self) -> dict[str, Any]:
        """What the log says of it."""
        facts: dict[str, Any] = {"travel": str(self.travel), "departure": str(self.departure.id)}
        facts |= {"departure_seq": self.departure.seq, "departure_run": str(self.departure.run_id)}
        facts |= {"stops": list(self.stops), "patched": list(self.patched)}
        return facts | ({"reason": self.reason} if self.reason else {})


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
) -> Run:
    """Insert a run whose first checkpoint departs from one of another run: its row, line, checkpoint, log.

    `run` is unsaved, with what the caller knows of it, its metadata too. Raises `IntegrityError` where its
    key is taken, `SaveFailed`.
    """
    with transaction.atomic():
        at = timezone.now()
        data_keys.make_data_key(run)
        run.created_at, run.input, run.status = at, pack_json(input_json), status
        run.superstep, run.pending = new.checkpoint.superstep, new.checkpoint.payload.pending
        header, first = RunHeader.of(run), uuid7()
        change = checkpoint_rows.full_delta(new.checkpoint, header.protection)
        actor = new.by.get_username() if new.by else ""
        more = {"change": change.hash, "origin": str(new.departure.id), **new.facts()}
        more |= metadata_facts(metadata or {}, header.protection)
        lines, end = first_events(run, header, first, actor=actor, at=at, also=events, **more)
        row = _first_row(header, first, new, change, seq=new.behind.seq + 1 if new.behind else 0, end=end, at=at)
        run.head_seq = row.seq
        insert_run(run, header, first, row.content_hash, end)
        uploads.note_references(run.id, input_json)
        row.save(force_insert=True)
        _insert_line(run, new, number=1, at=at)
        of_run = notes.OfRun(run.id, run.graph, header.protection, indexed)
        notes.insert_metadata(of_run, notes.OF_RUN, metadata or {}, at)
        event_log.insert_events(lines)
        inside()
        if status == Status.QUEUED:
            notify.notify_workers()
    return run


def begin_line(
    run: Run, new: NewLine, *, status: str, before: Sequence[NewEvent], events: Sequence[NewEvent], inside: Inside
) -> int:
    """Begin the next line of a locked run that nobody has in hand. Its log says `before`, that it begins, and `events`.
    Gives the number of the line of the log that says that it begins.

    The epoch rises, so a worker that was frozen past its lease finds it gone. Raises `SaveFailed`, and `TamperedRow` or
    `WrongKey` where its head does not verify.
    """
    at, kept = timezone.now(), [*before, *locked_run.keep_head(run)]
    actor = new.by.get_username() if new.by else ""
    run.line += 1
    header, first = RunHeader.of(run), uuid7()
    change = checkpoint_rows.full_delta(new.checkpoint, header.protection)
    facts = {"line": run.line, "checkpoint": str(first), "change": change.hash, **new.facts()}
    saved = {"kept": True, "superstep": new.checkpoint.superstep, "source": str(new.checkpoint.source)}
    begun = [NewEvent("line_begun", {**facts, **saved}, actor=actor)]
    lines, end = event_log.chain(
        run.id, LogEnd(run.event_seq, run.event_hash), [*kept, *begun, *events], at=at, protection=header.protection
    )
    row = _first_row(header, first, new, change, seq=run.head_seq + 1, end=end, at=at)
    row.save(force_insert=True)
    event_log.insert_events(lines)
    _insert_line(run, new, number=run.line, at=at)
    _take_head(run, row, end, status=status, pending=new.checkpoint.payload.pending)
    inside()
    notify.notify_workers()
    return lines[len(kept)].seq


def _first_row(
    header: RunHeader, first: Any, new: NewLine, change: Delta, *, seq: int, end: LogEnd, at: datetime
) -> Checkpoint:
    row, _ = checkpoint_rows.standalone_row(
        header, first, new.checkpoint, change, seq=seq, parent=new.behind or new.departure, end=end, at=at
    )
    return row


def _insert_line(run: Run, new: NewLine, *, number: int, at: datetime) -> None:
    protection, there = sealed_rows.protection_of(run), new.departure
    row = RunLine(
        run=run,
        number=number,
        travel=new.travel,
        parent_line=there.line,
        departure=there.id,
        departure_run=there.run_id,
        departure_seq=there.seq,
        departure_hash=there.content_hash,
        stops=sorted(new.stops),
        patched=sorted(new.patched),
        patch=b"" if new.patch is None else pack_json(new.patch),
        reason=pack_json(new.reason) if new.reason else b"",
        by=new.by,
        at=at,
    )
    sealed_rows.seal_and_encrypt([row], protection)
    row.save(force_insert=True)


def _take_head(run: Run, row: Checkpoint, end: LogEnd, *, status: str, pending: str) -> None:
    """The run's row stands at the first checkpoint of its new line, as if nothing had come behind it."""
    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    sealed = run_row.seal_columns(run, head=row.id, head_hash=row.content_hash, decisions=run.decisions, **log)
    stands = {"line": run.line, "head": row.id, "head_seq": row.seq, "head_hash": row.content_hash}
    free = {"epoch": F("epoch") + 1, "lease_until": None, "leased_by": None, "claims_since_progress": 0}
    nothing = {"error": b"", "error_code": "", "progress": b"", "at_node": "", "ended_at": None, "cancel_at": None}
    Run.objects.filter(id=run.id).update(
        **log,
        **sealed,
        **stands,
        **free,
        **nothing,
        superstep=row.superstep,
        pending=pending,
        tape=tape.extend(run.tape, tape.BACK),
        status=status,
        due_at=db_now() if status == Status.QUEUED else None,
        wakes=F("wakes") + 1,
    )


def allow_effects(run: Run, line: RunLine, nodes: Sequence[str], *, by: Any) -> NewEvent:
    """Let these nodes of a locked run's line start; gives the event that says so."""
    protection = sealed_rows.protection_of(run)
    sealed_rows.verify_row(line, protection)
    left = [node for node in line.stops if node not in nodes]
    line.save(update_fields=sealed_rows.seal_again(line, protection, stops=left))
    actor = by.get_username() if by else ""
    return NewEvent("effects_allowed", {"line": line.number, "nodes": sorted(nodes)}, actor=actor)
