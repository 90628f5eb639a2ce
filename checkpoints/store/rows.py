"""`CheckpointStore`: the eight verbs over rows of the database and a payload backend.

Low level: people start and fork runs with `orchestrator.runs`, and retention cleans
them up. Only its workers write the history of a run that has a row; here it can be read
and forked. Checkpoints that are saved here belong to runs without a row.
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
from orchestrator.engine.travel.patch import patched

_UNREAD = ("change", "snapshot", "seal", "snapshot_seal")
_META = [
    field.name
    for field in Checkpoint._meta.concrete_fields
    if field.name not in _UNREAD
]
MOST_TEXT = 10_000
"""The most characters of a graph's name that a list is filtered by."""
_STATE = ("scratch", "artifacts")


class CheckpointStore:
    """A store of checkpoints as rows, with their bytes in a backend: one of the
    settings, or the caller's own, registered under `name`.
    """

    def __init__(
        self, payloads: str | PayloadBackend | None = None, *, name: str = ""
    ) -> None:
        self._backend = _backend_name(payloads, name)

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
        """Save a state as the newest checkpoint of a run that has no row; a repeated
        call with the same `id` makes no second row. Raises `InvalidValue` naming what
        cannot be saved, `KeyConflict` if the id is another checkpoint's, `WrongStatus`
        for a run that has a row, `SaveFailed`.
        """
        checked = records.checked_state(state)
        run_id = _run_id(run)
        given_id = records.checkpoint_id(id)
        about = About(graph, version, fingerprint, node, superstep)
        _require_no_row(run_id)
        while True:
            # A caller that got no answer repeats the call with the same id.
            if given_id and Checkpoint.objects.filter(id=given_id).exists():
                return records.saved_before(self.get(given_id), run_id, checked)
            try:
                return self._save(run_id, checked, about, given_id or uuid7())
            except IntegrityError:
                # Another caller saved at the same moment and has the seq, or the id.
                # The next attempt takes a later seq, or finds the id.
                continue

    def get(self, checkpoint: UUID | str) -> Snapshot:
        """Return a checkpoint by id or alias. Raises `UnknownThing`, `TamperedRow`,
        `WrongKey`. Two queries for an id.
        """
        checkpoint_id = _as_id(checkpoint)
        if checkpoint_id is None:
            checkpoint_id = _require(checkpoint).id
        rows = reader.range_of(checkpoint_id)
        if not rows or not rows[-1].kept:
            raise records.unknown(checkpoint)
        return _loaded(rows)

    def load(
        self, run: UUID | str, node: str | None = None, superstep: int | None = None
    ) -> Snapshot:
        """Return the newest checkpoint of a run: of those that a node made, or of a
        superstep. Raises as `get` does.
        """
        rows = _rows_of_run(_run_id(run))
        if superstep is not None:
            checked_number(superstep, "superstep")
            rows = rows.filter(superstep=superstep)
        for row in rows.iterator(chunk_size=100):
            if node is None or node in _nodes(row):
                return _loaded(reader.range_of(row.id))
        raise UnknownThing(
            f"run {run} has no such checkpoint",
            run=str(run),
            node=node,
            superstep=superstep,
        )

    def latest(self, run: UUID | str) -> Stored | None:
        """Return the newest checkpoint of a run, without its state, if it has one."""
        row = _rows_of_run(_run_id(run)).first()
        if row is None:
            return None
        return _meta(row)

    def list(
        self,
        graph: str | None = None,
        run: UUID | str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
        after: UUID | str | None = None,
        ascending: bool = False,
    ) -> Sequence[Stored]:
        """Return metadata of up to `limit` checkpoints, newest first, or oldest first
        (`ascending`); only those before or after another one, where it is named.

        No payload is read. Raises `InvalidValue` for an invalid limit, `UnknownThing`
        for a `before` or `after` that does not exist.
        """
        most = records.checked_limit(limit)
        if graph is not None:
            checked_text(graph, "graph", most=MOST_TEXT)
        # Ids rise with time, but the seq is the order in which a run was written.
        rows = _rows()
        order = "id"
        if run is not None:
            rows = _rows_of_run(_run_id(run))
            order = "seq"
        if before is not None:
            rows = rows.filter(**{f"{order}__lt": getattr(_require(before), order)})
        if after is not None:
            rows = rows.filter(**{f"{order}__gt": getattr(_require(after), order)})
        if graph is not None:
            rows = rows.filter(graph=graph)
        if not ascending:
            order = f"-{order}"
        return [_meta(row) for row in rows.order_by(order)[:most]]

    def delete(self, checkpoint: UUID | str) -> None:
        """Delete a checkpoint. A missing one is no error. Raises `WrongStatus` for one
        of a run with a row, and for a fork that was forked.
        """
        row = _find(checkpoint)
        if row is None:
            return
        _require_no_row(row.run_id)
        _remove(Checkpoint.objects.filter(id=row.id))

    def clear(self, run: UUID | str) -> int:
        """Delete all checkpoints of a run, and return how many there were. Raises
        `WrongStatus` for a run with a row, and for a fork that was forked.
        """
        run_id = _run_id(run)
        _require_no_row(run_id)
        return _remove(Checkpoint.objects.filter(run=run_id))

    def fork(
        self, checkpoint: UUID | str, patch: Mapping[str, Any] | None = None
    ) -> Stored:
        """Begin a new run with this checkpoint's state, patched: {partition: merge
        patch or operations}.

        It has no row until it is resumed. Raises `UnknownThing`, `InvalidValue` naming
        what does not fit the graph, where that is registered here, `SaveFailed`, and
        `Erased`.
        """
        row = _require(checkpoint)
        own_run = Run.objects.filter(id=row.run_id).first()
        _require_unerased(own_run)
        document = _document(reader.range_of(row.id), own_run)
        origin = own_run or _origin(document)
        before = {name: document[name] for name in _STATE}
        state = before
        if patch:
            graph = registry.find_graph(row.fingerprint)
            state = patched(before, patch, graph=graph)

        # Without a row the fork itself carries where it comes from.
        lineage = _lineage(row, document, origin)
        lineage["patched"] = _changed_channels(before, state)
        # In the new run its first row, of seq 0, is the last that set each channel.
        payload = Payload(
            state,
            document["diagnostics"],
            document["frontier"],
            dict.fromkeys(document["versions"], 0),
            {**document["open"], "stored": lineage},
        )
        header = RunHeader(
            uuid7(),
            row.graph,
            row.version,
            row.fingerprint,
            1,
            _protection_of(origin),
            self._backend,
        )
        with transaction.atomic():
            _lock_against_removal(row, checkpoint)
            return _inserted(
                header,
                NewCheckpoint(Source.FORK, payload, row.superstep),
                seq=0,
                parent=row,
            )

    def _save(
        self,
        run: UUID,
        state: State,
        about: About,
        id: UUID,
    ) -> Stored:
        """Save a state after the newest checkpoint of a run. Raises `IntegrityError` if
        another caller did so at the same moment.
        """
        before = _rows_of_run(run).first()
        seq = 0
        next_superstep = 0
        source = Source.INPUT
        if before is not None:
            seq = before.seq + 1
            next_superstep = before.superstep + 1
            source = Source.MANUAL
        superstep = about.superstep
        if superstep is None:
            superstep = next_superstep

        # Without a row for the run, its checkpoints carry its input.
        payload = Payload(
            {name: state[name] for name in _STATE},
            state["diagnostics"],
            {},
            open={"stored": {"input": state["input"]}},
        )
        new_checkpoint = NewCheckpoint(
            source,
            payload,
            superstep,
            nodes=[{"node": node} for node in about.nodes],
        )
        header = RunHeader(
            run,
            about.graph,
            about.version,
            about.fingerprint,
            1,
            Protection(),
            self._backend,
        )
        return _inserted(header, new_checkpoint, seq=seq, parent=before, id=id)


def _backend_name(
    backend: str | PayloadBackend | None,
    name: str,
) -> str:
    """Return the name of a backend; the caller's own is registered under it."""
    if backend is None or isinstance(backend, str):
        return payloads.chosen(backend)
    return payloads.lend(backend, name or f"own-{type(backend).__name__}"[:60])


def _lock_against_removal(row: Checkpoint, checkpoint: UUID | str) -> None:
    """Lock a checkpoint that is being forked, in the caller's transaction. Raises
    `UnknownThing`, with the id or alias `checkpoint`, where it was deleted in the
    meantime, and `Erased`.
    """
    # Retention removes under this lock, and leaves checkpoints alone that were forked.
    runs = Run.objects.select_for_update().filter(id=row.run_id)
    for run in runs.only("id", "key", "erasure"):
        # Once more under the lock: an erasure may have begun since the first look.
        _require_unerased(run)
    # If the run has no row, `delete` and `clear` wait for the checkpoint's row.
    locked = _rows().select_for_update(of=("self",)).filter(id=row.id)
    if locked.first() is None:
        raise records.unknown(checkpoint)


def _inserted(
    header: RunHeader,
    new_checkpoint: NewCheckpoint,
    *,
    seq: int,
    parent: Checkpoint | None,
    id: UUID | None = None,
) -> Stored:
    """Insert a checkpoint of a run without a row, and return its metadata."""
    delta = checkpoint_rows.full_delta(new_checkpoint, header.protection)
    row, _ = checkpoint_rows.standalone_row(
        header,
        id or uuid7(),
        new_checkpoint,
        delta,
        seq=seq,
        parent=parent,
        end=LogEnd(0, ""),
        at=timezone.now(),
    )
    # In a savepoint: the caller goes on after an `IntegrityError`.
    with transaction.atomic():
        row.save(force_insert=True)
    return _meta(row)


def _remove(rows: "QuerySet[Checkpoint]") -> int:
    """Delete the rows, then their bytes, and return how many rows there were."""
    with transaction.atomic():
        removed = list(rows.select_for_update(of=("self",)).order_by("seq"))
        _require_no_forks(removed)
        rows.delete()
        # For readers, bytes without a row do not exist, but a row without its bytes
        # would be a lost payload.
        for row in removed:
            transaction.on_commit(partial(checkpoint_rows.delete_payloads, row))
    return len(removed)


def _require_no_forks(rows: Sequence[Checkpoint]) -> None:
    """Raise `WrongStatus` if one of these rows is a fork that was forked: retention
    finds the origin of the other fork only through it.
    """
    forks = [row.id for row in rows if row.source == Source.FORK]
    if not forks:
        return
    forked = Checkpoint.objects.filter(source=Source.FORK, parent__in=forks)
    below = forked.order_by().first()
    if below is not None:
        raise WrongStatus(
            f"fork {below.run_id} comes from its origin by this one; clear that first",
            run=str(below.run_id),
        )


def _rows() -> "QuerySet[Checkpoint]":
    """Return the kept checkpoints, without payloads and seals."""
    # Ordered explicitly: the model's order would join the runs, and checkpoints that
    # are saved here have none.
    return Checkpoint.objects.filter(kept=True).only(*_META).order_by("id")


def _rows_of_run(run: UUID) -> "QuerySet[Checkpoint]":
    """Return the kept checkpoints of a run, newest first."""
    return _rows().filter(run=run).order_by("-seq")


def _run_id(run: UUID | str) -> UUID:
    """Return the id of the run that has this key; else the id that the text stands
    for.
    """
    run_id = records.run_id(run)
    if isinstance(run, str):
        rows = Run.objects.filter(key=run)
        return rows.values_list("id", flat=True).first() or run_id
    return run_id


def _require_no_row(run: UUID) -> None:
    """Raise `WrongStatus` for a run that has a row."""
    if Run.objects.filter(id=run).exists():
        raise WrongStatus(
            f"run {run} has a row: its workers write its history, and retention "
            "removes it; it can be forked",
            run=str(run),
        )


def _require_unerased(run: Run | None) -> None:
    """Raise `Erased` for a run from which values were erased."""
    if run is not None and run.erasure is not None:
        raise Erased(
            f"values of run {run.key} were erased, "
            "so nothing can begin at its checkpoints",
            run=str(run.id),
        )


def _require(checkpoint: UUID | str) -> Checkpoint:
    """Return the kept row of a checkpoint. Raises `UnknownThing`."""
    row = _find(checkpoint)
    if row is None:
        raise records.unknown(checkpoint)
    return row


def _as_id(checkpoint: UUID | str) -> UUID | None:
    """Return the id that is given, as such or as text; None for an alias."""
    if isinstance(checkpoint, UUID):
        return checkpoint
    try:
        return UUID(str(checkpoint))
    except ValueError:
        return None


def _find(checkpoint: UUID | str) -> Checkpoint | None:
    """Return the kept row of a checkpoint by id or alias, if there is one."""
    alias = parsed(str(checkpoint))
    if alias is None:
        checkpoint_id = _as_id(checkpoint)
        if checkpoint_id is None:
            return None
        return _rows().filter(id=checkpoint_id).first()
    rows = _rows_of_run(_run_id(alias.key))
    if alias.seq is not None:
        return rows.filter(seq=alias.seq).first()
    line = alias.line
    # Without a line, an alias means the run's current one.
    if line is None:
        runs = Run.objects.filter(key=alias.key)
        line = runs.values_list("line", flat=True).first() or 1
    return rows.filter(superstep=alias.superstep or 0, line=line).first()


def _loaded(rows: Sequence[Checkpoint]) -> Snapshot:
    """Return the checkpoint of the last of these rows, which are its range."""
    run = None
    if rows:
        run = Run.objects.filter(id=rows[-1].run_id).first()
    document = _document(rows, run)
    state = {
        "input": _input(run, document),
        "scratch": document["scratch"],
        "artifacts": document["artifacts"],
        "diagnostics": document["diagnostics"],
    }
    return Snapshot(_meta(rows[-1]), state)


def _document(rows: Sequence[Checkpoint], run: Run | None) -> dict[str, Any]:
    """Return the content of a checkpoint, verified: a fork seals it again, and a
    tampered one must not come out of that as if it were sound.
    """
    if not rows:
        raise UnknownThing("the checkpoint has been deleted meanwhile")
    # A fork without a row is protected like the run that it comes from.
    run = run or _origin(reader.folded(reader.parts_of(rows)))
    return reader.proven(rows, _protection_of(run))


def _protection_of(run: Run | None) -> Protection:
    """Return the protection of a run's rows; that of plain rows for no run."""
    if run is None:
        return Protection()
    return protection_of(run)


def _input(run: Run | None, document: dict[str, Any]) -> dict[str, Any]:
    """Return the input: a fork carries its own; that of other rows is their run's."""
    stored = document["open"].get("stored")
    own_input: dict[str, Any] = {}
    if stored is not None:
        own_input = stored["input"]
    elif run is not None:
        own_input = read_value(run, "input")
    return own_input


def _origin(document: dict[str, Any]) -> Run | None:
    """Return the run with a row from which a checkpoint without one comes: for forks of
    forks, that of the first origin.
    """
    first = document["open"].get("stored", {}).get("run")
    if not first:
        return None
    return Run.objects.filter(id=first).first()


def _lineage(
    row: Checkpoint,
    document: dict[str, Any],
    origin: Run | None,
) -> dict[str, Any]:
    """Return the facts that a fork records about its origin: the run, the seq at which
    the fork left it, the input, and the channels that earlier forks on the way patched.
    """
    if origin is not None and origin.id == row.run_id:
        return {
            "input": _input(origin, document),
            "run": str(origin.id),
            "seq": row.seq,
            "before": [],
        }
    # A fork of a fork passes on what that one recorded.
    stored = document["open"].get("stored", {})
    return {
        "input": _input(None, document),
        "run": str(origin.id) if origin else None,
        "seq": stored.get("seq", 0),
        "before": [*stored.get("before", []), *stored.get("patched", [])],
    }


def _changed_channels(before: State, after: State) -> list[str]:
    """Return the channels that a patch changed."""
    changed: list[str] = []
    for partition, values_before in before.items():
        values_after = after[partition]
        for channel in values_before.keys() | values_after.keys():
            if values_before.get(channel) != values_after.get(channel):
                changed.append(channel)
    return sorted(changed)


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
