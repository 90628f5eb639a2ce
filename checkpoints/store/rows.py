"""`CheckpointStore`: the eight verbs over rows of the database and a payload backend.

Low level: people start, fork and clean up runs by `orchestrator.runs` and by retention. The history of a run that has a
row is its workers' to write; here it can be read and forked. What is saved here belongs to runs without a row.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from checkpoints import payloads
from checkpoints.core import records
from checkpoints.core.alias import parsed
from checkpoints.core.arguments import checked_number, checked_text
from checkpoints.core.ids import uuid7
from checkpoints.core.records import About, Snapshot, State, Stored
from checkpoints.event_log import LogEnd
from checkpoints.ledger import checkpoint_rows, reader
from checkpoints.ledger.checkpoint_rows import NewCheckpoint, Payload, RunHeader
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.payloads import PayloadBackend
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine import registry
from orchestrator.engine.errors import Erased, UnknownThing, WrongStatus
from orchestrator.engine.patch import patched

_UNREAD = ("change", "snapshot", "seal", "snapshot_seal")
_META = [field.name for field in Checkpoint._meta.concrete_fields if field.name not in _UNREAD]


MOST_TEXT = 10_000


class CheckpointStore:
    """Keeps checkpoints as rows, their bytes in a backend: one of the settings, or one's own, known here by `name`."""

    def __init__(self, payloads: str | PayloadBackend | None = None, *, name: str = "") -> None:
        self._backend = _named(payloads, name)

    def save(
        self,
        run: UUID | str,
        state: Mapping[str, Any],
        *,
        graph: str = "",
        version: str = "",
        fingerprint: str = "",
        node: str | Sequence[str] = "",
        superstep: int | None = None,
        id: UUID | str | None = None,
    ) -> Stored:
        """Keep a state as the newest checkpoint of a run that has no row; again with the same `id`, it is one row.
        Raises `InvalidValue` naming what cannot be kept, `KeyConflict` where the id is another checkpoint's,
        `WrongStatus` for a run that has a row, `SaveFailed`.
        """
        checked, of, own = records.checked_state(state), _run_id(run), records.checkpoint_id(id)
        about = About(graph, version, fingerprint, node, superstep)
        _must_be_free(of)
        while True:
            if own is not None and Checkpoint.objects.filter(id=own).exists():
                return records.saved_before(self.get(own), of, checked)
            try:
                return self._save(of, checked, about, own or uuid7())
            except IntegrityError:
                # Somebody else saved at the same moment and has the seq, or the id; the next seq is free, or his again.
                continue

    def get(self, checkpoint: UUID | str) -> Snapshot:
        """A checkpoint by id or alias. Raises `UnknownThing`, `TamperedRow`, `WrongKey`. Two queries for an id."""
        id = _as_id(checkpoint)
        rows = reader.range_of(_found(checkpoint).id if id is None else id)
        if not rows or not rows[-1].kept:
            raise records.unknown(checkpoint)
        return _loaded(rows)

    def load(self, run: UUID | str, node: str | None = None, superstep: int | None = None) -> Snapshot:
        """The newest checkpoint of a run: of those that a node made, or of a superstep. Raises as `get` does."""
        rows = _of(_run_id(run))
        if superstep is not None:
            checked_number(superstep, "superstep")
        for row in (rows if superstep is None else rows.filter(superstep=superstep)).iterator(chunk_size=100):
            if node is None or node in _nodes(row):
                return _loaded(reader.range_of(row.id))
        raise UnknownThing(f"run {run} has no such checkpoint", run=str(run), node=node, superstep=superstep)

    def latest(self, run: UUID | str) -> Stored | None:
        """The newest checkpoint of a run, without its state; None where it has none."""
        row = _of(_run_id(run)).first()
        return _meta(row) if row else None

    def list(
        self,
        graph: str | None = None,
        run: UUID | str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
        after: UUID | str | None = None,
        ascending: bool = False,
    ) -> Sequence[Stored]:
        """Metadata of up to `limit` checkpoints, newest first, or oldest first (`ascending`); those that come before
        another one, or after one, where it is named.

        No payload is read. Raises `InvalidValue` for a limit that is none, `UnknownThing` for a `before` or `after`
        that is not there.
        """
        most = records.checked_limit(limit)
        if graph is not None:
            checked_text(graph, "graph", most=MOST_TEXT)
        rows, place = (_of(_run_id(run)), "seq") if run is not None else (_rows(), "id")
        for end, way in ((before, "lt"), (after, "gt")):
            if end is not None:
                rows = rows.filter(**{f"{place}__{way}": getattr(_found(end), place)})
        rows = (rows if graph is None else rows.filter(graph=graph)).order_by(place if ascending else f"-{place}")
        return [_meta(row) for row in rows[:most]]

    def delete(self, checkpoint: UUID | str) -> None:
        """Forget a checkpoint. One that is not there is no error. Raises `WrongStatus` for one of a run with a row, and
        for a fork that was forked.
        """
        row = _find(checkpoint)
        if row is not None:
            _must_be_free(row.run_id)
            _remove(Checkpoint.objects.filter(id=row.id))

    def clear(self, run: UUID | str) -> int:
        """Forget all checkpoints of a run. Gives how many there were. Raises `WrongStatus` for a run with a row, and
        for a fork that was forked.
        """
        id = _run_id(run)
        _must_be_free(id)
        return _remove(Checkpoint.objects.filter(run=id))

    def fork(self, checkpoint: UUID | str, patch: Mapping[str, Any] | None = None) -> Stored:
        """A new run that begins with this checkpoint's state, patched: {partition: merge patch or operations}.

        It has no row until it is resumed. Raises `UnknownThing`, `InvalidValue` naming what does not fit the graph,
        where that is registered here, `SaveFailed`, and `Erased`.
        """
        row = _found(checkpoint)
        own = Run.objects.filter(id=row.run_id).first()
        _require_unerased(own)
        document = _document(reader.range_of(row.id), own)
        origin = own or _origin(document)
        before = {name: document[name] for name in ("scratch", "artifacts")}
        state = patched(before, patch, graph=registry.find_graph(row.fingerprint)) if patch else before
        about = _lineage(row, document, origin) | {"patched": _changed(before, state)}
        versions, open_ = dict.fromkeys(document["versions"], 0), {**document["open"], "stored": about}
        payload = Payload(state, document["diagnostics"], document["frontier"], versions, open_)
        protection = protection_of(origin) if origin else Protection()
        place = RunHeader(uuid7(), row.graph, row.version, row.fingerprint, 1, protection, self._backend)
        with transaction.atomic():
            # Retention removes under this lock, and leaves alone what was forked.
            for held in Run.objects.select_for_update().filter(id=row.run_id).only("id", "key", "erasure"):
                _require_unerased(held)
            # Whoever forgets what has no run waits for this row.
            if _rows().select_for_update(of=("self",)).filter(id=row.id).first() is None:
                raise records.unknown(checkpoint)
            return _inserted(place, NewCheckpoint(Source.FORK, payload, row.superstep), seq=0, parent=row)

    def _save(self, run: UUID, state: State, about: About, id: UUID) -> Stored:
        before = _of(run).first()
        seq, number = (before.seq + 1, before.superstep + 1) if before else (0, 0)
        source = Source.MANUAL if before else Source.INPUT
        parts = {name: state[name] for name in ("scratch", "artifacts")}
        payload = Payload(parts, state["diagnostics"], {}, open={"stored": {"input": state["input"]}})
        number = number if about.superstep is None else about.superstep
        point = NewCheckpoint(source, payload, number, nodes=[{"node": node} for node in about.nodes])
        place = RunHeader(run, about.graph, about.version, about.fingerprint, 1, Protection(), self._backend)
        return _inserted(place, point, seq=seq, parent=before, id=id)


def _named(given: str | PayloadBackend | None, name: str) -> str:
    if given is None or isinstance(given, str):
        return payloads.chosen(given)
    return payloads.lend(given, name or f"own-{type(given).__name__}"[:60])


def _inserted(
    place: RunHeader, point: NewCheckpoint, *, seq: int, parent: Checkpoint | None, id: UUID | None = None
) -> Stored:
    change, end, at = checkpoint_rows.full_delta(point, place.protection), LogEnd(0, ""), timezone.now()
    row, _ = checkpoint_rows.standalone_row(place, id or uuid7(), point, change, seq=seq, parent=parent, end=end, at=at)
    with transaction.atomic():
        row.save(force_insert=True)
    return _meta(row)


def _remove(rows: "QuerySet[Checkpoint]") -> int:
    """Rows first: bytes without a row do not exist for readers, a row without its bytes would be a lost payload."""
    with transaction.atomic():
        gone = list(rows.select_for_update(of=("self",)).order_by("seq"))
        _require_no_forks(gone)
        rows.delete()
        for row in gone:
            transaction.on_commit(partial(checkpoint_rows.delete_payloads, row))
    return len(gone)


def _require_no_forks(gone: Sequence[Checkpoint]) -> None:
    """Raise `WrongStatus` where one of these forks was forked: by it alone the origin of both is known to retention."""
    forks = [row.id for row in gone if row.source == Source.FORK]
    if forks and (below := Checkpoint.objects.filter(source=Source.FORK, parent__in=forks).order_by().first()):
        message = f"fork {below.run_id} comes from its origin by this one; clear that first"
        raise WrongStatus(message, run=str(below.run_id))


def _rows() -> "QuerySet[Checkpoint]":
    # In an order of its own: the model's would join the runs, and what is saved here has none.
    return Checkpoint.objects.filter(kept=True).only(*_META).order_by("id")


def _of(run: UUID) -> "QuerySet[Checkpoint]":
    return _rows().filter(run=run).order_by("-seq")


def _run_id(run: UUID | str) -> UUID:
    """Where a run has the key, that run's id."""
    id = records.run_id(run)
    found = Run.objects.filter(key=run).values_list("id", flat=True).first() if isinstance(run, str) else None
    return found or id


def _must_be_free(run: UUID) -> None:
    if Run.objects.filter(id=run).exists():
        why = "its workers write its history, and retention removes it; it can be forked"
        raise WrongStatus(f"run {run} has a row: {why}", run=str(run))


def _require_unerased(run: Run | None) -> None:
    if run is not None and run.erasure is not None:
        message = f"values of run {run.key} were erased, so nothing can begin at its checkpoints"
        raise Erased(message, run=str(run.id))


def _found(checkpoint: UUID | str) -> Checkpoint:
    row = _find(checkpoint)
    if row is None:
        raise records.unknown(checkpoint)
    return row


def _as_id(checkpoint: UUID | str) -> UUID | None:
    try:
        return checkpoint if isinstance(checkpoint, UUID) else UUID(str(checkpoint))
    except ValueError:
        return None


def _find(checkpoint: UUID | str) -> Checkpoint | None:
    alias = parsed(str(checkpoint))
    if alias is None:
        id = _as_id(checkpoint)
        return _rows().filter(id=id).first() if id is not None else None
    rows = _of(_run_id(alias.key))
    if alias.seq is not None:
        return rows.filter(seq=alias.seq).first()
    line = alias.line
    if line is None:
        line = Run.objects.filter(key=alias.key).values_list("line", flat=True).first() or 1
    return rows.filter(superstep=alias.superstep or 0, line=line).first()


def _loaded(rows: Sequence[Checkpoint]) -> Snapshot:
    run = Run.objects.filter(id=rows[-1].run_id).first() if rows else None
    document = _document(rows, run)
    state = {name: document[name] for name in ("scratch", "artifacts", "diagnostics")}
    return Snapshot(_meta(rows[-1]), {"input": _input(run, document), **state})


def _document(rows: Sequence[Checkpoint], run: Run | None) -> dict[str, Any]:
    """Proven, for a fork seals it anew: what was tampered with must not come out of it as if it were sound."""
    if not rows:
        raise UnknownThing("the checkpoint has been deleted meanwhile")
    # A fork without a row is protected like the run that it comes from.
    run = run or _origin(reader.folded(reader.parts_of(rows)))
    return reader.proven(rows, protection_of(run) if run else Protection())


def _input(run: Run | None, document: dict[str, Any]) -> dict[str, Any]:
    """A fork carries its input; that of other rows is their run's."""
    about = document["open"].get("stored")
    found: dict[str, Any] = about["input"] if about is not None else (read_value(run, "input") if run else {})
    return found


def _origin(document: dict[str, Any]) -> Run | None:
    """The run with a row that a checkpoint without one comes from: in forks of forks, that of the first origin."""
    first = document["open"].get("stored", {}).get("run")
    return Run.objects.filter(id=first).first() if first else None


def _lineage(row: Checkpoint, document: dict[str, Any], origin: Run | None) -> dict[str, Any]:
    """What a fork knows of its origin: run, seq where it left it, input, and what earlier forks on the way patched."""
    about = document["open"].get("stored", {})
    own = origin is not None and origin.id == row.run_id
    return {
        "input": _input(origin if own else None, document),
        "run": str(origin.id) if origin else None,
        "seq": row.seq if own else about.get("seq", 0),
        "before": [] if own else [*about.get("before", []), *about.get("patched", [])],
    }


def _changed(before: State, after: State) -> list[str]:
    """The channels that a patch changed."""
    return sorted(
        name
        for part in before
        for name in before[part].keys() | after[part].keys()
        if before[part].get(name) != after[part].get(name)
    )


def _nodes(row: Checkpoint) -> tuple[str, ...]:
    return tuple(entry["node"] for entry in row.nodes)


def _meta(row: Checkpoint) -> Stored:
    return Stored(
        id=row.id,
        run=row.run_id,
        seq=row.seq,
        superstep=row.superstep,
        line=row.line,
        source=str(row.source),
        parent=row.parent,
        graph=row.graph,
        version=row.version,
        fingerprint=row.fingerprint,
        nodes=_nodes(row),
        created_at=row.created_at,
        stored_size=row.stored_size,
        state_size=row.state_size,
    )
