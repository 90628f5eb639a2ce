"""The verbs that change a run: start it, commit a superstep, stop it, append to its log. `journal` has the journal.

The runner and the verbs of floor 3 call them. Each is one transaction, or joins the one that is open. Nothing here
knows about people's decisions: the caller passes what else the commit must write as `inside`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints import event_log, uploads
from checkpoints.conf import conf
from checkpoints.core.ids import uuid7
from checkpoints.core.status import ENDS, Status
from checkpoints.db import fenced_transaction
from checkpoints.db.clock import db_in, db_now
from checkpoints.db.fenced_transaction import Rows
from checkpoints.db.statements import Update
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger import checkpoint_rows, notes
from checkpoints.ledger.checkpoint_rows import Head, NewCheckpoint, Payload, RunHeader
from checkpoints.ledger.run_error import error_columns
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import Source
from checkpoints.models.run import TIES
from checkpoints.queue import notify
from checkpoints.queue.leases import Lease
from checkpoints.sealing import data_keys, run_row, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import InvalidValue, StaleLease
from orchestrator.engine.frozen import frozen

__all__ = ["ConcurrentUpdate", "Head", "NewCheckpoint", "Payload", "RunUpdate"]

_REFRESHED = (
    "key", "graph", "version", "fingerprint", "encrypted", "hash_key", "payloads", "input_hash", "started_by",
    "on_behalf_of", "line", "head", "head_hash", "event_seq", "event_hash", "wakes", "decisions", "seal", "seal_key",
    "cancel_at",
)  # fmt: skip
_NOT_YET_CANCELLED = frozenset({Status.PAUSED, Status.WAITING, Status.FAILED, Status.INCOMPATIBLE})
_SHARED_BY_EVENTS = (("run_id", "id"), ("seal_key", "seal_key"))
_SHARED_BY_CHECKPOINTS = (
    *_SHARED_BY_EVENTS, ("id", "head"), ("seq", "head_seq"), ("content_hash", "head_hash"), ("superstep", "superstep"),
    ("line", "line"), ("graph", "graph"), ("version", "version"), ("fingerprint", "fingerprint"),
    ("event_seq", "event_seq"), ("event_hash", "event_hash"),
)  # fmt: skip
"""What a line, and a checkpoint that becomes the head, have in common with the run's row after their commit."""


class ConcurrentUpdate(Exception):
    """Somebody else wrote to the log, or woke the run: refresh the lease and build the commit anew."""


@frozen
class RunUpdate:
    """What becomes of the run with a commit. `due_in` (seconds) goes with waiting, `error` with what stopped. `pins`:
    the run goes on with the version of its graph that the lease names.
    """

    status: str = Status.RUNNING
    at_node: str = ""
    tape: str = ""
    due_in: float | None = None
    error: dict[str, Any] | None = None
    pins: bool = False


def create_run(
    run: Run,
    *,
    payload: Payload,
    input_json: dict[str, Any],
    actor: str,
    metadata: Mapping[str, Any] | None = None,
    indexed: Collection[str] = (),
) -> Run:
    """Insert a queued run: its row, its checkpoint 0, the first event of its log. One transaction.

    `run` is unsaved, with what the caller knows of it; `indexed` names the metadata that stays readable. Raises
    `IntegrityError` where the key is taken, `InvalidValue` where the input names a file that is not there any more.
    """
    with transaction.atomic():
        at = timezone.now()
        run.created_at = at
        run.input, run.pending = pack_json(input_json), payload.pending
        data_keys.make_data_key(run)
        header, new = RunHeader.of(run), uuid7()
        checkpoint = NewCheckpoint(Source.INPUT, payload, 0)
        change = checkpoint_rows.full_delta(checkpoint, header.protection)
        facts = {"change": change.hash, **metadata_facts(metadata or {}, header.protection)}
        events, end = first_events(run, header, new, actor=actor, at=at, **facts)
        row, head = checkpoint_rows.first_row(header, new, checkpoint, change, end=end, at=at)
        insert_run(run, header, new, head.hash, end)
        if missing := uploads.note_references(run.id, input_json):
            raise InvalidValue(f"there is no uploaded file {missing[0]}", file=missing[0])
        row.save(force_insert=True)
        of_run = notes.OfRun(run.id, run.graph, header.protection, indexed)
        notes.insert_metadata(of_run, notes.OF_RUN, metadata or {}, at)
        event_log.insert_events(events)
        notify.notify_workers()
    return run


def metadata_facts(metadata: Mapping[str, Any], protection: Protection) -> dict[str, Any]:
    """What the first line of a run's log says of its metadata."""
    return {"metadata": notes.metadata_hash(metadata, protection)} if metadata else {}


def first_events(
    run: Run, header: RunHeader, head: UUID, *, actor: str, at: datetime, also: Sequence[NewEvent] = (), **more: Any
) -> tuple[list[RunEvent], LogEnd]:
    """The line with which a run's log begins, and those behind it in the same commit. Nothing is written."""
    shown = {"label": run.label, "facts": run.facts}
    ties = {name: str(value) for name in TIES if (value := getattr(run, name))}
    facts: dict[str, Any] = {"checkpoint": str(head), "graph": run.graph, "version": run.version}
    facts |= {"input_hash": run.input_hash, **shown, "ties": ties, **more}
    started = [NewEvent("run_started", facts, actor=actor)]
    return event_log.chain(run.id, LogEnd(0, ""), [*started, *also], at=at, protection=header.protection)


def insert_run(run: Run, header: RunHeader, head: UUID, head_hash: str, end: LogEnd) -> None:
    """Seal and insert the row of a run whose first checkpoint is `head`."""
    run.head, run.head_hash, run.event_seq, run.event_hash = head, head_hash, end.seq, end.hash
    end_of_log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    sealed = run_row.seal_columns(run, head=head, head_hash=head_hash, decisions=0, **end_of_log)
    run.seal, run.seal_key = sealed.values()
    sealed_rows.encrypt(run, header.protection)
    run.save(force_insert=True)


def commit_superstep(
    lease: Lease,
    head: Head,
    checkpoint: NewCheckpoint,
    run_update: RunUpdate,
    *,
    events: Sequence[NewEvent],
    inside: Callable[[], None] | None = None,
) -> Head:
    """Move the head in one fenced transaction (semantics 4). Returns the new head and updates the lease.

    `inside` writes other rows in it. Raises, having written nothing, `StaleLease` where another epoch has the run,
    `ConcurrentUpdate` where the log has newer events, `SaveFailed` where the payload backend refuses.
    """
    it = prepare_commit(lease, head, checkpoint, run_update, events=events, inside=inside)
    it.send()()
    return it.head


@frozen
class PreparedCommit:
    """A commit that is ready to be sent, and the head that it makes. `send` sends it and updates the lease at once,
    while the commit may still be on its way. What `send` returns waits for the commit and raises as `commit_superstep`
    does; then the lease is as it was before.
    """

    head: Head
    send: Callable[[], Callable[[], None]]


def prepare_commit(
    lease: Lease,
    head: Head,
    checkpoint: NewCheckpoint,
    run_update: RunUpdate,
    *,
    events: Sequence[NewEvent],
    also: Update | None = None,
    inside: Callable[[], None] | None = None,
    decided: int = 0,
) -> PreparedCommit:
    """Prepare a `commit_superstep`; `also` is an update of other rows in the same transaction, `decided` says how many
    decisions `inside` writes.
    """
    at, new = datetime.now(UTC), uuid7()
    header = RunHeader.of(lease)
    delta = checkpoint_rows.delta_after(head, checkpoint, header.protection)
    saved = _saved_event(new, checkpoint, delta.hash, started_at=None if head.seq else lease.started_at)
    written = [*lease.unsaved, saved, *events]
    rows, end = event_log.chain(lease.id, lease.end, written, at=at, protection=lease.protection)
    row, after = checkpoint_rows.next_row(header, new, head, checkpoint, delta, end=end, at=at)
    values = _columns(lease, run_update, at) | {"head_seq": row.seq, "superstep": checkpoint.superstep}
    values["pending"] = "" if run_update.status in ENDS else checkpoint.payload.pending
    values |= {"decisions": lease.decisions + decided} if decided else {}
    fence = _fence(lease, end, head=new, head_hash=row.content_hash, **values)
    gone = None if head.kept else Checkpoint(id=head.id)
    forget = None if head.kept else partial(checkpoint_rows.delete_replaced_payload, header, head.id)
    behind = [Rows(Checkpoint, [row], _SHARED_BY_CHECKPOINTS), Rows(RunEvent, rows, _SHARED_BY_EVENTS)]
    send = fenced_transaction.prepare(fence, behind, gone=gone, also=also, inside=inside)

    def sent() -> Callable[[], None]:
        met, was = send(), _changed_by_commit(lease)
        _update_lease(lease, fence, end, tape=run_update.tape, superstep=checkpoint.superstep)
        lease.head, lease.head_seq, lease.head_hash = new, row.seq, row.content_hash
        lease.decisions += decided
        return partial(_await, lease, was, met, forget=forget)

    return PreparedCommit(after, sent)


def first_event_seq(lease: Lease) -> int:
    """The number that the first of the events gets with which a superstep is committed now."""
    return lease.end.seq + len(lease.unsaved) + 2


def _saved_event(new: UUID, checkpoint: NewCheckpoint, delta_hash: str, *, started_at: datetime | None) -> NewEvent:
    """The event of a checkpoint. It refers to what changed by its hash, for the bytes are stored once. The first that a
    worker saves says since when the run is under way.
    """
    facts = {
        "checkpoint": str(new),
        "superstep": checkpoint.superstep,
        "source": str(checkpoint.source),
        "change": delta_hash,
        "nodes": [{"node": n["node"], "tasks": n["tasks"], "outcome": n["outcome"]} for n in checkpoint.nodes],
        "kept": checkpoint.kept,
    }
    if checkpoint.reads:
        facts["reads"] = dict(checkpoint.reads)
    if started_at is not None:
        facts["started_at"] = started_at.isoformat()
    return NewEvent("checkpoint_saved", facts)


def _await(lease: Lease, was: Any, met: fenced_transaction.Outcome, *, forget: Callable[[], None] | None) -> None:
    try:
        _require(lease, met())
    except BaseException:
        for name, value in zip(_CHANGED_BY_COMMIT, was, strict=True):
            setattr(lease, name, value)
        raise
    if forget:
        forget()


def stop_run(
    lease: Lease, run_update: RunUpdate, *, events: Sequence[NewEvent], inside: Callable[[], None] | None = None
) -> None:
    """Change a leased run's status without a checkpoint (poison, rest). Raises as `commit_superstep` does."""
    at = timezone.now()
    rows, end = event_log.chain(lease.id, lease.end, [*lease.unsaved, *events], at=at, protection=lease.protection)
    fence = _fence(lease, end, **_columns(lease, run_update, at))
    _require(lease, fenced_transaction.prepare(fence, [Rows(RunEvent, rows, _SHARED_BY_EVENTS)], inside=inside)()())
    _update_lease(lease, fence, end, tape=run_update.tape, superstep=lease.superstep)


def stop_as_tampered(lease: Lease, error: dict[str, Any]) -> None:
    """Stop a leased run as tampered. No event is written and nothing sealed: that would hide what was found."""
    values = _columns(lease, RunUpdate(Status.TAMPERED, tape=lease.tape, error=error), timezone.now())
    Run.objects.filter(id=lease.id, epoch=lease.epoch, status=Status.RUNNING).update(**values)
    notify.notify_workers()


def append_events(lease: Lease, events: Sequence[NewEvent], *, inside: Callable[[], None] | None = None) -> None:
    """Append events to a leased run's log, extend the lease, do `inside` with it. Raises as `commit_superstep` does."""
    written = [*lease.unsaved, *events]
    rows, end = event_log.chain(lease.id, lease.end, written, at=timezone.now(), protection=lease.protection)
    fence = _fence(lease, end, lease_until=db_in(conf().lease_seconds))
    _require(lease, fenced_transaction.prepare(fence, [Rows(RunEvent, rows, _SHARED_BY_EVENTS)], inside=inside)()())
    _update_lease(lease, fence, end, tape=lease.tape, superstep=lease.superstep)


def refresh_lease(lease: Lease) -> None:
    """Read where the log stands now into the lease, after a `ConcurrentUpdate`. Raises `StaleLease` where the lease is
    lost, and `TamperedRow` or `WrongKey` where the run's row is not as it was sealed.
    """
    row = Run.objects.filter(id=lease.id, epoch=lease.epoch, status=Status.RUNNING)
    now = row.only(*_REFRESHED).first()
    if now is None:
        raise StaleLease("another worker has this run", run=str(lease.id), epoch=lease.epoch)
    run_row.verify_run_row(now)
    lease.end, lease.wakes, lease.decisions = LogEnd(now.event_seq, now.event_hash), now.wakes, now.decisions
    lease.cancelling = bool(now.cancel_at)


def _fence(lease: Lease, end: LogEnd, **values: Any) -> Update:
    """The conditional UPDATE that opens each of the holder's transactions, with the run's new seal."""
    seen = {"event_seq": lease.end.seq, "wakes": lease.wakes}
    known = {"id": lease.id, "epoch": lease.epoch, "status": Status.RUNNING, **seen}
    head, head_hash = values.get("head", lease.head), values.get("head_hash", lease.head_hash)
    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    decisions = values.get("decisions", lease.decisions)
    sealed = run_row.seal_columns(lease, head=head, head_hash=head_hash, decisions=decisions, **log)
    if lease.unsaved:
        values["durable"] = False
    return Update(Run, known, {**log, **sealed, **values})


def _require(lease: Lease, met: bool) -> None:
    """Raise where the fence did not meet the run as its holder knows it."""
    if not met:
        if Run.objects.filter(id=lease.id, epoch=lease.epoch, status=Status.RUNNING).exists():
            raise ConcurrentUpdate
        raise StaleLease("another worker has this run", run=str(lease.id), epoch=lease.epoch)


_CHANGED_BY_COMMIT = (
    "end", "tape", "superstep", "unsaved", "seal", "seal_key", "head", "head_seq", "head_hash", "decisions"
)  # fmt: skip
_changed_by_commit = attrgetter(*_CHANGED_BY_COMMIT)
"""What a commit changes of a hold."""


def _update_lease(lease: Lease, fence: Update, end: LogEnd, *, tape: str, superstep: int) -> None:
    lease.end, lease.tape, lease.superstep, lease.unsaved = end, tape, superstep, []
    lease.seal, lease.seal_key = fence.values["seal"], fence.values["seal_key"]


def _columns(lease: Lease, run_update: RunUpdate, at: datetime) -> dict[str, Any]:
    """The columns of the run's row that follow from what becomes of it."""
    values: dict[str, Any] = {"at_node": run_update.at_node[:400], "tape": run_update.tape, "claims_since_progress": 0}
    if run_update.pins:
        values |= {"version": lease.version, "fingerprint": lease.fingerprint}
    if run_update.status == Status.RUNNING:
        return values
    values |= {"status": run_update.status, "lease_until": None, "leased_by": None, "progress": b"", "due_at": None}
    if run_update.due_in is not None:
        values["due_at"] = db_in(run_update.due_in)
    if lease.cancelling and run_update.status in _NOT_YET_CANCELLED:
        # Should this process end here, whoever claims the run next cancels it. It has not stopped, so it says no error.
        return values | {"status": Status.QUEUED, "due_at": db_now()}
    if run_update.status in ENDS:
        values["ended_at"] = at
    if run_update.error is not None:
        values |= error_columns(lease.id, run_update.error, lease.protection)
    return values
