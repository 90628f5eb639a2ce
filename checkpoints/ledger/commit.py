"""The verbs that change a run: open it, commit a superstep, stop it, queue it again. Journal entries stand in
`journal`.

The runner and the verbs of floor 3 call them. Each is one transaction, or joins the one that is open. Nothing here
knows about people's decisions: what must ride in a commit is handed in as `inside`.
"""

import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from checkpoints import event_log as events
from checkpoints.conf import conf
from checkpoints.core.ids import uuid7
from checkpoints.core.status import ENDS, Status
from checkpoints.db import fenced_transaction as fencing
from checkpoints.db.clock import db_in, db_now
from checkpoints.db.fenced_transaction import Rows
from checkpoints.db.statements import Update
from checkpoints.event_log import Draft, LogEnd
from checkpoints.ledger import checkpoint_rows as points
from checkpoints.ledger.checkpoint_rows import Head, Payload, Place, Point
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import Source
from checkpoints.queue import notify as wakes
from checkpoints.queue.leases import Hold
from checkpoints.sealing import run_row as run_seal
from checkpoints.sealing import sealed_rows as sealing
from checkpoints.sealing.sealed_columns import pack, value
from checkpoints.sealing.sealed_rows import Cover, cover_of
from orchestrator.engine.errors import (
    CountersignError,
    StaleLease,
    UnknownThing,
    WrongKey,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen

__all__ = ["Head", "Moved", "Payload", "Point", "Turn"]


_LOOKED = (
    "key", "graph", "version", "fingerprint", "encrypted", "hash_key", "payloads", "input_hash", "started_by",
    "on_behalf_of", "line", "head", "head_hash", "event_seq", "event_hash", "wakes", "decisions", "seal", "seal_key",
    "cancel_at",
)  # fmt: skip


_NOT_YET_CANCELLED = frozenset({Status.PAUSED, Status.WAITING, Status.FAILED, Status.INCOMPATIBLE})


_OF_LINES = (("run_id", "id"), ("seal_key", "seal_key"))
_OF_POINTS = (
    *_OF_LINES, ("id", "head"), ("seq", "head_seq"), ("content_hash", "head_hash"), ("superstep", "superstep"),
    ("line", "line"), ("graph", "graph"), ("version", "version"), ("fingerprint", "fingerprint"),
    ("event_seq", "event_seq"), ("event_hash", "event_hash"),
)  # fmt: skip
"""What a line, and a checkpoint that becomes the head, have in common with the run's row after their commit."""


class Moved(Exception):
    """Somebody else wrote to the log, or woke the run, since the holder looked; he must look again and build his commit
    anew.
    """


@frozen
class Turn:
    """What becomes of the run with a commit. `due_in` (seconds) goes with `waiting`; `error` with the stopped
    statuses.
    """

    status: str = Status.RUNNING
    at_node: str = ""
    tape: str = ""
    due_in: float | None = None
    error: dict[str, Any] | None = None


def open_run(run: Run, *, payload: Payload, input_json: dict[str, Any], actor: str) -> Run:
    """Start a journey: the run's row, its checkpoint 0, the first line of its log, queued. One transaction.

    `run` is unsaved, with what the caller knows of it. Raises `IntegrityError` where the key is taken.
    """
    with transaction.atomic():
        at = timezone.now()
        run.created_at = at
        run.input = pack(input_json)
        place, new = Place.of(run), uuid7()
        point = Point(Source.INPUT, payload, 0)
        change = points.whole(point, place.cover)
        lines, end = _begun(run, place, new, actor=actor, at=at, change=change.hash)
        row, head = points.first(place, new, point, change, end=end, at=at)
        _insert_run(run, place, new, head.hash, end)
        row.save(force_insert=True)
        events.insert(lines)
        wakes.ring()
    return run


def open_fork(run: Run, first: Checkpoint, *, input_json: dict[str, Any], actor: str) -> Run:
    """Give a fork that has a checkpoint and no row its row, and the first line of its log; queued. One transaction.

    `run` is unsaved, with what the caller knows of it. Raises `IntegrityError` where its key or id is taken.
    """
    with transaction.atomic():
        run.created_at = at = timezone.now()
        run.input, run.superstep = pack(input_json), first.superstep
        place = Place.of(run)
        lines, end = _begun(
            run, place, first.id, actor=actor, at=at, change=first.change_hash, origin=str(first.parent)
        )
        _insert_run(run, place, first.id, first.content_hash, end)
        events.insert(lines)
        wakes.ring()
    return run


def _begun(
    run: Run, place: Place, head: UUID, *, actor: str, at: datetime, **more: str
) -> tuple[list[RunEvent], LogEnd]:
    facts = {"checkpoint": str(head), "graph": run.graph, "version": run.version, "input_hash": run.input_hash, **more}
    return events.number(run.id, LogEnd(0, ""), [Draft("run_started", facts, actor=actor)], at=at, cover=place.cover)


def _insert_run(run: Run, place: Place, head: UUID, head_hash: str, end: LogEnd) -> None:
    run.head, run.head_hash, run.event_seq, run.event_hash = head, head_hash, end.seq, end.hash
    run.seal, run.seal_key = _seal(run, end, head=head, head_hash=head_hash, decisions=0).values()
    sealing.lock(run, place.cover)
    run.save(force_insert=True)


def commit(
    hold: Hold,
    head: Head,
    point: Point,
    turn: Turn,
    *,
    lines: Sequence[Draft],
    inside: Callable[[], None] | None = None,
) -> Head:
    """Move the head: the fenced transaction of semantics 4. Gives the new head and brings the hold up to date.

    `inside` does what must ride in it. Raises `StaleLease` where another epoch has the run, `Moved` where the log has
    newer lines, `SaveFailed` where the payload backend refuses; then nothing was written.
    """
    it = made(hold, head, point, turn, lines=lines, inside=inside)
    it.send()()
    return it.head


@frozen
class Made:
    """A commit that is ready to be sent, and the head that it makes. Sent, it may still be on its way: the hold is at
    once as it will be. What `send` gives waits for it, and raises as `commit` does; then the hold is as it was.
    """

    head: Head
    send: Callable[[], Callable[[], None]]


def made(
    hold: Hold,
    head: Head,
    point: Point,
    turn: Turn,
    *,
    lines: Sequence[Draft],
    also: Update | None = None,
    inside: Callable[[], None] | None = None,
) -> Made:
    """Make a `commit`; `also` is an update of other rows that rides in it."""
    at, new = datetime.now(UTC), uuid7()
    place = Place.of(hold)
    change = points.change_after(head, point, place.cover)
    # The log refers to what changed; the bytes are stored once.
    saved = {"checkpoint": str(new), "superstep": point.superstep, "source": str(point.source), "change": change.hash}
    shown = [{"node": n["node"], "tasks": n["tasks"], "outcome": n["outcome"]} for n in point.nodes]
    opening = [Draft("checkpoint_saved", {**saved, "nodes": shown, "kept": point.kept})]
    rows, end = events.number(hold.id, hold.end, [*hold.unsaved, *opening, *lines], at=at, cover=hold.cover)
    row, after = points.following(place, new, head, point, change, end=end, at=at)
    values = _columns(hold, turn, at) | {"head_seq": row.seq, "superstep": point.superstep}
    fence = _fence(hold, end, head=new, head_hash=row.content_hash, **values)
    gone = None if head.kept else Checkpoint(id=head.id)
    behind = [Rows(Checkpoint, [row], _OF_POINTS), Rows(RunEvent, rows, _OF_LINES)]
    send = fencing.made(fence, behind, gone=gone, also=also, inside=inside)

    def sent() -> Callable[[], None]:
        met, was = send(), _standing(hold)
        _settle_hold(hold, fence, end, tape=turn.tape, superstep=point.superstep)
        hold.head, hold.head_seq, hold.head_hash = new, row.seq, row.content_hash
        return partial(_land, hold, was, met, forget=None if head.kept else partial(points.forget, place, head.id))

    return Made(after, sent)


def _land(hold: Hold, was: Sequence[Any], met: fencing.Answer, *, forget: Callable[[], None] | None) -> None:
    try:
        _require(hold, met())
    except BaseException:
        for name, value in zip(_STANDING, was, strict=True):
            setattr(hold, name, value)
        raise
    if forget:
        forget()


def stop(hold: Hold, turn: Turn, *, lines: Sequence[Draft], inside: Callable[[], None] | None = None) -> None:
    """Change a held run's status without a checkpoint: poison, incompatible, or rest again. Raises as `commit` does."""
    at = timezone.now()
    rows, end = events.number(hold.id, hold.end, [*hold.unsaved, *lines], at=at, cover=hold.cover)
    fence = _fence(hold, end, **_columns(hold, turn, at))
    _require(hold, fencing.made(fence, [Rows(RunEvent, rows, _OF_LINES)], inside=inside)()())
    _settle_hold(hold, fence, end, tape=turn.tape, superstep=hold.superstep)


def condemn(hold: Hold, error: dict[str, Any]) -> None:
    """Stop a held run as tampered. Nothing that is sealed is touched and no line is written: a new seal would cover up
    what was found.
    """
    values = _columns(hold, Turn(Status.TAMPERED, tape=hold.tape, error=error), timezone.now())
    Run.objects.filter(id=hold.id, epoch=hold.epoch, status=Status.RUNNING).update(**values)
    wakes.ring()


def mark_tampered(run_id: UUID, error: CountersignError) -> None:
    """`condemn` for a run that nobody holds. One that is held is left to its holder, who finds out himself; one that
    has ended stays as it ended.
    """
    run = Run.objects.only("encrypted", "hash_key").filter(id=run_id).first()
    if run is not None:
        told = {"code": error.code, "message": error.message, "cure": inspect.getdoc(type(error))}
        why = _why(run_id, told, cover_of(run))
        found = Run.objects.filter(id=run_id).exclude(status__in=[Status.RUNNING, *ENDS])
        found.update(status=Status.TAMPERED, due_at=None, **why)


def append(hold: Hold, lines: Sequence[Draft], *, inside: Callable[[], None] | None = None) -> None:
    """Add lines to the log of a held run, lengthen its lease, and do `inside` with them. Raises as `commit` does."""
    rows, end = events.number(hold.id, hold.end, [*hold.unsaved, *lines], at=timezone.now(), cover=hold.cover)
    fence = _fence(hold, end, lease_until=db_in(conf().lease_seconds))
    _require(hold, fencing.made(fence, [Rows(RunEvent, rows, _OF_LINES)], inside=inside)()())
    _settle_hold(hold, fence, end, tape=hold.tape, superstep=hold.superstep)


def look_again(hold: Hold) -> None:
    """After `Moved`: take over where the log stands now. Raises `StaleLease` where the lease is lost, and `TamperedRow`
    or `WrongKey` where the run's row is not as it was sealed.
    """
    row = Run.objects.filter(id=hold.id, epoch=hold.epoch, status=Status.RUNNING)
    now = row.only(*_LOOKED).first()
    if now is None:
        raise StaleLease("another worker has this run", run=str(hold.id), epoch=hold.epoch)
    run_seal.verify_row(now)
    hold.end, hold.wakes, hold.decisions = LogEnd(now.event_seq, now.event_hash), now.wakes, now.decisions
    hold.cancelling = bool(now.cancel_at)


def _fence(hold: Hold, end: LogEnd, **values: Any) -> Update:
    """The conditional UPDATE that opens each of the holder's transactions, with the run's new seal."""
    seen = {"event_seq": hold.end.seq, "wakes": hold.wakes}
    known = {"id": hold.id, "epoch": hold.epoch, "status": Status.RUNNING, **seen}
    head, head_hash = values.get("head", hold.head), values.get("head_hash", hold.head_hash)
    sealed = _seal(hold, end, head=head, head_hash=head_hash, decisions=hold.decisions)
    if hold.unsaved:
        values["durable"] = False
    return Update(Run, known, {"event_seq": end.seq, "event_hash": end.hash, **sealed, **values})


def _seal(run: Run | Hold, end: LogEnd, *, head: UUID | None, head_hash: str, decisions: int) -> dict[str, Any]:
    return run_seal.columns(
        run, head=head, head_hash=head_hash, event_seq=end.seq, event_hash=end.hash, decisions=decisions
    )


def _require(hold: Hold, met: bool) -> None:
    """The fence must have met the run as its holder knows it."""
    if not met:
        if Run.objects.filter(id=hold.id, epoch=hold.epoch, status=Status.RUNNING).exists():
            raise Moved
        raise StaleLease("another worker has this run", run=str(hold.id), epoch=hold.epoch)


_STANDING = ("end", "tape", "superstep", "unsaved", "seal", "seal_key", "head", "head_seq", "head_hash")
_standing = attrgetter(*_STANDING)
"""What a commit changes of a hold."""


def _settle_hold(hold: Hold, fence: Update, end: LogEnd, *, tape: str, superstep: int) -> None:
    hold.end, hold.tape, hold.superstep, hold.unsaved = end, tape, superstep, []
    hold.seal, hold.seal_key = fence.values["seal"], fence.values["seal_key"]


def _columns(hold: Hold, turn: Turn, at: datetime) -> dict[str, Any]:
    """The columns of the run's row that follow from what becomes of it."""
    values: dict[str, Any] = {"at_node": turn.at_node[:400], "tape": turn.tape, "claims_since_progress": 0}
    if turn.status == Status.RUNNING:
        return values
    values |= {"status": turn.status, "lease_until": None, "leased_by": None, "progress": b"", "due_at": None}
    if turn.due_in is not None:
        values["due_at"] = db_in(turn.due_in)
    if hold.cancelling and turn.status in _NOT_YET_CANCELLED:
        # Should this process end here, whoever claims the run next cancels it.
        values |= {"status": Status.QUEUED, "due_at": db_now()}
    if turn.status in ENDS:
        values["ended_at"] = at
    if turn.error is not None:
        values |= _why(hold.id, turn.error, hold.cover)
    return values


def _why(run: UUID, error: dict[str, Any], cover: Cover) -> dict[str, Any]:
    """The columns that say why a run stopped. Where there is no key to encrypt them with, the code alone says it."""
    try:
        kept = sealing.locked(Run(id=run), "error", pack(error), cover)
    except WrongKey:
        kept = b""
    return {"error": kept, "error_code": str(error["code"])}


def lock(run_id: UUID) -> Run:
    """The run's row, locked until the caller's transaction ends. Whoever is not its lease holder appends under this
    lock. Raises `UnknownThing`, and `TamperedRow` or `WrongKey` where it is not as it was sealed: the caller's new seal
    would cover that up.
    """
    run = Run.objects.select_for_update().filter(id=run_id).first()
    if run is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    run_seal.verify_row(run)
    return run


def write_lines(run: Run, lines: Sequence[Draft], *, at: datetime, decisions: int | None = None, **values: Any) -> int:
    """Close an act on a locked run: its lines and one UPDATE. `decisions`: how many there are now. Gives the number of
    its last line.
    """
    rows, end = events.number(run.id, LogEnd(run.event_seq, run.event_hash), lines, at=at, cover=cover_of(run))
    events.insert(rows)
    run.decisions = run.decisions if decisions is None else decisions
    sealed = _seal(run, end, head=run.head, head_hash=run.head_hash, decisions=run.decisions)
    Run.objects.filter(id=run.id).update(
        event_seq=end.seq, event_hash=end.hash, decisions=run.decisions, **sealed, **values
    )
    run.event_seq, run.event_hash, run.seal, run.seal_key = end.seq, end.hash, sealed["seal"], sealed["seal_key"]
    return end.seq


def keep_head(run: Run) -> list[Draft]:
    """Let the head of a locked run stay in the timeline, for no other row will follow it. Gives the line that says so.

    Raises `TamperedRow` and `WrongKey` where its row does not verify.
    """
    head = Checkpoint.objects.filter(run=run.id, seq=run.head_seq, kept=False).first()
    if head is None:
        return []
    cover = cover_of(run)
    sealing.verify(head, cover)
    names = sealing.seal_again(head, cover, kept=True)
    Checkpoint.objects.filter(id=head.id).update(**{name: getattr(head, name) for name in names})
    return [Draft("checkpoint_kept", {"checkpoint": str(head.id), "superstep": head.superstep})]


def requeue(run: Run, *, lines: Sequence[Draft], only: frozenset[str]) -> None:
    """Queue a locked, stopped run again. Raises `WrongStatus` where its status is not one of `only`."""
    if run.status not in only:
        raise WrongStatus(f"run {run.key} is {run.status}, not {' or '.join(sorted(only))}", status=run.status)
    write_lines(
        run,
        lines,
        at=timezone.now(),
        status=Status.QUEUED,
        due_at=db_now(),
        claims_since_progress=0,
        error=b"",
        error_code="",
        wakes=F("wakes") + 1,
    )
    wakes.ring()


def error_of(run: Run) -> dict[str, Any] | None:
    """Why a run stopped: {code, message, node, task, type, attempt, traceback}, or None."""
    error: dict[str, Any] | None = value(run, "error")
    return error
