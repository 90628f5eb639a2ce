"""The verbs that change a run: start it, commit a superstep, stop it, append to its
log. `journal` has the journal.

The runner and the verbs of floor 3 call them. Each is one transaction, or joins the one
that is open. Nothing here knows about people's decisions: the caller passes what else
the commit must write as `inside`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.utils import timezone

from checkpoints import event_log, uploads
from checkpoints.conf import conf
from checkpoints.core import work_sums
from checkpoints.core.ids import uuid7
from checkpoints.core.status import ENDS, Status
from checkpoints.db import fenced_transaction, statements
from checkpoints.db.clock import db_in, db_now
from checkpoints.db.fenced_transaction import Rows
from checkpoints.db.rows import mark_stored
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
    "key",
    "graph",
    "version",
    "fingerprint",
    "encrypted",
    "hash_key",
    "imported",
    "payloads",
    "input_hash",
    "started_by",
    "on_behalf_of",
    "line",
    "head",
    "head_hash",
    "event_seq",
    "event_hash",
    "wakes",
    "decisions",
    "seal",
    "seal_key",
    "cancel_at",
)
_NOT_YET_CANCELLED = frozenset(
    {Status.PAUSED, Status.WAITING, Status.FAILED, Status.INCOMPATIBLE}
)
"""Statuses in which a run can be cancelled: a cancellation under way outranks them."""

_SHARED_BY_EVENTS = (("run_id", "id"), ("seal_key", "seal_key"))
_SHARED_BY_CHECKPOINTS = (
    *_SHARED_BY_EVENTS,
    ("id", "head"),
    ("seq", "head_seq"),
    ("content_hash", "head_hash"),
    ("superstep", "superstep"),
    ("line", "line"),
    ("graph", "graph"),
    ("version", "version"),
    ("fingerprint", "fingerprint"),
    ("event_seq", "event_seq"),
    ("event_hash", "event_hash"),
)
"""The attributes that an event, and a checkpoint that becomes the head, share with the
run's row as it is after their commit.
"""


class ConcurrentUpdate(Exception):
    """Another writer appended to the log, or woke the run: refresh the lease and build
    the commit again.
    """


@frozen
class RunUpdate:
    """The update of the run's row by a commit. `due_in` (seconds) is for a run that
    waits, `error` for one that stopped. `pins`: the run goes on with the version of its
    graph that the lease names.
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
    trace: str = "",
) -> Run:
    """Insert a queued run: its row, its checkpoint 0, the first event of its log. In the
    caller's transaction.

    `run` is unsaved, with the fields that the caller knows; `indexed` names the
    metadata that stays readable, `trace` is the `traceparent` of whoever starts it.
    Raises `IntegrityError` if the key is taken, `InvalidValue` if the input names a file
    that no longer exists.
    """
    metadata = metadata or {}
    at = timezone.now()
    run.created_at = at
    run.input = pack_json(input_json)
    run.pending = payload.pending
    # The header carries the run's protection, so its data key must exist first.
    data_keys.make_data_key(run)
    header = RunHeader.of(run)

    # The log refers to the checkpoint, and the checkpoint's hash covers the log.
    checkpoint_id = uuid7()
    checkpoint = NewCheckpoint(Source.INPUT, payload, 0)
    change = checkpoint_rows.full_delta(checkpoint, header.protection)
    facts = {"change": change.hash, **metadata_facts(metadata, header.protection)}
    if trace:
        facts["trace"] = trace
    events, end = first_events(run, header, checkpoint_id, actor=actor, at=at, **facts)
    row, head = checkpoint_rows.first_row(
        header, checkpoint_id, checkpoint, change, end=end, at=at
    )

    # The other rows refer to the run's row, and a key that is taken shows there.
    if not insert_run(run, header, checkpoint_id, head.hash, end):
        raise IntegrityError(f"key {run.key} belongs to another run")
    missing_files = uploads.note_references(run.id, input_json)
    if missing_files:
        raise InvalidValue(
            f"there is no uploaded file {missing_files[0]}", file=missing_files[0]
        )
    statements.insert_rows(Checkpoint, [row])
    of_run = notes.OfRun(run.id, run.graph, header.protection, indexed)
    notes.insert_metadata(of_run, notes.OF_RUN, metadata, at)
    event_log.insert_events(events)
    # Delivered with the commit, so no worker looks for the run before it is there.
    notify.notify_workers()
    return run


def metadata_facts(
    metadata: Mapping[str, Any],
    protection: Protection,
) -> dict[str, Any]:
    """Return the facts that the first event of a run's log holds about its metadata."""
    if not metadata:
        return {}
    return {"metadata": notes.metadata_hash(metadata, protection)}


def first_events(
    run: Run,
    header: RunHeader,
    head: UUID,
    *,
    actor: str,
    at: datetime,
    also: Sequence[NewEvent] = (),
    **further_facts: Any,
) -> tuple[list[RunEvent], LogEnd]:
    """Return the event with which a run's log begins, the events `also` that follow it
    in the same commit, and the end of the log after them. Writes nothing.
    """
    ties = {}
    for name in TIES:
        tied_to = getattr(run, name)
        if tied_to:
            ties[name] = str(tied_to)

    facts: dict[str, Any] = {
        "checkpoint": str(head),
        "graph": run.graph,
        "version": run.version,
        "input_hash": run.input_hash,
        "label": run.label,
        "facts": run.facts,
        "ties": ties,
        **further_facts,
    }
    started = NewEvent("run_started", facts, actor=actor)
    return event_log.chain(
        run.id, LogEnd(0, ""), [started, *also], at=at, protection=header.protection
    )


def insert_run(
    run: Run,
    header: RunHeader,
    head: UUID,
    head_hash: str,
    end: LogEnd,
) -> bool:
    """Seal and insert the row of a run whose first checkpoint is `head`. Returns False
    where its key is taken, and nothing was inserted.
    """
    run.head = head
    run.head_hash = head_hash
    run.event_seq = end.seq
    run.event_hash = end.hash
    sealed = run_row.seal_columns(
        run,
        head=head,
        head_hash=head_hash,
        decisions=0,
        event_seq=end.seq,
        event_hash=end.hash,
    )
    run.seal = sealed["seal"]
    run.seal_key = sealed["seal_key"]
    sealed_rows.encrypt(run, header.protection)
    is_inserted = statements.insert_row(run, unless="key")
    if is_inserted:
        mark_stored(run)
    return is_inserted


def commit_superstep(
    lease: Lease,
    head: Head,
    checkpoint: NewCheckpoint,
    run_update: RunUpdate,
    *,
    events: Sequence[NewEvent],
    inside: Callable[[], None] | None = None,
    decided: int = 0,
) -> Head:
    """Move the head in one fenced transaction (semantics 4). Returns the new head and
    updates the lease.

    `inside` writes other rows in it, `decided` of them decisions. Raises, having written
    nothing, `StaleLease` if another epoch has the run, `ConcurrentUpdate` if the log has
    newer events, `SaveFailed` if the payload backend refuses.
    """
    prepared = prepare_commit(
        lease,
        head,
        checkpoint,
        run_update,
        events=events,
        inside=inside,
        decided=decided,
    )
    wait_for_commit = prepared.send()
    wait_for_commit()
    return prepared.head


@frozen
class PreparedCommit:
    """A commit that is ready to be sent, and the head that it makes.

    `send` sends it and updates the lease at once, while the commit may still be on its
    way. The function that `send` returns waits for the commit and raises as
    `commit_superstep` does; then the lease is as it was before.
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
    """Prepare a `commit_superstep`; `also` is an update of other rows in the same
    transaction, `decided` is the number of decisions that `inside` writes.
    """
    at = datetime.now(UTC)
    checkpoint_id = uuid7()
    header = RunHeader.of(lease)
    delta = checkpoint_rows.delta_after(head, checkpoint, header.protection)

    # The events come first: the checkpoint's hash covers the end of the log.
    saved = saved_event(
        checkpoint_id,
        checkpoint,
        delta.hash,
        started_at=None if head.seq else lease.started_at,
    )
    event_rows, end = event_log.chain(
        lease.id,
        lease.end,
        [*lease.unsaved, saved, *events],
        at=at,
        protection=lease.protection,
    )
    row, new_head = checkpoint_rows.next_row(
        header, checkpoint_id, head, checkpoint, delta, end=end, at=at
    )

    values = _columns(lease, run_update, at)
    values["head_seq"] = row.seq
    values["superstep"] = checkpoint.superstep
    # A run that has ended no longer needs its graph.
    ends = run_update.status in ENDS
    values["pending"] = "" if ends else checkpoint.payload.pending
    if decided:
        values["decisions"] = lease.decisions + decided
    fence = _fence(lease, end, head=checkpoint_id, head_hash=row.content_hash, **values)

    # A head that is not kept is a recovery point: the new row takes its place.
    replaced = None
    delete_replaced = None
    if not head.kept:
        replaced = Checkpoint(id=head.id)
        delete_replaced = partial(
            checkpoint_rows.delete_replaced_payload, header, head.id
        )
    send_transaction = fenced_transaction.prepare(
        fence,
        [
            Rows(Checkpoint, [row], _SHARED_BY_CHECKPOINTS),
            Rows(RunEvent, event_rows, _SHARED_BY_EVENTS),
        ],
        delete=replaced,
        also=also,
        inside=inside,
    )

    def send() -> Callable[[], None]:
        outcome = send_transaction()
        if work_sums.installed is not None:
            work_sums.installed.add("checkpoints")
            work_sums.installed.add("checkpoint_bytes", row.stored_size)
        # The lease runs ahead of the commit, so that work can go on in the meantime.
        lease_before = _changed_by_commit(lease)
        _update_lease(
            lease, fence, end, tape=run_update.tape, superstep=checkpoint.superstep
        )
        lease.head = checkpoint_id
        lease.head_seq = row.seq
        lease.head_hash = row.content_hash
        lease.decisions += decided
        return partial(
            _await_commit, lease, lease_before, outcome, delete_replaced=delete_replaced
        )

    return PreparedCommit(new_head, send)


def first_event_seq(lease: Lease) -> int:
    """Return the number of the first of the `events` of a superstep committed now."""
    # The events not saved so far come before it, and the one of the checkpoint.
    return lease.end.seq + len(lease.unsaved) + 2


def first_appended_seq(lease: Lease) -> int:
    """Return the number of the first of the `events` that are appended now."""
    return lease.end.seq + len(lease.unsaved) + 1


def saved_event(
    checkpoint_id: UUID,
    checkpoint: NewCheckpoint,
    delta_hash: str,
    *,
    started_at: datetime | None = None,
) -> NewEvent:
    """Return the event of a saved checkpoint. It refers to the change by its hash,
    because the bytes are stored once. `started_at` is given with the first checkpoint
    that a worker saves, and records when the run got under way.
    """
    nodes = [
        {"node": node["node"], "tasks": node["tasks"], "outcome": node["outcome"]}
        for node in checkpoint.nodes
    ]
    facts = {
        "checkpoint": str(checkpoint_id),
        "superstep": checkpoint.superstep,
        "source": str(checkpoint.source),
        "change": delta_hash,
        "nodes": nodes,
        "kept": checkpoint.kept,
    }
    if checkpoint.reads:
        facts["reads"] = dict(checkpoint.reads)
    if started_at is not None:
        facts["started_at"] = started_at.isoformat()
    return NewEvent("checkpoint_saved", facts)


def _await_commit(
    lease: Lease,
    lease_before: Any,
    outcome: fenced_transaction.Outcome,
    *,
    delete_replaced: Callable[[], None] | None,
) -> None:
    """Wait for a commit that was sent. If it failed, undo what `send` changed of the
    lease, and raise.
    """
    try:
        _require_fence_met(lease, outcome())
    except BaseException:
        for name, value in zip(_CHANGED_BY_COMMIT, lease_before, strict=True):
            setattr(lease, name, value)
        raise
    # Only now: a commit that failed still needs the bytes of the recovery point.
    if delete_replaced:
        delete_replaced()


def stop_run(
    lease: Lease,
    run_update: RunUpdate,
    *,
    events: Sequence[NewEvent],
    inside: Callable[[], None] | None = None,
) -> None:
    """Change a leased run's status without a checkpoint (poison, rest). Raises as
    `commit_superstep` does.
    """
    at = timezone.now()
    rows, end = event_log.chain(
        lease.id,
        lease.end,
        [*lease.unsaved, *events],
        at=at,
        protection=lease.protection,
    )
    fence = _fence(lease, end, **_columns(lease, run_update, at))
    send = fenced_transaction.prepare(
        fence, [Rows(RunEvent, rows, _SHARED_BY_EVENTS)], inside=inside
    )
    outcome = send()
    _require_fence_met(lease, outcome())
    _update_lease(lease, fence, end, tape=run_update.tape, superstep=lease.superstep)


def stop_as_tampered(lease: Lease, error: dict[str, Any]) -> None:
    """Stop a leased run as tampered. No event is written and nothing sealed: that would
    hide what was found.
    """
    run_update = RunUpdate(Status.TAMPERED, tape=lease.tape, error=error)
    values = _columns(lease, run_update, timezone.now())
    # No fence: what was tampered with may be the very columns that it compares.
    leased = Run.objects.filter(id=lease.id, epoch=lease.epoch, status=Status.RUNNING)
    leased.update(**values)
    notify.notify_workers()


def append_events(
    lease: Lease,
    events: Sequence[NewEvent],
    *,
    inside: Callable[[], None] | None = None,
    decided: int = 0,
    at: datetime | None = None,
) -> None:
    """Append events to a leased run's log, extend the lease, do `inside` with it, which
    writes so many decisions (`decided`). `at` is the moment of the events, else now.
    Raises as `commit_superstep` does.
    """
    rows, end = event_log.chain(
        lease.id,
        lease.end,
        [*lease.unsaved, *events],
        at=at or timezone.now(),
        protection=lease.protection,
    )
    values: dict[str, Any] = {"lease_until": db_in(conf().lease_seconds)}
    if decided:
        values["decisions"] = lease.decisions + decided
    fence = _fence(lease, end, **values)
    send = fenced_transaction.prepare(
        fence, [Rows(RunEvent, rows, _SHARED_BY_EVENTS)], inside=inside
    )
    outcome = send()
    _require_fence_met(lease, outcome())
    _update_lease(lease, fence, end, tape=lease.tape, superstep=lease.superstep)
    lease.decisions += decided


def refresh_lease(lease: Lease) -> None:
    """Read the current end of the log into the lease, after a `ConcurrentUpdate`.
    Raises `StaleLease` if the lease is lost, and `TamperedRow` or `WrongKey` if the
    run's row does not match its seal.
    """
    leased = Run.objects.filter(id=lease.id, epoch=lease.epoch, status=Status.RUNNING)
    run = leased.only(*_REFRESHED).first()
    if run is None:
        raise StaleLease(
            "another worker has this run", run=str(lease.id), epoch=lease.epoch
        )
    # The next commit seals the row again, and must not cover up a change made to it.
    run_row.verify_run_row(run)
    lease.end = LogEnd(run.event_seq, run.event_hash)
    lease.wakes = run.wakes
    lease.decisions = run.decisions
    lease.cancelling = bool(run.cancel_at)


def _fence(lease: Lease, end: LogEnd, **values: Any) -> Update:
    """Return the conditional UPDATE that opens each of the holder's transactions, with
    the run's new seal.
    """
    # It matches the run's row only in the state that its holder has: neither leased to
    # another epoch, nor with newer events or wakes.
    as_known = {
        "id": lease.id,
        "epoch": lease.epoch,
        "status": Status.RUNNING,
        "event_seq": lease.end.seq,
        "wakes": lease.wakes,
    }
    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    sealed = run_row.seal_columns(
        lease,
        head=values.get("head", lease.head),
        head_hash=values.get("head_hash", lease.head_hash),
        decisions=values.get("decisions", lease.decisions),
        **log,
    )
    # These events say that a step was not saved, so the run is shown as not durable.
    if lease.unsaved:
        values["durable"] = False
    return Update(Run, as_known, {**log, **sealed, **values})


def _require_fence_met(lease: Lease, met: bool) -> None:
    """Raise if the fence did not match the run in the state that its holder has."""
    if met:
        return
    leased = Run.objects.filter(id=lease.id, epoch=lease.epoch, status=Status.RUNNING)
    if leased.exists():
        # Still this holder's run, so the log or the wakes have moved.
        raise ConcurrentUpdate
    raise StaleLease(
        "another worker has this run", run=str(lease.id), epoch=lease.epoch
    )


_CHANGED_BY_COMMIT = (
    "end",
    "tape",
    "superstep",
    "unsaved",
    "seal",
    "seal_key",
    "head",
    "head_seq",
    "head_hash",
    "decisions",
)
"""The attributes of a lease that a commit changes."""
_changed_by_commit = attrgetter(*_CHANGED_BY_COMMIT)


def _update_lease(
    lease: Lease,
    fence: Update,
    end: LogEnd,
    *,
    tape: str,
    superstep: int,
) -> None:
    """Copy what the fence writes to the run's row into the lease."""
    lease.end = end
    lease.tape = tape
    lease.superstep = superstep
    lease.unsaved = []
    lease.seal = fence.values["seal"]
    lease.seal_key = fence.values["seal_key"]


def _columns(lease: Lease, run_update: RunUpdate, at: datetime) -> dict[str, Any]:
    """Return the columns of the run's row that follow from `run_update`."""
    # Any commit is progress, so the claims that count towards poison start over.
    values: dict[str, Any] = {
        "at_node": run_update.at_node[:400],
        "tape": run_update.tape,
        "claims_since_progress": 0,
    }
    if run_update.pins:
        values["version"] = lease.version
        values["fingerprint"] = lease.fingerprint
    if run_update.status == Status.RUNNING:
        return values

    # The run stops, and the lease with it.
    values["status"] = run_update.status
    values["lease_until"] = None
    values["leased_by"] = None
    values["progress"] = b""
    # Set again by each stop: an earlier time would make a waiting run due at once.
    values["due_at"] = None
    if run_update.due_in is not None:
        values["due_at"] = db_in(run_update.due_in)
    if lease.cancelling and run_update.status in _NOT_YET_CANCELLED:
        # If this process ends here, the next worker to claim the run cancels it. The
        # run has not stopped, so it has no error.
        values["status"] = Status.QUEUED
        values["due_at"] = db_now()
        return values
    if run_update.status in ENDS:
        values["ended_at"] = at
    if run_update.error is not None:
        values |= error_columns(lease.id, run_update.error, lease.protection)
    return values
