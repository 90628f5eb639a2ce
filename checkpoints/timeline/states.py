"""A run's checkpoints, the state at each and what changed, the results and held writes of then, and its log."""

from collections.abc import Collection, Iterator
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
from checkpoints.db import rows as db_rows
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, TaskResult
from checkpoints.models.run import TIES
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.seal_fault import SealFault
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError, TamperedRow, UnknownThing

PARTITIONS = ("input", "scratch", "artifacts", "diagnostics")
_BY_ADDRESS = ("node", "visit", "index", "position")
_LISTED = tuple(f.attname for f in Checkpoint._meta.concrete_fields if f.attname not in ("change", "snapshot"))
_SHOWN_OF_RUN = ("label", "status", "origin_checkpoint", "erasure")
_LAST = 2**31 - 1
"""No seq is greater."""
_WITHOUT_WRITES = frozenset({"held", "rejected", "error", "diverged", "failed", "unknown", "later"})
"""Outcomes of nodes that a checkpoint lists and that set nothing in it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs between two states. The path begins below the partition.

    `before` is None for what was added, `after` for what was removed. `set_by` names the nodes of the checkpoint that
    last set the path's channel, empty where none did.
    """

    partition: str
    path: str
    kind: str
    before: Any
    after: Any
    set_by: str = ""


def checkpoint_lines(run: Run) -> "QuerySet[Checkpoint]":
    """The kept checkpoints of a run, newest first, with what lists show of them. Each has this very run as its own."""
    found: QuerySet[Checkpoint] = run.checkpoints.filter(kept=True)
    return found.defer("change", "snapshot").order_by("-seq")


def list_checkpoints(run_id: UUID | str, *, limit: int = 200, before: int | None = None) -> list[Checkpoint]:
    """Up to `limit` kept checkpoints below seq `before` (None: from the newest on), newest first. One query.

    They have one run in common, of which id, key, line and protection were read.
    """
    run_id, most = uuid_of(run_id, "run"), checked_number(limit, "limit", most=_LAST)
    last = _LAST if before is None else checked_number(before, "before", least=-_LAST) - 1
    values = [run_id, min(last, _LAST), most]
    names = (*_LISTED, "key", "now", "encrypted", "hash_key")
    found: list[Any] = db_rows.fetch_rows(Checkpoint, names, _list_sql(), values)
    run = _run_of(run_id, found[0]) if found else None
    for row in found:
        row._state.fields_cache["run"] = run
    return found


def _run_of(run_id: UUID, row: Any) -> Run:
    known = {"id": run_id, "key": row.key, "line": row.now, "encrypted": row.encrypted, "hash_key": row.hash_key}
    return db_rows.new_row(Run, known)


@cache
def _list_sql() -> str:
    table, runs = Checkpoint._meta.db_table, Run._meta.db_table
    columns = db_rows.named_columns(Checkpoint, _LISTED, "c")
    joined = f"FROM {table} c JOIN {runs} r ON r.id = c.run_id"
    wanted = "WHERE c.run_id = %s AND c.kept AND c.seq <= %s ORDER BY c.seq DESC LIMIT %s"
    return f"SELECT {columns}, r.key, r.line, r.encrypted, r.hash_key {joined} {wanted}"


def get_checkpoint(id_or_alias: UUID | str) -> Checkpoint:
    """The kept checkpoint of that id or alias, with its run. Its payload is read when it is asked for.

    Aliases: `<key>:initial`, `<key>:step-<n>` (the newest of superstep n on the current line),
    `<key>:line-<l>:step-<n>`, `<key>:at-<seq>`. Raises `UnknownThing`.
    """
    found = find_checkpoint(id_or_alias)
    if found is None:
        raise unknown_thing("checkpoint", id_or_alias)
    return found


def open_checkpoint(checkpoint_id: UUID | str) -> Checkpoint:
    """The kept checkpoint of that id with its run and its payload, proven. One query. Raises `UnknownThing`,
    `TamperedRow`, `WrongKey`.
    """
    read = _read(uuid_of(checkpoint_id, "checkpoint"), more=_SHOWN_OF_RUN)
    read.row.run, read.row.__dict__["document"] = read.run, read.document
    return read.row


def find_checkpoint(id_or_alias: UUID | str) -> Checkpoint | None:
    """As `get_checkpoint`; None where there is none."""
    kept = Checkpoint.objects.filter(kept=True).select_related("run").defer("change", "snapshot")
    return _of_id(kept, str(id_or_alias)) or _of_alias(kept, str(id_or_alias))


def _of_id(kept: "QuerySet[Checkpoint]", text: str) -> Checkpoint | None:
    try:
        return kept.filter(id=UUID(text)).first()
    except ValueError:
        return None


def _of_alias(kept: "QuerySet[Checkpoint]", alias: str) -> Checkpoint | None:
    named = parsed(alias)
    if named is None:
        return None
    kept = kept.filter(run__key=named.key).order_by("-seq")
    if named.superstep is None:
        return kept.filter(seq=named.seq or 0).first()
    return kept.filter(superstep=named.superstep, line=F("run__line") if named.line is None else named.line).first()


def alias_of(checkpoint: Checkpoint) -> str:
    """Its exact alias. No query where the checkpoint came from this module."""
    return f"{checkpoint.run.key}:{f'at-{checkpoint.seq}' if checkpoint.seq else 'initial'}"


def aliases(checkpoint: Checkpoint) -> list[str]:
    """All aliases under which it is found now, the most telling first. One query."""
    key, line = checkpoint.run.key, checkpoint.line
    beside = Checkpoint.objects.filter(run=checkpoint.run_id, kept=True, line=line, superstep=checkpoint.superstep)
    names = [] if checkpoint.seq else [f"{key}:initial"]
    if not beside.filter(seq__gt=checkpoint.seq).exists():
        names += [f"{key}:step-{checkpoint.superstep}"] if line == checkpoint.run.line else []
        names.append(f"{key}:line-{line}:step-{checkpoint.superstep}")
    return [*names, f"{key}:at-{checkpoint.seq}"]


def snapshot_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The whole payload: scratch, artifacts, diagnostics, frontier, versions, open. One query, the first time.

    It is what was sealed, proven from the nearest snapshot on. Raises `TamperedRow`, which names the row, `WrongKey`.
    """
    known = checkpoint.__dict__
    if "document" not in known:
        known["document"] = _read(checkpoint.id).document
    document: dict[str, Any] = known["document"]
    return document


def fault_of_run(run: Run) -> SealFault | None:
    """Why a run's row does not prove to be what was written: its seal, its input, and that it has the label, the facts
    and the ties with which its log begins. One query; None where it does.
    """
    try:
        run_row.input_of(run)
        first = RunEvent.objects.filter(run=run.id, seq=1).first()
        if first is not None:
            sealed_rows.verify_row(first, sealed_rows.protection_of(run))
            began = read_value(first, "payload")
            has = {"label": run.label, "facts": run.facts}
            has["ties"] = {name: str(value) for name in TIES if (value := getattr(run, name))}
            if "ties" in began and not all(agrees(began[name], has[name]) for name in has):
                what = sealed_rows.name_of(run)
                raise TamperedRow(f"{what} has another label, facts or ties than it was started with", row=what)
    except CountersignError as error:
        return SealFault(error.code, str(error.facts.get("row") or sealed_rows.name_of(run)), error.message)
    return None


def input_of(run: Run) -> Any:
    """The run's input. Raises `TamperedRow` where it is not what the run was started with, `WrongKey`."""
    return run_row.input_of(run)


def state_at(checkpoint_id: UUID | str) -> dict[str, Any]:
    """{input, scratch, artifacts, diagnostics} as they were at that checkpoint. One query.

    It is proven to be what was sealed. Raises `UnknownThing`, `TamperedRow`, which names the row, `WrongKey`; so do all
    that follow here.
    """
    return _read(uuid_of(checkpoint_id, "checkpoint")).state()


def head_state(run_id: UUID | str) -> dict[str, Any]:
    """{input, scratch, artifacts, diagnostics} as they are now, recovery point or not. Raises `UnknownThing`."""
    return _read_head(run_id).state()


def head_document(run_id: UUID | str) -> dict[str, Any]:
    """The whole payload as it is now, as `snapshot_of` gives it. Two queries. Raises `UnknownThing`."""
    return _read_head(run_id).document


def _read_head(run_id: UUID | str) -> "_Read":
    head = Run.objects.filter(id=uuid_of(run_id, "run")).values_list("head", flat=True).first()
    if head is None:
        raise UnknownThing(f"run {run_id} has no checkpoint", run=str(run_id))
    return _read(head, kept=False)


def changes(checkpoint: Checkpoint, *, at_most: int | None = None) -> list[Change]:
    """What this checkpoint's state changed against its parent; against nothing for the first of a run, and for one
    whose parent was removed; the first `at_most` of it. Three queries.
    """
    read = _read(checkpoint.id)
    return list(islice(_changes(_state_before(read), read), at_most))


def _state_before(read: "_Read") -> dict[str, Any]:
    if read.row.parent is not None:
        with suppress(UnknownThing):
            return _read(read.row.parent).state()
    return {"input": read.input()}


def parent_of(checkpoint: Checkpoint) -> UUID | None:
    """The checkpoint that `changes` compares with; None where there is none. One query."""
    there = checkpoint.parent is not None and Checkpoint.objects.filter(id=checkpoint.parent, kept=True).exists()
    return checkpoint.parent if there else None


def diff(a: UUID | str, b: UUID | str) -> list[Change]:
    """What differs in the state at `b` against that at `a`, of any two runs. Three queries. Raises `UnknownThing`."""
    return list(_changes(_read(uuid_of(a, "checkpoint")).state(), _read(uuid_of(b, "checkpoint"))))


@dataclass(frozen=True, slots=True)
class _Read:
    """A checkpoint with what was read for it: its run and its document."""

    row: Checkpoint
    run: Run
    document: dict[str, Any]

    def input(self) -> Any:
        return run_row.input_of(self.run)

    def state(self) -> dict[str, Any]:
        return {name: self.input() if name == "input" else self.document[name] for name in PARTITIONS}


def _read(checkpoint_id: UUID, *, kept: bool = True, more: tuple[str, ...] = ()) -> _Read:
    """One query. Raises `UnknownThing`; `TamperedRow` and `WrongKey` where the rows are not as they were sealed."""
    rows, run = reader.range_with_run(checkpoint_id, more)
    if run is None or (kept and not rows[-1].kept):
        raise UnknownThing(f"there is no checkpoint {checkpoint_id}", checkpoint=str(checkpoint_id))
    return _Read(rows[-1], run, reader.proven(rows, sealed_rows.protection_of(run)))


def _changes(before: dict[str, Any], read: _Read) -> Iterator[Change]:
    after, authors = read.state(), _authors(read)
    for name in PARTITIONS:
        for found in differences(before.get(name, {}), after[name]):
            setter = authors.get(str(found.path[0]), "") if name in ("scratch", "artifacts") else ""
            yield Change(name, written(found.path), found.kind, found.before, found.after, setter)


def _authors(read: _Read) -> dict[str, str]:
    """Channel -> names of the nodes that last set it, in the checkpoint that did. One query. Where supersteps before
    that one left no row, its change tells which nodes they were, unless it is the whole state.
    """
    versions: dict[str, int] = read.document["versions"]
    setting = Checkpoint.objects.filter(run=read.row.run_id, seq__in=set(versions.values()))
    rows = {row.seq: row for row in setting.defer("change", "snapshot")}
    protection = sealed_rows.protection_of(read.run)
    sealed_rows.verify_rows(rows.values(), protection)
    own = canonical.loads(reader.bytes_of(read.row, "change", protection) or b"[]")
    found = {}
    for channel, seq in versions.items():
        names = [entry["node"] for entry in setting_entries(rows[seq].nodes)] if seq in rows else []
        if seq == read.row.seq and channel not in rows[seq].changed and own:
            names = nodes_that_ran(own, StatePath(STATE, (channel,)))
        found[channel] = ", ".join(names)
    return found


def setting_entries(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a checkpoint's entries of nodes those that may have set something in it."""
    return [entry for entry in nodes if entry.get("outcome") not in _WITHOUT_WRITES]


def held_at(checkpoint: Checkpoint) -> list[PendingWrite]:
    """The writes that gates held at that checkpoint, each at its revision of then, by task and position. The log tells
    which revisions came later: the hosts that make them and that save checkpoints may disagree about the time.

    Raises `TamperedRow`, `WrongKey`.
    """
    payload = snapshot_of(checkpoint)
    visits = [key.rpartition(":")[0::2] for key in payload["frontier"].get("waiting", {})]
    visits += [task.rpartition(":")[0].rpartition(":")[0::2] for task in payload["open"].get("asked", [])]
    if not visits:
        return []
    wanted = Q()
    for node, visit in visits:
        wanted |= Q(node=node, visit=int(visit))
    then = PendingWrite.objects.filter(wanted, run=checkpoint.run_id, line=checkpoint.line)
    rows = list(then.order_by(*_BY_ADDRESS, "revision"))
    later = _revised_later(checkpoint, {row.task for row in rows if row.revision > 1})
    newest: dict[UUID, PendingWrite] = {}
    for row in rows:
        if row.revision < later.get(row.write, row.revision + 1):
            newest[row.write] = row
    return list(newest.values())


def _revised_later(checkpoint: Checkpoint, tasks: Collection[str]) -> dict[UUID, int]:
    """The first revision that each write of these tasks was given behind a checkpoint. One query, none for no tasks."""
    if not tasks:
        return {}
    lines_behind = RunEvent.objects.filter(run=checkpoint.run_id, seq__gt=checkpoint.event_seq, task__in=tasks)
    first: dict[UUID, int] = {}
    for line in lines_behind.filter(type__in=_REVISING).order_by("seq"):
        sealed_rows.verify_row(line, protection_of(checkpoint.run))
        facts = read_value(line, "payload")
        if line.type != "decision_signed" or facts["verdict"] == "edit":
            first.setdefault(UUID(facts["write"]), facts["revision"])
    return first


_REVISING = ("decision_signed", "write_rebased", "texts_changed")
"""Lines of the log that may tell of another revision of a write."""


def results_at(checkpoint: Checkpoint) -> "QuerySet[TaskResult]":
    """The recorded results that count at that checkpoint, on its line, older ones and in origins, as they began."""
    way = lines.past(checkpoint.run_id, checkpoint.line, checkpoint.seq)
    return TaskResult.objects.filter(lines.within(way), outcome=Outcome.DONE).order_by("intent_at", "seq", "id")


def events(run_id: UUID | str, *, after: int = 0) -> "QuerySet[RunEvent]":
    """The lines of a run's log that follow line `after` (0: from the first), in order."""
    checked_number(after, "after")
    return RunEvent.objects.filter(run=uuid_of(run_id, "run"), seq__gt=after).order_by("seq")


def events_after(run_id: UUID | str, seq: int, *, limit: int = 500) -> list[RunEvent]:
    """Up to `limit` lines of the run's log that follow line `seq`, in order. One query."""
    return list(events(run_id, after=checked_number(seq, "seq"))[: checked_number(limit, "limit", most=_LAST)])


def payload_of(event: RunEvent) -> dict[str, Any]:
    """What a line of the log carries."""
    return read_value(event, "payload") or {}
