"""A run's checkpoints, the state at each and what it changed, the results and held
writes at that time, and the run's log.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet

from checkpoints import lines
from checkpoints.core.alias import parsed
from checkpoints.core.arguments import checked_number
from checkpoints.core.diff import differences, written
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.core.state_paths import STATE, StatePath, nodes_that_ran
from checkpoints.core.tombstone import agrees
from checkpoints.db import query_cache
from checkpoints.db import rows as db_rows
from checkpoints.db.rows import attributes_of
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, TaskResult
from checkpoints.models.run import TIES
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.seal_fault import SealFault
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError, TamperedRow, UnknownThing
from orchestrator.engine.values import canonical

PARTITIONS = ("input", "scratch", "artifacts", "diagnostics")
_BY_ADDRESS = ("node", "visit", "index", "position")
_LISTED = attributes_of(Checkpoint, ("change", "snapshot"))
_FURTHER_OF_RUN = attributes_of(Run, run_row.SEALED)
_SHOWN_OF_RUN = ("label", "status", "origin_checkpoint", "erasure")
_LAST = 2**31 - 1
"""The greatest number that a checkpoint can have."""
_WITHOUT_WRITES = frozenset(
    {"held", "rejected", "skipped", "error", "diverged", "failed", "unknown", "later"}
)
"""Outcomes of nodes that a checkpoint lists and that set nothing in it."""
_REVISING = ("decision_signed", "write_rebased", "texts_changed")
"""Types of events that may record another revision of a write."""


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two states. The path begins below the partition.

    `before` is None for what was added, `after` for what was removed. `set_by` names
    the nodes of the checkpoint that last set the path's channel, empty if none did.
    """

    partition: str
    path: str
    kind: str
    before: Any
    after: Any
    set_by: str = ""


def checkpoint_lines(run: Run) -> "QuerySet[Checkpoint]":
    """Return the kept checkpoints of a run, newest first, with what lists show of them.
    Each has this very object as its run.
    """
    rows: QuerySet[Checkpoint] = run.checkpoints.filter(kept=True)
    return rows.defer("change", "snapshot").order_by("-seq")


def list_checkpoints(
    run_id: UUID | str,
    *,
    limit: int = 200,
    before: int | None = None,
) -> list[Checkpoint]:
    """Return up to `limit` kept checkpoints below seq `before` (None: from the newest
    on), newest first. One query.

    They have one run in common, of which id, key, line and protection were read.
    """
    run_id = uuid_of(run_id, "run")
    most = checked_number(limit, "limit", most=_LAST)
    last = _LAST
    if before is not None:
        last = checked_number(before, "before", least=-_LAST) - 1
    values = [run_id, min(last, _LAST), most]
    names = (*_LISTED, "key", "now", "encrypted", "hash_key")
    rows: list[Any] = db_rows.fetch_rows(Checkpoint, names, _list_sql(), values)
    if not rows:
        return []
    # The rows share one run, so that its attributes take no further query.
    run = _run_of_listed(run_id, rows[0])
    for row in rows:
        row._state.fields_cache["run"] = run
    return rows


def _run_of_listed(run_id: UUID, row: Any) -> Run:
    """Return the run, from the columns that were read of it with a checkpoint."""
    stored = {
        "id": run_id,
        "key": row.key,
        "line": row.now,
        "encrypted": row.encrypted,
        "hash_key": row.hash_key,
    }
    return db_rows.new_row(Run, stored)


@cache
def _list_sql() -> str:
    """Return the query as one text, which is built once."""
    table = Checkpoint._meta.db_table
    runs = Run._meta.db_table
    columns = db_rows.named_columns(Checkpoint, _LISTED, "c")
    joined = f"FROM {table} c JOIN {runs} r ON r.id = c.run_id"
    condition = "WHERE c.run_id = %s AND c.kept AND c.seq <= %s"
    ordered = f"{condition} ORDER BY c.seq DESC LIMIT %s"
    return (
        f"SELECT {columns}, r.key, r.line, r.encrypted, r.hash_key {joined} {ordered}"
    )


def get_checkpoint(id_or_alias: UUID | str) -> Checkpoint:
    """Return the kept checkpoint with that id or alias, with its run. Its payload is
    read when it is needed.

    Aliases: `<key>:initial`, `<key>:step-<n>` (the newest of superstep n on the current
    line), `<key>:line-<l>:step-<n>`, `<key>:at-<seq>`. Raises `UnknownThing`.
    """
    checkpoint = find_checkpoint(id_or_alias)
    if checkpoint is None:
        raise unknown_thing("checkpoint", id_or_alias)
    return checkpoint


def open_checkpoint(checkpoint_id: UUID | str) -> Checkpoint:
    """Return the kept checkpoint with that id, with its run and its payload, verified.
    One query. Raises `UnknownThing`, `TamperedRow`, `WrongKey`.
    """
    loaded = _load(uuid_of(checkpoint_id, "checkpoint"), run_columns=_SHOWN_OF_RUN)
    loaded.row.run = loaded.run
    # `snapshot_of` reads it from here and needs no further query.
    loaded.row.__dict__["loaded"] = loaded
    return loaded.row


def read_checkpoint(id_or_alias: UUID | str) -> Checkpoint | None:
    """Return the checkpoint as `get_checkpoint` does, with the rows of its payload,
    which `snapshot_of` verifies without a further query; None if there is none. One
    query for an id, two for an alias.
    """
    checkpoint_id = _id_in(str(id_or_alias))
    if checkpoint_id is None:
        row = _find_by_alias(str(id_or_alias))
        if row is None:
            return None
        checkpoint_id = row.id
    rows, run = reader.range_with_run(checkpoint_id, _FURTHER_OF_RUN)
    # A fork that a store made has no run yet.
    if run is None or run.id is None or not rows[-1].kept:
        return None
    checkpoint = rows[-1]
    checkpoint.run = run
    checkpoint.__dict__["range"] = rows
    return checkpoint


def read_step(
    run: Run, listed: Checkpoint, *, with_before: bool = False
) -> Checkpoint | None:
    """Return a listed checkpoint of this run, whose row was read whole, as
    `read_checkpoint` does; with the rows of the state `with_before` it, which `changes`
    compares it with. None if it is gone. One query.
    """
    ids = [listed.id]
    if with_before and listed.parent is not None:
        ids.append(listed.parent)
    ranges = reader.ranges_of(ids)
    rows = ranges.get(listed.id)
    if not rows or not rows[-1].kept:
        return None
    checkpoint = rows[-1]
    checkpoint.run = run
    checkpoint.__dict__["range"] = rows
    # The first checkpoint of a fork comes after one of another run, with another key.
    before = ranges.get(ids[-1], rows)
    if before is not rows and before[-1].kept and before[-1].run_id == run.id:
        checkpoint.__dict__["range_before"] = before
    return checkpoint


def unlisted_setters(
    checkpoint: Checkpoint, listed: Iterable[Checkpoint]
) -> "QuerySet[Checkpoint]":
    """Return the query for the checkpoints that last set each channel at this one, whose
    payload can be opened, but for those that are `listed`; `keep_setters` takes both.
    """
    numbers = set(snapshot_of(checkpoint)["versions"].values())
    return _setters(checkpoint.run_id, numbers - {row.seq for row in listed})


def _setters(run: UUID, numbers: Collection[int]) -> "QuerySet[Checkpoint]":
    rows = Checkpoint.objects.filter(run=run, seq__in=numbers)
    return rows.defer("change", "snapshot")


def keep_setters(checkpoint: Checkpoint, rows: Iterable[Checkpoint]) -> None:
    """Let `changes` take the checkpoints that set channels from these rows."""
    checkpoint.__dict__["setters"] = {row.seq: row for row in rows}


def find_checkpoint(id_or_alias: UUID | str) -> Checkpoint | None:
    """Return the checkpoint as `get_checkpoint` does; None if there is none."""
    text = str(id_or_alias)
    checkpoint_id = _id_in(text)
    if checkpoint_id is None:
        return _find_by_alias(text)
    return _first_with_run(_query_by_id, checkpoint_id) or _find_by_alias(text)


def _id_in(text: str) -> UUID | None:
    """Return the id that a text is; None for any other text."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _find_by_alias(text: str) -> Checkpoint | None:
    alias = parsed(text)
    if alias is None:
        return None
    if alias.superstep is None:
        return _first_with_run(_query_by_seq, alias.key, alias.seq or 0)
    if alias.line is None:
        return _first_with_run(_query_on_current_line, alias.key, alias.superstep)
    return _first_with_run(_query_on_line, alias.key, alias.superstep, alias.line)


def _first_with_run(
    query: query_cache.Query, *values: UUID | int | str
) -> Checkpoint | None:
    rows = query_cache.select_joined(
        Checkpoint, _LISTED, "run", attributes_of(Run), query, *values
    )
    return rows[0] if rows else None


def _query_by_id(checkpoint: UUID) -> "QuerySet[Any, Any]":
    return _kept_with_run(id=checkpoint)


def _query_by_seq(key: str, seq: int) -> "QuerySet[Any, Any]":
    return _kept_with_run(run__key=key, seq=seq)


def _query_on_current_line(key: str, superstep: int) -> "QuerySet[Any, Any]":
    return _kept_with_run(run__key=key, superstep=superstep, line=F("run__line"))


def _query_on_line(key: str, superstep: int, line: int) -> "QuerySet[Any, Any]":
    return _kept_with_run(run__key=key, superstep=superstep, line=line)


def _kept_with_run(**conditions: Any) -> "QuerySet[Any, Any]":
    """Build the query for the newest kept row of these, with its run."""
    columns = query_cache.joined_columns(_LISTED, "run", attributes_of(Run))
    rows = Checkpoint.objects.filter(kept=True, **conditions).order_by("-seq")
    return rows.values_list(*columns)[:1]


def alias_of(checkpoint: Checkpoint) -> str:
    """Return the exact alias of a checkpoint. No query if the checkpoint came from this
    module.
    """
    key = checkpoint.run.key
    if checkpoint.seq == 0:
        return f"{key}:initial"
    return f"{key}:at-{checkpoint.seq}"


def aliases(checkpoint: Checkpoint) -> list[str]:
    """Return all aliases that find the checkpoint now, the clearest first. One
    query.
    """
    key = checkpoint.run.key
    line = checkpoint.line
    superstep = checkpoint.superstep
    of_superstep = Checkpoint.objects.filter(
        run=checkpoint.run_id, kept=True, line=line, superstep=superstep
    )
    names = []
    if checkpoint.seq == 0:
        names.append(f"{key}:initial")
    # The aliases of a superstep find the newest of its checkpoints.
    if not of_superstep.filter(seq__gt=checkpoint.seq).exists():
        if line == checkpoint.run.line:
            names.append(f"{key}:step-{superstep}")
        names.append(f"{key}:line-{line}:step-{superstep}")
    names.append(f"{key}:at-{checkpoint.seq}")
    return names


def snapshot_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the whole payload: scratch, artifacts, diagnostics, frontier, versions,
    open. One query, the first time.

    It is verified from the nearest snapshot on. Raises `TamperedRow`, which names the
    row, `WrongKey`.
    """
    return _loaded_of(checkpoint).document


def _loaded_of(checkpoint: Checkpoint) -> "_LoadedCheckpoint":
    """Return the checkpoint with its payload, proven. One query the first time, none
    for a checkpoint that was read with the rows of its payload.
    """
    attributes = checkpoint.__dict__
    if "loaded" not in attributes:
        rows: list[Checkpoint] | None = attributes.pop("range", None)
        if rows is None:
            attributes["loaded"] = _load(checkpoint.id)
        else:
            run = checkpoint.run
            document = reader.proven(rows, protection_of(run))
            attributes["loaded"] = _LoadedCheckpoint(rows[-1], run, document)
    loaded: _LoadedCheckpoint = attributes["loaded"]
    return loaded


def fault_of_run(
    run: Run, *, start: Iterable[RunEvent] | None = None
) -> SealFault | None:
    """Return why a run's row does not verify: by its seal, its input, and the label,
    the facts and the ties in the first event of its log; None if it does. One query,
    none where the caller has read the `start_of_log`.
    """
    if start is None:
        start = start_of_log(run)
    try:
        run_row.input_of(run)
        _verify_start(run, start)
    except CountersignError as error:
        row = str(error.facts.get("row") or sealed_rows.name_of(run))
        return SealFault(error.code, row, error.message)
    return None


def start_of_log(run: Run) -> "QuerySet[RunEvent]":
    """Return the query for the first event of a run's log."""
    return RunEvent.objects.filter(run=run.id, seq=1)


def _verify_start(run: Run, start: Iterable[RunEvent]) -> None:
    """Raise `TamperedRow` where a run's row has another label, facts or ties than the
    first event of its log, and where that event is missing.
    """
    first = next(iter(start), None)
    if first is None:
        # The log of a fork that a store made begins when it is resumed.
        if run.event_seq == 0:
            return
        row = f"{RunEvent._meta.db_table} {run.id} line 1"
        raise TamperedRow(f"{row} is gone", row=row)
    sealed_rows.verify_row(first, protection_of(run))
    recorded = read_value(first, "payload")
    # Logs of older versions do not record them.
    if "ties" not in recorded:
        return
    ties = {}
    for name in TIES:
        value = getattr(run, name)
        if value:
            ties[name] = str(value)
    # The seal of the row covers none of these; that of the event covers its copy.
    stored = {"label": run.label, "facts": run.facts, "ties": ties}
    if all(agrees(recorded[name], stored[name]) for name in stored):
        return
    row = sealed_rows.name_of(run)
    raise TamperedRow(
        f"{row} has another label, facts or ties than it was started with", row=row
    )


def input_of(run: Run) -> Any:
    """Return the run's input. Raises `TamperedRow` if it is not what the run was
    started with, `WrongKey`.
    """
    return run_row.input_of(run)


def state_at(checkpoint_id: UUID | str) -> dict[str, Any]:
    """Return {input, scratch, artifacts, diagnostics} as they were at that checkpoint.
    One query.

    It is verified against its seal. Raises `UnknownThing`, `TamperedRow`, which names
    the row, `WrongKey`; so do all functions that follow here.
    """
    return _load(uuid_of(checkpoint_id, "checkpoint")).state()


def head_state(run_id: UUID | str) -> dict[str, Any]:
    """Return {input, scratch, artifacts, diagnostics} as they are now, recovery point
    or not. Raises `UnknownThing`.
    """
    return _load_head(run_id).state()


def head_document(run_id: UUID | str) -> dict[str, Any]:
    """Return the whole payload as it is now, as `snapshot_of` does. Two queries. Raises
    `UnknownThing`.
    """
    return _load_head(run_id).document


def changes(checkpoint: Checkpoint, *, at_most: int | None = None) -> list[Change]:
    """Return what this checkpoint's state changed against its parent; against nothing
    for the first of a run, and for one whose parent was removed; the first `at_most`
    changes. Three queries, two if `snapshot_of` has read the checkpoint.
    """
    loaded = _loaded_of(checkpoint)
    return list(islice(_changes(_state_before(loaded), loaded), at_most))


def parent_of(checkpoint: Checkpoint) -> UUID | None:
    """Return the checkpoint that `changes` compares with; None if there is none. One
    query.
    """
    if checkpoint.parent is None:
        return None
    parents = Checkpoint.objects.filter(id=checkpoint.parent, kept=True)
    if not parents.exists():
        return None
    return checkpoint.parent


def diff(a: UUID | str, b: UUID | str) -> list[Change]:
    """Return what differs in the state at `b` against that at `a`, of any two runs.
    Three queries. Raises `UnknownThing`.
    """
    before = _load(uuid_of(a, "checkpoint")).state()
    after = _load(uuid_of(b, "checkpoint"))
    return list(_changes(before, after))


@dataclass(frozen=True, slots=True)
class _LoadedCheckpoint:
    """A checkpoint with its run and its verified document."""

    row: Checkpoint
    run: Run
    document: dict[str, Any]

    def input(self) -> Any:
        return run_row.input_of(self.run)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {}
        for name in PARTITIONS:
            # The input is the run's, and no document has it.
            state[name] = self.input() if name == "input" else self.document[name]
        return state


def _load_head(run_id: UUID | str) -> _LoadedCheckpoint:
    """Load the newest checkpoint of a run. Two queries."""
    runs = Run.objects.filter(id=uuid_of(run_id, "run"))
    head = runs.values_list("head", flat=True).first()
    if head is None:
        raise UnknownThing(f"run {run_id} has no checkpoint", run=str(run_id))
    return _load(head, only_kept=False)


def _load(
    checkpoint_id: UUID,
    *,
    only_kept: bool = True,
    run_columns: tuple[str, ...] = (),
) -> _LoadedCheckpoint:
    """Load a checkpoint with its run, of which `run_columns` are read too. One query.
    Raises `UnknownThing`; `TamperedRow` and `WrongKey` if the rows do not match their
    seals.
    """
    rows, run = reader.range_with_run(checkpoint_id, run_columns)
    if run is None or (only_kept and not rows[-1].kept):
        raise UnknownThing(
            f"there is no checkpoint {checkpoint_id}", checkpoint=str(checkpoint_id)
        )
    document = reader.proven(rows, protection_of(run))
    return _LoadedCheckpoint(rows[-1], run, document)


def _state_before(loaded: _LoadedCheckpoint) -> dict[str, Any]:
    """Return the state at the parent; the input alone if there is none."""
    rows: list[Checkpoint] | None = loaded.row.__dict__.pop("range_before", None)
    if rows is not None:
        document = reader.proven(rows, protection_of(loaded.run))
        return _LoadedCheckpoint(rows[-1], loaded.run, document).state()
    if loaded.row.parent is not None:
        # Retention may have removed the parent.
        with suppress(UnknownThing):
            return _load(loaded.row.parent).state()
    return {"input": loaded.input()}


def _changes(before: dict[str, Any], loaded: _LoadedCheckpoint) -> Iterator[Change]:
    """Yield what differs in the state of a checkpoint against the one before."""
    after = loaded.state()
    authors = _authors(loaded)
    for partition in PARTITIONS:
        for difference in differences(before.get(partition, {}), after[partition]):
            author = ""
            # Nodes set channels of these partitions only.
            if partition in STATE:
                author = authors.get(str(difference.path[0]), "")
            yield Change(
                partition,
                path=written(difference.path),
                kind=difference.kind,
                before=difference.before,
                after=difference.after,
                set_by=author,
            )


def _authors(loaded: _LoadedCheckpoint) -> dict[str, str]:
    """Return for each channel the names of the nodes that last set it, in the
    checkpoint that did. One query, none after `keep_setters`.
    """
    versions: dict[str, int] = loaded.document["versions"]
    protection = protection_of(loaded.run)
    rows_by_seq = _setters_by_number(loaded.row, set(versions.values()))
    sealed_rows.verify_rows(rows_by_seq.values(), protection)
    change_bytes = reader.bytes_of(loaded.row, "change", protection)
    own_change = canonical.loads(change_bytes or b"[]")

    authors: dict[str, str] = {}
    for channel, seq in versions.items():
        # Retention may have removed the row that set it.
        names: list[str] = []
        if seq in rows_by_seq:
            row = rows_by_seq[seq]
            names = [entry["node"] for entry in setting_entries(row.nodes)]
        # If supersteps before this one left no row, its change shows which nodes ran in
        # them, unless it is the whole state.
        is_own = seq == loaded.row.seq
        if is_own and channel not in rows_by_seq[seq].changed and own_change:
            names = nodes_that_ran(own_change, StatePath(STATE, (channel,)))
        authors[channel] = ", ".join(names)
    return authors


def _setters_by_number(
    checkpoint: Checkpoint, numbers: set[int]
) -> dict[int, Checkpoint]:
    rows: dict[int, Checkpoint] | None = checkpoint.__dict__.pop("setters", None)
    if rows is None:
        rows = {row.seq: row for row in _setters(checkpoint.run_id, numbers)}
    return {number: rows[number] for number in numbers & rows.keys()}


def setting_entries(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those of a checkpoint's entries of nodes that may have set something in
    it.
    """
    return [entry for entry in nodes if entry.get("outcome") not in _WITHOUT_WRITES]


def held_at(checkpoint: Checkpoint) -> list[PendingWrite]:
    """Return the writes that gates held at that checkpoint, each at its revision of
    that time, by task and position.

    Raises `TamperedRow`, `WrongKey`.
    """
    visits = _waiting_visits(snapshot_of(checkpoint))
    if not visits:
        return []
    of_visits = Q()
    for node, visit in visits:
        of_visits |= Q(node=node, visit=visit)
    writes = PendingWrite.objects.filter(
        of_visits, run=checkpoint.run_id, line=checkpoint.line
    )
    rows = list(writes.order_by(*_BY_ADDRESS, "revision"))

    # The log shows which revisions came later: the hosts that make them and those that
    # save checkpoints may disagree about the time.
    revised = {row.task for row in rows if row.revision > 1}
    later_revisions = _later_revisions(checkpoint, revised)
    newest: dict[UUID, PendingWrite] = {}
    for row in rows:
        first_later = later_revisions.get(row.write)
        if first_later is None or row.revision < first_later:
            newest[row.write] = row
    return list(newest.values())


def _waiting_visits(payload: dict[str, Any]) -> list[tuple[str, int]]:
    """Return node and visit of what waited for people: at gates that were reached, and
    in a superstep that is still open.
    """
    keys = list(payload["frontier"].get("waiting", {}))
    for task in payload["open"].get("asked", []):
        visit_key, _, _ = task.rpartition(":")
        keys.append(visit_key)
    visits: list[tuple[str, int]] = []
    for key in keys:
        node, _, visit = key.rpartition(":")
        visits.append((node, int(visit)))
    return visits


def _later_revisions(
    checkpoint: Checkpoint,
    tasks: Collection[str],
) -> dict[UUID, int]:
    """Return the first revision of each write of these tasks that was made after a
    checkpoint. One query, none for no tasks.
    """
    if not tasks:
        return {}
    later_events = RunEvent.objects.filter(
        run=checkpoint.run_id, seq__gt=checkpoint.event_seq, task__in=tasks
    )
    revisions: dict[UUID, int] = {}
    for event in later_events.filter(type__in=_REVISING).order_by("seq"):
        sealed_rows.verify_row(event, protection_of(checkpoint.run))
        facts = read_value(event, "payload")
        # Other decisions leave a write as it is.
        if event.type == "decision_signed" and facts["verdict"] != "edit":
            continue
        revisions.setdefault(UUID(facts["write"]), facts["revision"])
    return revisions


def results_at(checkpoint: Checkpoint) -> "QuerySet[TaskResult]":
    """Return the recorded results that count at that checkpoint, on its line, older
    ones and in origins, in the order in which they began.
    """
    way = lines.past(checkpoint.run_id, checkpoint.line, checkpoint.seq)
    results = TaskResult.objects.filter(lines.within(way), outcome=Outcome.DONE)
    return results.order_by("intent_at", "seq", "id")


def events(run_id: UUID | str, *, after: int = 0) -> "QuerySet[RunEvent]":
    """Return the events of a run's log that follow number `after` (0: from the first),
    in order.
    """
    checked_number(after, "after")
    rows = RunEvent.objects.filter(run=uuid_of(run_id, "run"), seq__gt=after)
    return rows.order_by("seq")


def events_after(
    run_id: UUID | str,
    seq: int,
    *,
    limit: int = 500,
) -> list[RunEvent]:
    """Return up to `limit` events of a run's log that follow number `seq`, in order.
    One query.
    """
    rows = events(run_id, after=checked_number(seq, "seq"))
    most = checked_number(limit, "limit", most=_LAST)
    return list(rows[:most])


def payload_of(event: RunEvent) -> dict[str, Any]:
    """Return the payload of an event."""
    return read_value(event, "payload") or {}
