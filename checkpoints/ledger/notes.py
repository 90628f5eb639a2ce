"""Metadata and figures as rows: what a start gives, what nodes noted, and what pages and the API read of them.

Whoever commits them writes one line of the log with the hash of all metadata and the totals of the figures, so a row
that is changed or gone shows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Sum

from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.models import Run, RunMetadata, TaskFigure
from checkpoints.models.fields import task_columns
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
    rows = RunMetadata.objects.filter(run__in=protections, seq=OF_RUN).order_by("run_id", "name")
    shown: dict[UUID, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        fault = fault_of(row, protections[row.run_id])
        if fault is not None:
            shown[row.run_id][row.name] = {"refused": fault.reason}
        else:
            shown[row.run_id][row.name] = read_or_reason(row, "value")
    return shown


def shown_at_checkpoints(run: UUID, seqs: Collection[int]) -> dict[int, dict[str, Any]]:
    """The metadata of these checkpoints of a run, by their numbers, for pages. One query."""
    shown: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in RunMetadata.objects.filter(run=run, seq__in=seqs).order_by("seq", "name"):
        shown[row.seq][row.name] = read_or_reason(row, "value")
    return shown


def figures_by_node(run: UUID, seqs: Collection[int]) -> dict[int, dict[str, dict[str, int]]]:
    """The figures of these checkpoints of a run, in millionths: {seq: {node: {name: sum}}}. One query."""
    rows = TaskFigure.objects.filter(run=run, seq__in=seqs).order_by("seq", "node", "name")
    sums = rows.values_list("seq", "node", "name").annotate(sum=Sum("millionths"))
    found: dict[int, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for seq, node, name, millionths in sums:
        found[seq][node][name] = int(millionths)
    return found


def figures_of_run(run: UUID) -> dict[str, int]:
    """The sum of each figure of a run over all its lines, in millionths by name. One query, of columns."""
    rows = TaskFigure.objects.filter(run=run).order_by("name")
    return {name: int(sum) for name, sum in rows.values_list("name").annotate(sum=Sum("millionths"))}


def figures_by_day(graphs: Collection[str], first: str, last: str) -> list[dict[str, Any]]:
    """The sums of figures of these graphs from one day to another, as {graph, day, name, sum} with the sum in
    millionths, the newest day first. One query, which reads the index of these graphs and days alone.
    """
    rows = TaskFigure.objects.filter(graph__in=graphs, day__gte=first, day__lte=last)
    sums = rows.values("graph", "day", "name").annotate(sum=Sum("millionths"))
    return [{**row, "sum": int(row["sum"])} for row in sums.order_by("-day", "graph", "name")]


def with_metadata(runs: "QuerySet[Run]", wanted: Mapping[str, str]) -> "QuerySet[Run]":
    """Of these runs those that were started with this metadata, by the text of each value. An encrypted run is found by
    the names alone that its graph declares as indexed.
    """
    for name, text in wanted.items():
        rows = RunMetadata.objects.filter(name=name, text=text, seq=OF_RUN).exclude(text="")
        runs = runs.filter(id__in=rows.values("run"))
    return runs


def checkpoints_with_metadata(run: UUID, wanted: Mapping[str, str]) -> list[int]:
    """The numbers of the checkpoints of a run that have this metadata. One query for each name."""
    seqs: set[int] | None = None
    for name, text in wanted.items():
        rows = RunMetadata.objects.filter(run=run, seq__gt=OF_RUN, name=name, text=text).exclude(text="")
        there = set(rows.values_list("seq", flat=True))
        seqs = there if seqs is None else seqs & there
    return sorted(seqs or ())
