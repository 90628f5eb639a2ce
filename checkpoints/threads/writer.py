"""Writes to a thread: its checkpoints as rows of a run, each chained and sealed like
those of a worker, and the writes of its tasks as lines of the log.

Each function is one transaction under the lock of the run, so of two processes that
save at the same time, one waits. A checkpoint that departs from an older one than the
newest of its namespace begins a line, as a rewind does.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from checkpoints import event_log, payloads
from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.db.statements import insert_rows, update_rows
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.ledger import checkpoint_rows, commit, departure, locked_run, reader
from checkpoints.ledger.checkpoint_rows import NewCheckpoint, RunHeader
from checkpoints.ledger.departure import NewLine
from checkpoints.ledger.removed_keys import require_never_removed
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.sealing import run_row
from checkpoints.sealing.sealed_rows import new_protection, protection_of
from checkpoints.threads import reader as thread_reader
from checkpoints.threads.contents import (
    Document,
    NewThreadState,
    ThreadState,
    ThreadWrite,
    document_after,
    empty_payload,
    ops_between,
    payload_with,
    point_from,
    point_of,
    writes_to_json,
)
from checkpoints.threads.names import (
    FINGERPRINT,
    checked_id,
    place_of,
    run_or_key,
)
from checkpoints.threads.reader import SavedLine
from orchestrator.engine import registry
from orchestrator.engine.errors import (
    Erased,
    InvalidValue,
    KeyConflict,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

TRIES = 10
"""How often a save starts over because the thread was removed or begun in the meantime.
"""


class _BeginAnew(Exception):
    """The thread was removed, or begun by another process, at the same moment."""


@frozen
class ThreadOrigin:
    """The facts of threads that begin now: the name of their graph, whether their
    values are encrypted, the backend of their payloads, and the person responsible for
    them (None: the system).
    """

    graph: str
    encrypted: bool = False
    payloads: str | None = None
    by: Any = None


@frozen
class _Base:
    """The row that a new one follows, and its document. `departs`: a line begins."""

    row: Checkpoint
    document: Document
    departs: bool


def save_point(thread: str, draft: NewThreadState, origin: ThreadOrigin) -> None:
    """Save a checkpoint of a thread, and begin the thread if there is none. Saving the
    same checkpoint again changes nothing; other contents under its id replace it.

    Raises `WrongStatus` for a thread that was ended or imported, `Erased`,
    `InvalidValue`, `SaveFailed`, `TamperedRow`, `WrongKey`.
    """
    checked_id(draft.id)

    def save(run: Run) -> None:
        _save_point(run, draft, origin.by)

    _in_thread(thread, origin, save)


def save_writes(
    thread: str,
    namespace: str,
    id_: str,
    writes: Sequence[ThreadWrite],
    origin: ThreadOrigin,
) -> None:
    """Save writes at a checkpoint, which may be saved later. Existing writes are left
    unchanged. Raises as `save_point` does.
    """
    checked_id(id_)

    def save(run: Run) -> None:
        _save_writes(run, namespace, id_, writes, origin.by)

    _in_thread(thread, origin, save)


def copy_thread(source: Run, target: str, origin: ThreadOrigin) -> None:
    """Copy all checkpoints and writes of a thread to another one, in one transaction.
    The copy has the source's protection and backend, and its log names the source.
    Raises as `save_point` does, and `WrongStatus` if the thread `target` has
    checkpoints.
    """
    require_origin(source, origin)
    origin = ThreadOrigin(source.graph, source.encrypted, source.payloads, origin.by)
    points = list(thread_reader.all_points(source))
    points.sort(key=lambda point: point.id)

    def save(run: Run) -> None:
        if thread_reader.saved_points(run):
            raise WrongStatus(f"thread {run.key} has checkpoints already")
        _note_source(run, source.id, origin.by)
        for point in points:
            # Each of them changes the run's row.
            locked = locked_run.lock_run(run.id)
            _save_point(locked, _draft_of(point), origin.by)
            locked = locked_run.lock_run(run.id)
            _save_writes(locked, point.namespace, point.id, point.writes, origin.by)

    _in_thread(target, origin, save)


def move_head(
    run: Run,
    line: SavedLine | None,
    staying: Collection[tuple[str, str]],
    *,
    by: Any,
) -> None:
    """Begin the next line of a locked thread with what the row of a saved checkpoint
    holds of the points that are `staying`, so that the rows before it may be removed.
    Without a `line` it begins with the state before any work. Raises `WrongStatus` for
    a thread that takes no checkpoints, `TamperedRow`, `WrongKey`, `SaveFailed`.
    """
    _require_waiting(run)
    if line is None:
        first = Checkpoint.objects.filter(run=run.id, seq=0)
        row_id = first.values_list("id", flat=True).get()
    else:
        row_id = line.row
    rows = reader.range_of(row_id)
    document = reader.proven(rows, protection_of(run))
    new = NewCheckpoint(
        Source.REWIND, payload_with(document, staying), rows[-1].superstep, whole=True
    )
    new_id = uuid7()
    events = []
    if line is not None:
        events.append(
            _saved(new_id, line.namespace, line.id, line.engine_run, by=by),
        )
    _begin_line_with(run, new_id, new, rows[-1], before=[], events=events, by=by)


def require_origin(run: Run, origin: ThreadOrigin) -> None:
    """Raise `KeyConflict` for a thread of another graph than the origin names, or a
    plain one whose values were to be encrypted.
    """
    if run.graph != origin.graph:
        raise KeyConflict(
            f"thread {run.key} is of graph {run.graph}, not {origin.graph}", key=run.key
        )
    if origin.encrypted and not run.encrypted:
        raise KeyConflict(f"thread {run.key} began without encryption", key=run.key)


def wait_again(run: Run, *, by: Any) -> int:
    """Allow a locked thread to take checkpoints again that had stopped because it was
    tampered with or its database was restored. Returns the number of the line of the
    log that says so. Raises `WrongStatus` for one in any other status.
    """
    resumed_seq = run.event_seq + 1
    if run.status not in (Status.FAILED, Status.TAMPERED):
        raise WrongStatus(
            f"thread {run.key} is {run.status}: only its engine goes on with it",
            run=str(run.id),
            status=run.status,
        )
    events = [
        NewEvent("run_resumed", {"was": run.status}, actor=_name_of(by)),
        NewEvent("run_waiting"),
    ]
    locked_run.append_locked(
        run,
        events,
        at=timezone.now(),
        status=Status.WAITING,
        due_at=None,
        error=b"",
        error_code="",
    )
    return resumed_seq


def _note_source(run: Run, source: UUID, by: Any) -> None:
    """Add the line that says what a locked thread was copied from, so that an erasure
    of either names the other.
    """
    # The source stays locked, so no erasure of it begins before the copy is seen.
    if locked_run.lock_run(source).erasure is not None:
        raise Erased(f"values of run {source} were erased", run=str(source))
    event = NewEvent(
        "thread_copied", {"origin": str(source)}, task=str(source), actor=_name_of(by)
    )
    locked_run.append_locked(run, [event], at=timezone.now())


def _in_thread(thread: str, origin: ThreadOrigin, act: Any) -> None:
    """Do `act` with the locked run of a thread, which begins if there is none."""
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                act(_locked(thread, origin))
        except _BeginAnew:
            continue
        return
    raise KeyConflict(f"thread {thread} is begun and removed all the while")


def _locked(thread: str, origin: ThreadOrigin) -> Run:
    run, key = run_or_key(thread)
    if run is None:
        run_id = _begin(thread, key, origin)
    else:
        require_origin(run, origin)
        run_id = run.id
    try:
        locked = locked_run.lock_run(run_id)
    except UnknownThing as error:
        raise _BeginAnew from error
    if locked.erasure is not None:
        raise Erased(f"values of thread {key} were erased", run=str(run_id))
    _require_waiting(locked)
    thread_reader.require_whole_log(locked)
    return locked


def _require_waiting(run: Run) -> None:
    if run.status != Status.WAITING:
        raise WrongStatus(
            f"thread {run.key} is {run.status}, so nothing is added to it",
            run=str(run.id),
            status=run.status,
        )


def _begin(thread: str, key: str, origin: ThreadOrigin) -> UUID:
    """Insert the run of a thread, with its state before any work."""
    if registry.is_registered(origin.graph):
        raise InvalidValue(
            f"graph {origin.graph} is registered here, so workers of ours run it",
            path="graph",
        )
    protection = new_protection(encrypted=origin.encrypted)
    label = ""
    if thread.isprintable() and not origin.encrypted:
        label = thread[:LONGEST_LABEL]
    run = Run(
        id=uuid7(),
        key=key,
        graph=origin.graph,
        version="",
        fingerprint=FINGERPRINT,
        encrypted=protection.encrypted,
        hash_key=protection.hash_key,
        payloads=payloads.chosen(origin.payloads),
        input_hash=protection.digest(canonical.dumps({})),
        started_by=origin.by,
        label=label,
        # Never due: no worker takes it.
        status=Status.WAITING,
    )
    try:
        commit.create_run(
            run, payload=empty_payload(), input_json={}, actor=_name_of(origin.by)
        )
        require_never_removed(key)
    except (IntegrityError, KeyConflict) as error:
        raise _BeginAnew from error
    locked = locked_run.lock_run(run.id)
    locked_run.append_locked(locked, [NewEvent("run_waiting")], at=timezone.now())
    return run.id


def _save_point(run: Run, draft: NewThreadState, by: Any) -> None:
    base = _base_of(run, draft)
    parent = _parent_document(run, draft, base)
    point = point_from(draft, parent)
    saved_line = thread_reader.newest_line(run, draft.namespace, draft.id)
    if saved_line is not None and _holds(run, saved_line, point):
        return

    seq = run.head_seq + 1
    payload = document_after(base.document, point, seq)
    superstep = base.row.superstep if draft.step is None else draft.step
    new = NewCheckpoint(
        _source_of(draft, base),
        payload,
        superstep,
        ops=ops_between(base.document, payload),
        nodes=_nodes_of(draft, parent),
        # Only then are there other channels than before.
        whole=payload.state["scratch"].keys() != base.document["scratch"].keys(),
    )
    if base.departs:
        _begin_line(run, new, base.row, draft, by)
    else:
        _append(run, new, draft, by)


def _base_of(run: Run, draft: NewThreadState) -> _Base:
    """Return what a checkpoint follows: the head, or the older one it departs from."""
    newest = thread_reader.newest_line(run, draft.namespace)
    is_next = newest is None or newest.task in (draft.parent, draft.id)
    if not is_next and draft.parent is not None:
        stored = _stored_at(run, draft.namespace, draft.parent)
        if stored is not None:
            row, document = stored
            return _Base(row, document, departs=True)
    rows = _rows_of_head(run)
    return _Base(rows[-1], reader.proven(rows, protection_of(run)), departs=False)


def _rows_of_head(run: Run) -> Sequence[Checkpoint]:
    rows = reader.range_of(run.head) if run.head else []
    if not rows or rows[-1].content_hash != run.head_hash:
        raise TamperedRow(
            f"the head of run {run.key} is not the one that it names", run=str(run.id)
        )
    return rows


def _parent_document(run: Run, draft: NewThreadState, base: _Base) -> Document | None:
    """Return the document that holds the parent of a checkpoint, if there is one."""
    if draft.parent is None:
        return None
    point = point_of(base.document, draft.namespace)
    if point is not None and point.id == draft.parent:
        return base.document
    stored = _stored_at(run, draft.namespace, draft.parent)
    if stored is None:
        return None
    _, document = stored
    return document


def _stored_at(
    run: Run,
    namespace: str,
    id_: str,
) -> tuple[Checkpoint, Document] | None:
    """Return the row of a saved checkpoint and its document, if it exists."""
    line = thread_reader.newest_line(run, namespace, id_)
    if line is None:
        return None
    return thread_reader.document_of(run, line)


def _holds(run: Run, line: Any, point: ThreadState) -> bool:
    """Return whether the row that a line names holds exactly this point."""
    stored = thread_reader.document_of(run, line)
    return stored is not None and point_of(stored[1], point.namespace) == point


def _source_of(draft: NewThreadState, base: _Base) -> Source:
    if base.departs:
        return Source.REWIND
    return draft.source


def _nodes_of(draft: NewThreadState, parent: Document | None) -> list[dict[str, Any]]:
    """Return the nodes that ran since the parent of a checkpoint, as rows list them."""
    before = point_of(parent, draft.namespace) if parent else None
    if before is None or draft.nodes_after is None:
        return []
    nodes = []
    for name in draft.nodes_after(before.checkpoint):
        # Its engine does not say what a node does, so it may do anything.
        node = {"node": name, "effect": "external", "tasks": 1}
        nodes.append({**node, "ms": 0, "outcome": "done"})
    return nodes


def _append(run: Run, new: NewCheckpoint, draft: NewThreadState, by: Any) -> None:
    """Add a row after the head of a locked run, and move the head to it."""
    at = timezone.now()
    header = RunHeader.of(run)
    head = reader.head_of(_rows_of_head(run), header.protection)
    row_id = uuid7()
    change = checkpoint_rows.delta_after(head, new, header.protection)
    drafts = [
        *_ran(run, draft, by),
        commit.saved_event(row_id, new, change.hash),
        _saved_draft(row_id, draft, by),
    ]
    events, end = event_log.chain(
        run.id,
        LogEnd(run.event_seq, run.event_hash),
        drafts,
        at=at,
        protection=header.protection,
    )
    row, _ = checkpoint_rows.next_row(header, row_id, head, new, change, end=end, at=at)
    insert_rows(Checkpoint, [row])
    event_log.insert_events(events)

    log: dict[str, Any] = {"event_seq": end.seq, "event_hash": end.hash}
    moved: dict[str, Any] = {"head": row.id, "head_hash": row.content_hash}
    sealed = run_row.seal_columns(run, decisions=run.decisions, **moved, **log)
    update_rows(
        Run,
        {"id": run.id},
        **log,
        **moved,
        **sealed,
        head_seq=row.seq,
        superstep=row.superstep,
    )


def _begin_line(
    run: Run, new: NewCheckpoint, row: Checkpoint, draft: NewThreadState, by: Any
) -> None:
    """Begin the next line of a locked run at an older row."""
    row_id = uuid7()
    before = _ran(run, draft, by)
    events = [_saved_draft(row_id, draft, by)]
    _begin_line_with(run, row_id, new, row, before=before, events=events, by=by)


def _begin_line_with(
    run: Run,
    row_id: UUID,
    new: NewCheckpoint,
    row: Checkpoint,
    *,
    before: Sequence[NewEvent],
    events: Sequence[NewEvent],
    by: Any,
) -> None:
    line = NewLine(
        travel=Travel.REWIND, departure=row, checkpoint=new, patched=(), by=by
    )
    departure.begin_line(
        run,
        line,
        status=Status.WAITING,
        before=before,
        events=[*events, NewEvent("run_waiting")],
        inside=lambda: None,
        checkpoint_id=row_id,
    )


def _ran(run: Run, draft: NewThreadState, by: Any) -> list[NewEvent]:
    """Return the line by which the checkpoints of a run of the engine are looked for,
    in a list that is empty if there is one already.
    """
    name = draft.engine_run
    if not name or thread_reader.has_run(run, name):
        return []
    return [NewEvent("thread_ran", task=name, actor=_name_of(by))]


def _saved_draft(row_id: UUID, draft: NewThreadState, by: Any) -> NewEvent:
    return _saved(row_id, draft.namespace, draft.id, draft.engine_run, by=by)


def _saved(
    row_id: UUID, namespace: str, id_: str, engine_run: str, *, by: Any
) -> NewEvent:
    facts = {"checkpoint": str(row_id), "namespace": namespace}
    if engine_run:
        facts["engine_run"] = engine_run
    return NewEvent(
        "thread_saved",
        facts,
        node=place_of(namespace),
        task=id_,
        actor=_name_of(by),
    )


def _save_writes(
    run: Run, namespace: str, id_: str, writes: Sequence[ThreadWrite], by: Any
) -> None:
    stored = thread_reader.writes_at(run, place_of(namespace), id_)
    new_writes = []
    for write in writes:
        earlier = stored.get((write.task, write.position))
        replaces = write.position < 0 and earlier != write
        if earlier is None or replaces:
            new_writes.append(write)
    if not new_writes:
        return
    facts = {"namespace": namespace, "values": writes_to_json(new_writes)}
    event = NewEvent(
        "thread_written",
        facts,
        node=place_of(namespace),
        task=id_,
        actor=_name_of(by),
    )
    locked_run.append_locked(run, [event], at=timezone.now())


def _draft_of(point: ThreadState) -> NewThreadState:
    """Return a saved checkpoint as a draft that sets all its values."""
    versions = {channel: blob.version for channel, blob in point.blobs.items()}
    return NewThreadState(
        point.namespace,
        point.id,
        point.parent,
        point.checkpoint,
        point.metadata,
        versions,
        frozenset(versions),
        point.blobs.get,
        engine_run=point.engine_run,
    )


def _name_of(by: Any) -> str:
    if by is None:
        return ""
    return str(by.get_username())
