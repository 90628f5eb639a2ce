"""Metadata and figures as rows: those that a start brings, those that nodes noted, and
the reads of them for pages and the API.

The commit that writes them adds one event with the hash of all metadata and the totals
of the figures, so a row that is changed or gone shows.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet, Sum

from checkpoints.db import query_cache, statements
from checkpoints.db.rows import (
    attributes_of,
    fetch_records,
    from_driver,
    named_columns,
    new_row,
)
from checkpoints.event_log import NewEvent
from checkpoints.models import Checkpoint, Run, RunMetadata, TaskFigure, TaskResult
from checkpoints.models.fields import of_tasks, task_columns
from checkpoints.models.notes import OF_RUN
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import pack_json, read_or_reason, read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.step.notes import filter_text
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json

__all__ = ["OF_RUN", "OfRun"]

TaskOnLine = tuple[UUID, int, str]
"""A run, one of its lines, and a task there as `node:visit:index`."""
NOTED = "checkpoint_noted"
"""The type of the event that records what was noted with a checkpoint."""


@frozen
class OfRun:
    """The run that notes belong to. `indexed` names the metadata that stays readable in
    an encrypted run.
    """

    id: UUID
    graph: str
    protection: Protection
    indexed: Collection[str] = ()


def metadata_hash(
    metadata: Mapping[str, Json],
    protection: Protection,
) -> str:
    """Return the hash that the log has of all metadata of a run, or of one checkpoint;
    empty if there is none.
    """
    if not metadata:
        return ""
    return protection.digest(canonical.dumps(dict(metadata)))


def insert_metadata(
    run: OfRun,
    seq: int,
    metadata: Mapping[str, Json],
    at: datetime,
) -> None:
    """Insert the metadata of a run (`OF_RUN`), or of its checkpoint of that number. One
    statement.
    """
    # The text for filters is plain, so an encrypted run has it for declared names only.
    readable = {*run.indexed} if run.protection.encrypted else metadata
    rows = []
    for name, value in sorted(metadata.items()):
        row = RunMetadata(
            run_id=run.id,
            seq=seq,
            name=name,
            value=pack_json(value),
            text=filter_text(value) if name in readable else "",
            at=at,
        )
        rows.append(row)
    if rows:
        sealed = sealed_rows.seal_and_encrypt(rows, run.protection)
        statements.insert_rows(RunMetadata, sealed)


def insert_figures(
    run: OfRun,
    line: int,
    seq: int,
    figures: Sequence[tuple[Task, Mapping[str, int]]],
    at: datetime,
) -> None:
    """Insert the figures of tasks, in millionths by name, of the checkpoint of that
    number. One statement.
    """
    # A day in UTC, as sums are asked for, whatever the time zone of this process.
    day = at.astimezone(UTC).date().isoformat()
    rows = []
    for task, noted in figures:
        for name, millionths in sorted(noted.items()):
            row = TaskFigure(
                **task_columns(run.id, line, task),
                seq=seq,
                graph=run.graph,
                day=day,
                name=name,
                millionths=millionths,
                at=at,
            )
            rows.append(row)
    if rows:
        sealed = sealed_rows.seal_and_encrypt(rows, run.protection)
        statements.insert_rows(TaskFigure, sealed)


def totals(figures: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of each figure, in millionths by name."""
    sums: dict[str, int] = defaultdict(int)
    for noted in figures:
        for name, millionths in noted.items():
            sums[name] += millionths
    return dict(sums)


def noted_event(
    seq: int,
    metadata_hash: str,
    figures: Mapping[str, int],
) -> NewEvent:
    """Return the event that records what was noted with a checkpoint."""
    facts = {
        "seq": seq,
        "metadata": metadata_hash,
        "figures": dict(figures),
    }
    return NewEvent(NOTED, facts)


def metadata_of(run: Run) -> dict[str, Json]:
    """Return the metadata with which a run was started, without erased values. Raises
    `TamperedRow`, `WrongKey`. One query.
    """
    rows = query_cache.select(RunMetadata, _query_of_run, run.id)
    return _values(rows, run)


def metadata_at_kept(
    run: Run, checkpoint: UUID, *, key: str
) -> tuple[dict[str, Json], bool] | None:
    """Return the metadata of a locked run as `metadata_of` does, and whether some run
    has this key already; None where this checkpoint of it is no longer kept. One query.
    """
    names = attributes_of(RunMetadata)
    fetched = fetch_records(_sql_at_kept(names), [key, OF_RUN, checkpoint])
    records = from_driver(RunMetadata, names, fetched, connection.vendor)
    if not records:
        return None
    rows = []
    for *record, _ in records:
        stored = dict(zip(names, record, strict=True))
        # The checkpoint alone, for a run without metadata.
        if stored["id"] is not None:
            rows.append(new_row(RunMetadata, stored))
    return _values(rows, run), bool(records[0][-1])


@cache
def _sql_at_kept(names: tuple[str, ...]) -> str:
    columns = named_columns(RunMetadata, names, "m")
    taken = f"EXISTS (SELECT 1 FROM {Run._meta.db_table} r WHERE r.key = %s)"  # noqa: S608
    return (
        f"SELECT {columns}, {taken} FROM {Checkpoint._meta.db_table} c "  # noqa: S608
        f"LEFT JOIN {RunMetadata._meta.db_table} m "
        "ON m.run_id = c.run_id AND m.seq = %s "
        "WHERE c.id = %s AND c.kept ORDER BY m.name"
    )


def _values(rows: Sequence[RunMetadata], run: Run) -> dict[str, Json]:
    """Return the values of metadata by name, without erased ones. Raises `TamperedRow`,
    `WrongKey`.
    """
    sealed_rows.verify_rows(rows, protection_of(run))
    values: dict[str, Json] = {}
    for row in rows:
        value = read_value(row, "value")
        # An erased value is a tombstone, which is none of these types.
        if isinstance(value, str | int | float):
            values[row.name] = value
    return values


def _query_of_run(run: UUID) -> "QuerySet[RunMetadata]":
    return RunMetadata.objects.filter(run=run, seq=OF_RUN).order_by("name")


def shown_metadata(runs: Collection[Run]) -> dict[UUID, dict[str, Any]]:
    """Return the metadata of these runs by run and name, as it may be shown. One query.

    A value that does not match its seal, or cannot be read, is {"refused": why}.
    """
    protections = {run.id: protection_of(run) for run in runs}
    shown: dict[UUID, dict[str, Any]] = defaultdict(dict)
    rows = RunMetadata.objects.filter(run__in=protections, seq=OF_RUN)
    for row in rows.order_by("run_id", "name"):
        protection = protections[row.run_id]
        shown[row.run_id][row.name] = _shown_value(row, protection)
    return shown


def metadata_at(
    run: Run,
    seqs: Collection[int],
) -> dict[int, dict[str, Any]]:
    """Return the metadata of these checkpoints of a run by number and name, in the form
    of `shown_metadata`; `OF_RUN` is the run itself. One query.
    """
    return metadata_in(metadata_rows(run, seqs), run)


def metadata_rows(run: Run, seqs: Collection[int]) -> "QuerySet[RunMetadata]":
    """Return the query of `metadata_at`, whose rows `metadata_in` reads."""
    rows = RunMetadata.objects.filter(run=run.id, seq__in=seqs)
    return rows.order_by("seq", "name")


def metadata_in(rows: Iterable[RunMetadata], run: Run) -> dict[int, dict[str, Any]]:
    """Return what `metadata_at` would, of rows of a run."""
    protection = protection_of(run)
    shown: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        shown[row.seq][row.name] = _shown_value(row, protection)
    return shown


def _shown_value(row: RunMetadata, protection: Protection) -> Any:
    fault = fault_of(row, protection)
    if fault:
        return {"refused": fault.reason}
    return read_or_reason(row, "value")


def figures_at(
    run: Run,
    seq: int,
) -> dict[str, dict[str, Any]]:
    """Return the sums of figures of a checkpoint, {node: {name: millionths}};
    {"refused": why} if one of the numbers does not match its seal. One query.
    """
    return figures_in(figure_rows(run, seq), run)


def figure_rows(run: Run, seq: int) -> "QuerySet[TaskFigure]":
    """Return the query of `figures_at`, whose rows `figures_in` reads."""
    rows = TaskFigure.objects.filter(run=run.id, seq=seq)
    return rows.order_by("node", "name")


def figures_in(rows: Iterable[TaskFigure], run: Run) -> dict[str, dict[str, Any]]:
    """Return what `figures_at` would, of rows of a run."""
    return _shown_sums(rows, protection_of(run), attrgetter("node"))


def figures_of_results(
    results: Collection[TaskResult],
    protection: Protection,
) -> dict[TaskOnLine, dict[str, Any]]:
    """Return the figures of the tasks of these results, in the form of `figures_at`.
    One query for each line of a run.
    """
    tasks_by_line: dict[tuple[UUID, int], set[Task]] = defaultdict(set)
    for result in results:
        task = Task(result.node, result.visit, result.index)
        tasks_by_line[result.run_id, result.line].add(task)
    shown: dict[TaskOnLine, dict[str, Any]] = {}
    for (run, line), tasks in tasks_by_line.items():
        rows = TaskFigure.objects.filter(of_tasks(run, line, tasks))
        rows = rows.order_by("name")
        shown |= _shown_sums(rows, protection, task_on_line)
    return shown


def task_on_line(row: TaskFigure | TaskResult) -> TaskOnLine:
    """Return the task that a row belongs to, and where it ran."""
    return row.run_id, row.line, row.task


def _shown_sums(
    rows: Iterable[TaskFigure],
    protection: Protection,
    group: Callable[[TaskFigure], Any],
) -> dict[Any, dict[str, Any]]:
    """Return the sums of figures by their `group` and name, as they may be shown."""
    shown: dict[Any, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        sums = shown[group(row)]
        fault = fault_of(row, protection)
        before = sums.get(row.name, 0)
        # One number that was changed spoils its sum.
        if fault is not None:
            sums[row.name] = {"refused": fault.reason}
        elif isinstance(before, int):
            sums[row.name] = before + row.millionths
    return dict(shown)


def figures_of_run(run: UUID) -> dict[str, int]:
    """Return the sum of each figure of a run over all its lines, in millionths by name.
    One query, of columns.
    """
    return sums_in(sums_of_run(run))


def sums_of_run(run: UUID) -> "QuerySet[TaskFigure, tuple[str, int]]":
    """Return the query of `figures_of_run`, whose rows `sums_in` reads."""
    rows = TaskFigure.objects.filter(run=run).order_by("name")
    return rows.values_list("name").annotate(sum=Sum("millionths"))


def sums_in(rows: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return what `figures_of_run` would, of its rows."""
    return {name: int(total) for name, total in rows}


def with_metadata(
    runs: "QuerySet[Run]",
    texts: Mapping[str, str],
) -> "QuerySet[Run]":
    """Return the runs among these that were started with this metadata, given by the
    text of each value. An encrypted run is only found by the names that its graph
    declares as indexed.
    """
    for name, text in texts.items():
        rows = RunMetadata.objects.filter(name=name, text=text, seq=OF_RUN)
        # A value that is not readable has an empty text, which must not match.
        rows = rows.exclude(text="")
        runs = runs.filter(id__in=rows.values("run"))
    return runs


def checkpoints_with_metadata(
    run: UUID,
    checkpoints: "QuerySet[Checkpoint]",
    texts: Mapping[str, str],
) -> "QuerySet[Checkpoint]":
    """Return the checkpoints among these of a run that have this metadata, given by the
    text of each value.
    """
    for name, text in texts.items():
        rows = RunMetadata.objects.filter(
            run=run,
            seq__gt=OF_RUN,
            name=name,
            text=text,
        )
        # As in `with_metadata`: an empty text stands for a value that is not readable.
        rows = rows.exclude(text="")
        checkpoints = checkpoints.filter(seq__in=rows.values("seq"))
    return checkpoints
