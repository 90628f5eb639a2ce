"""Metadata and figures as rows: what a start gives, what nodes noted, and what pages and the API read of them.

Whoever commits them writes one line of the log with the hash of all metadata and the totals of the figures, so a row
that is changed or gone shows.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Sum

from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.models import Checkpoint, Run, RunMetadata, TaskFigure, TaskResult
from checkpoints.models.fields import of_tasks, task_columns
from checkpoints.models.notes import OF_RUN
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import pack_json, read_or_reason, read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine import Task, canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.frozen import frozen
from orchestrator.engine.notes import filter_text

__all__ = ["OF_RUN", "OfRun"]

TaskOnLine = tuple[UUID, int, str]
"""A run, one of its lines, and a task there as `node:visit:index`."""
NOTED = "checkpoint_noted"
"""The type of the line that tells of what was noted with a checkpoint."""


@frozen
class OfRun:
    """The run that notes belong to. `indexed` names the metadata that stays readable in an encrypted run."""

    id: UUID
    graph: str
    protection: Protection
    indexed: Collection[str] = ()


def metadata_hash(metadata: Mapping[str, Json], protection: Protection) -> str:
    """The hash that the log has of all metadata of a run, or of one checkpoint; empty where there is none."""
    return protection.digest(canonical.dumps(dict(metadata))) if metadata else ""


def insert_metadata(run: OfRun, seq: int, metadata: Mapping[str, Json], at: datetime) -> None:
    """Insert the metadata of a run (`OF_RUN`), or of its checkpoint of that number. One statement."""
    readable = metadata if not run.protection.encrypted else {*run.indexed}
    rows = [
        RunMetadata(
            run_id=run.id,
            seq=seq,
            name=name,
            value=pack_json(value),
            text=filter_text(value) if name in readable else "",
            at=at,
        )
        for name, value in sorted(metadata.items())
    ]
    if rows:
        statements.insert_rows(RunMetadata, sealed_rows.seal_and_encrypt(rows, run.protection))


def insert_figures(
    run: OfRun, line: int, seq: int, figures: Sequence[tuple[Task, Mapping[str, int]]], at: datetime
) -> None:
    """Insert the figures of tasks, in millionths by name, of the checkpoint of that number. One statement."""
    day = at.astimezone(UTC).date().isoformat()
    rows = [
        TaskFigure(
            **task_columns(run.id, line, task),
            seq=seq,
            graph=run.graph,
            day=day,
            name=name,
            millionths=millionths,
            at=at,
        )
        for task, noted in figures
        for name, millionths in sorted(noted.items())
    ]
    if rows:
        statements.insert_rows(TaskFigure, sealed_rows.seal_and_encrypt(rows, run.protection))


def totals(figures: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of each figure, in millionths by name."""
    sums: dict[str, int] = defaultdict(int)
    for noted in figures:
        for name, millionths in noted.items():
            sums[name] += millionths
    return dict(sums)


def noted_event(seq: int, metadata_hash: str, figures: Mapping[str, int]) -> NewEvent:
    """The line of the log that tells of what was noted with a checkpoint."""
    return NewEvent(NOTED, {"seq": seq, "metadata": metadata_hash, "figures": dict(figures)})


def metadata_of(run: Run) -> dict[str, Json]:
    """The metadata with which a run was started, without what was erased of it. Raises `TamperedRow`, `WrongKey`. One
    query.
    """
    rows = list(RunMetadata.objects.filter(run=run.id, seq=OF_RUN).order_by("name"))
    sealed_rows.verify_rows(rows, protection_of(run))
    values = {row.name: read_value(row, "value") for row in rows}
    return {name: value for name, value in values.items() if isinstance(value, str | int | float)}


def shown_metadata(runs: Collection[Run]) -> dict[UUID, dict[str, Any]]:
    """Return the metadata of these runs by run and name, as it may be shown. One query.

    A value that is not as it was sealed, or cannot be read, is {"refused": why}.
    """
    protections = {run.id: protection_of(run) for run in runs}
    shown: dict[UUID, dict[str, Any]] = defaultdict(dict)
    for row in RunMetadata.objects.filter(run__in=protections, seq=OF_RUN).order_by("run_id", "name"):
        shown[row.run_id][row.name] = _shown_value(row, protections[row.run_id])
    return shown


def metadata_at(run: Run, seqs: Collection[int]) -> dict[int, dict[str, Any]]:
    """The metadata of these checkpoints of a run by number and name, shown as that of runs; `OF_RUN` is the run itself.
    One query.
    """
    protection = protection_of(run)
    shown: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in RunMetadata.objects.filter(run=run.id, seq__in=seqs).order_by("seq", "name"):
        shown[row.seq][row.name] = _shown_value(row, protection)
    return shown


def _shown_value(row: RunMetadata, protection: Protection) -> Any:
    fault = fault_of(row, protection)
    return {"refused": fault.reason} if fault else read_or_reason(row, "value")


def figures_at(run: Run, seq: int) -> dict[str, dict[str, Any]]:
    """The sums of figures of a checkpoint, {node: {name: millionths}}; {"refused": why} where one of the numbers is not
    as it was sealed. One query.
    """
    rows = TaskFigure.objects.filter(run=run.id, seq=seq).order_by("node", "name")
    return _shown_sums(rows, protection_of(run), lambda row: row.node)


def figures_of_results(results: Collection[TaskResult], protection: Protection) -> dict[TaskOnLine, dict[str, Any]]:
    """The figures of the tasks of these results, as those of checkpoints. One query for each line of a run."""
    tasks: dict[tuple[UUID, int], set[Task]] = defaultdict(set)
    for result in results:
        tasks[result.run_id, result.line].add(Task(result.node, result.visit, result.index))
    shown: dict[TaskOnLine, dict[str, Any]] = {}
    for (run, line), there in tasks.items():
        rows = TaskFigure.objects.filter(of_tasks(run, line, there)).order_by("name")
        shown |= _shown_sums(rows, protection, task_on_line)
    return shown


def task_on_line(row: TaskFigure | TaskResult) -> TaskOnLine:
    """The task that a row belongs to, and where it ran."""
    return row.run_id, row.line, row.task


def _shown_sums(
    rows: Iterable[TaskFigure], protection: Protection, group: Callable[[TaskFigure], Any]
) -> dict[Any, dict[str, Any]]:
    shown: dict[Any, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        sums = shown[group(row)]
        fault = fault_of(row, protection)
        before = sums.get(row.name, 0)
        if fault is not None:
            sums[row.name] = {"refused": fault.reason}
        elif isinstance(before, int):
            sums[row.name] = before + row.millionths
    return dict(shown)


def figures_of_run(run: UUID) -> dict[str, int]:
    """The sum of each figure of a run over all its lines, in millionths by name. One query, of columns."""
    rows = TaskFigure.objects.filter(run=run).order_by("name")
    return {name: int(sum) for name, sum in rows.values_list("name").annotate(sum=Sum("millionths"))}


def with_metadata(runs: "QuerySet[Run]", wanted: Mapping[str, str]) -> "QuerySet[Run]":
    """Of these runs those that were started with this metadata, by the text of each value. An encrypted run is found by
    the names alone that its graph declares as indexed.
    """
    for name, text in wanted.items():
        rows = RunMetadata.objects.filter(name=name, text=text, seq=OF_RUN).exclude(text="")
        runs = runs.filter(id__in=rows.values("run"))
    return runs


def checkpoints_with_metadata(
    run: UUID, checkpoints: "QuerySet[Checkpoint]", wanted: Mapping[str, str]
) -> "QuerySet[Checkpoint]":
    """Of these checkpoints of a run those that have this metadata, by the text of each value."""
    for name, text in wanted.items():
        rows = RunMetadata.objects.filter(run=run, seq__gt=OF_RUN, name=name, text=text).exclude(text="")
        checkpoints = checkpoints.filter(seq__in=rows.values("seq"))
    return checkpoints
