"""The verbs that change a run: open it, commit a superstep, stop it, queue it again. Journal entries stand in
`journal`.

The runner and the verbs of floor 3 call them. Each is one transaction, or joins the one that is open. Nothing here
knows about people's decisions: what must ride in a commit is handed in as `inside`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from checkpoints import events, sql, wakes
from checkpoints.clock import db_in, db_now
from checkpoints.conf import conf
from checkpoints.core import codec
from checkpoints.core.ids import uuid7
from checkpoints.core.status import ENDS, Status
from checkpoints.events import Draft, LogEnd
from checkpoints.leases import Hold
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.packed import pack, unpack
from checkpoints.payloads import backend
from orchestrator.engine import canonical
from orchestrator.engine.errors import StaleLease, UnknownThing, WrongStatus


class Moved(Exception):
    """Somebody else wrote to the log since the holder looked; he must look again and build his commit anew."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What a checkpoint says of the state: JSON, the partitions and what resuming needs."""

    state: dict[str, dict[str, Any]]
    diagnostics: dict[str, Any]
    frontier: dict[str, Any]
    versions: dict[str, int] = field(default_factory=dict)
    open: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "scratch": self.state["scratch"],
            "artifacts": self.state["artifacts"],
            "diagnostics": self.diagnostics,
            "frontier": self.frontier,
            "versions": self.versions,
            "open": self.open,
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> "Payload":
        state = {"scratch": document["scratch"], "artifacts": document["artifacts"]}
        return cls(state, document["diagnostics"], document["frontier"], document["versions"], document["open"])


@dataclass(frozen=True, slots=True)
class Point:
    """A checkpoint before it is written. `nodes` and `changed` are what lists show of it."""

    source: str
    payload: Payload
    superstep: int
    nodes: list[dict[str, Any]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    kept: bool = True
    committed: bool = True
    took_ms: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes of the run with a commit. `due_in` (seconds) goes with `waiting`; `error` with the stopped
    statuses.
    """

    status: str = Status.RUNNING
    at_node: str = ""
    tape: str = ""
    due_in: float | None = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The newest checkpoint row as its holder needs it."""

    id: UUID
    seq: int
    parent: UUID | None
    kept: bool
    source: str
    payload: Payload


def open_run(run: Run, *, payload: Payload, input_json: dict[str, Any], actor: str) -> Run:
    """Start a journey: the run's row, its checkpoint 0, the first line of its log, queued. One transaction.

    `run` is unsaved, with what the caller knows of it. Raises `IntegrityError` where the key is taken.
    """
    with transaction.atomic():
        at = timezone.now()
        run.created_at = run.due_at = at
        run.input = pack(input_json)
        head = uuid7()
        facts = {"checkpoint": str(head), "graph": run.graph, "version": run.version, "input_hash": run.input_hash}
        rows, end = events.number(run.id, LogEnd(0, ""), [Draft("run_started", facts, actor=actor)], at=at)
        run.head, run.event_seq, run.event_hash = head, end.seq, end.hash
        run.save(force_insert=True)
        row = _row(run.id, head, Point(Source.INPUT, payload, 0), parent=None, seq=0, line=run.line, end=end, at=at)
        row.graph, row.version, row.fingerprint = run.graph, run.version, run.fingerprint
        row.save(force_insert=True)
        events.insert(rows)
        wakes.ring()
    return run


def load(hold: Hold) -> Head:
    """The head of a begun run. One query. Raises `UnknownThing` where its row is gone."""
    row = Checkpoint.objects.filter(id=hold.head, run=hold.id).first()
    if row is None:
        raise UnknownThing(f"checkpoint {hold.head} of run {hold.key} is gone", run=str(hold.id))
    return Head(row.id, row.seq, row.parent, row.kept, row.source, payload_of(row))


def payload_of(row: Checkpoint) -> Payload:
    """The payload of a checkpoint row, wherever its bytes are."""
    kept = backend(row.backend).get(str(row.id), bytes(row.snapshot))
    return Payload.of(canonical.loads(codec.unpack(kept)))


def next_seq(head: Head) -> int:
    """The seq of the next row: a recovery point's number is taken over by the row that replaces it."""
    return head.seq + 1 if head.kept else head.seq


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

    Raises `StaleLease` where another epoch has the run, `Moved` where the log has newer lines; then nothing was
    written.
    """
    at, new = timezone.now(), uuid7()
    saved = {"checkpoint": str(new), "superstep": point.superstep, "source": str(point.source)}
    shown = [{"node": n["node"], "tasks": n["tasks"], "outcome": n["outcome"]} for n in point.nodes]
    opening = [Draft("checkpoint_saved", {**saved, "nodes": shown, "kept": point.kept})]
    rows, end = events.number(hold.id, hold.end, [*opening, *lines], at=at)
    parent, seq = (head.id if head.kept else head.parent), next_seq(head)
    row = _row(hold.id, new, point, parent=parent, seq=seq, line=hold.line, end=end, at=at)
    row.graph, row.version, row.fingerprint = hold.graph, hold.version, hold.fingerprint
    with transaction.atomic():
        woken = _fence(hold, end, head=new, head_seq=seq, superstep=point.superstep, **_columns(hold, turn, at))
        if not head.kept:
            Checkpoint.objects.filter(id=head.id).delete()
        sql.insert(Checkpoint, [row])
        events.insert(rows)
        if inside:
            inside()
    _settle_hold(hold, end, woken, tape=turn.tape, superstep=point.superstep)
    hold.head, hold.head_seq = new, seq
    return Head(new, seq, parent, point.kept, point.source, point.payload)


def stop(hold: Hold, turn: Turn, *, lines: Sequence[Draft], inside: Callable[[], None] | None = None) -> None:
    """Change a held run's status without a checkpoint: poison, incompatible, tampered, or rest again. Raises as
    `commit` does.
    """
    at = timezone.now()
    rows, end = events.number(hold.id, hold.end, lines, at=at)
    with transaction.atomic():
        woken = _fence(hold, end, **_columns(hold, turn, at))
        events.insert(rows)
        if inside:
            inside()
    _settle_hold(hold, end, woken, tape=turn.tape, superstep=hold.superstep)


def append(hold: Hold, lines: Sequence[Draft], *, inside: Callable[[], None] | None = None) -> None:
    """Add lines to the log of a held run, lengthen its lease, and do `inside` with them. Raises as `commit` does."""
    rows, end = events.number(hold.id, hold.end, lines, at=timezone.now())
    with transaction.atomic():
        woken = _fence(hold, end, lease_until=db_in(conf().lease_seconds))
        events.insert(rows)
        if inside:
            inside()
    _settle_hold(hold, end, woken, tape=hold.tape, superstep=hold.superstep)


def look_again(hold: Hold) -> None:
    """After `Moved`: take over where the log stands now. Raises `StaleLease` where the lease is lost."""
    row = Run.objects.filter(id=hold.id, epoch=hold.epoch, status=Status.RUNNING)
    now = row.values_list("event_seq", "event_hash", "wakes", "decisions").first()
    if now is None:
        raise StaleLease("another worker has this run", run=str(hold.id), epoch=hold.epoch)
    hold.end, hold.wakes, hold.decisions = LogEnd(now[0], now[1]), now[2], now[3]


def _fence(hold: Hold, end: LogEnd, **values: Any) -> int:
    """The conditional UPDATE that opens each of the holder's transactions. Gives the run's `wakes`."""
    mine = {"id": hold.id, "epoch": hold.epoch, "status": Status.RUNNING}
    known = {**mine, "event_seq": hold.end.seq}
    rows = sql.update_returning(Run, known, ["wakes"], event_seq=end.seq, event_hash=end.hash, **values)
    if rows:
        return int(rows[0][0])
    if Run.objects.filter(**mine).exists():
        raise Moved
    raise StaleLease("another worker has this run", run=str(hold.id), epoch=hold.epoch)


def _settle_hold(hold: Hold, end: LogEnd, woken: int, *, tape: str, superstep: int) -> None:
    hold.end, hold.tape, hold.superstep = end, tape, superstep
    hold.moved = hold.moved or woken != hold.wakes
    hold.wakes = woken


def _columns(hold: Hold, turn: Turn, at: datetime) -> dict[str, Any]:
    """The columns of the run's row that follow from what becomes of it."""
    values: dict[str, Any] = {"at_node": turn.at_node[:400], "tape": turn.tape, "claims_since_progress": 0}
    if turn.status == Status.RUNNING:
        return values
    values |= {"status": turn.status, "lease_until": None, "leased_by": None, "progress": None, "due_at": None}
    if turn.status in (Status.PAUSED, Status.WAITING):
        # A wake that came after the last look cannot set `queued` on a leased run; this statement does it for him.
        unchanged = Q(wakes=hold.wakes)
        values["status"] = Case(When(unchanged, then=Value(turn.status)), default=Value(Status.QUEUED))
        rest = db_in(turn.due_in) if turn.due_in is not None else Value(None)
        values["due_at"] = Case(When(unchanged, then=rest), default=db_now())
    if turn.status in ENDS:
        values["ended_at"] = at
    if turn.error is not None:
        values |= {"error": pack(turn.error), "error_code": str(turn.error["code"])}
    return values


def _row(
    run: UUID, new: UUID, point: Point, *, parent: UUID | None, seq: int, line: int, end: LogEnd, at: datetime
) -> Checkpoint:
    # Every part of the document was normalised when it was staged; to walk it again would cost more than the commit.
    data = canonical.encode(point.payload.document())
    kept = backend("database").put(str(new), codec.pack(data))
    return Checkpoint(
        id=new,
        run_id=run,
        seq=seq,
        superstep=point.superstep,
        line=line,
        source=point.source,
        parent=parent,
        created_at=at,
        kept=point.kept,
        committed=point.committed,
        snapshot=kept,
        stored_size=len(kept),
        state_size=len(data),
        nodes=point.nodes,
        changed=point.changed,
        event_seq=end.seq,
        event_hash=end.hash,
        took_ms=point.took_ms,
    )


def lock(run_id: UUID) -> Run:
    """The run's row, locked until the caller's transaction ends. Whoever is not its lease holder appends under this
    lock.
    """
    run = Run.objects.select_for_update().filter(id=run_id).first()
    if run is None:
        raise UnknownThing(f"there is no run {run_id}", run=str(run_id))
    return run


def write_lines(run: Run, lines: Sequence[Draft], *, at: datetime, **values: Any) -> int:
    """Close an act on a locked run: its lines and one UPDATE. Gives the number of its last line."""
    rows, end = events.number(run.id, LogEnd(run.event_seq, run.event_hash), lines, at=at)
    events.insert(rows)
    Run.objects.filter(id=run.id).update(event_seq=end.seq, event_hash=end.hash, **values)
    run.event_seq, run.event_hash = end.seq, end.hash
    return end.seq


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
    error: dict[str, Any] | None = unpack(run.error)
    return error
