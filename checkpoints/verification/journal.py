"""Examines the journal of a run: the seals of results and of late results, and whether
the checkpoint that a result names lists it.
"""

from collections.abc import Iterator
from typing import Any

from checkpoints.db.pages import pages
from checkpoints.models import Checkpoint, LateResult, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.verification.base import Fault, Subject

_CheckpointColumns = dict[str, Any]
"""`id`, `seq`, `superstep`, `source`, `nodes`, `line`."""


def journal(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of every attempt, then those of every late result."""
    for page in pages(TaskResult.objects.filter(run=subject.run.id), "id"):
        points = _points_named_by(subject, page)
        for row in page:
            fault = subject.seal_of(row) or _unlisted(subject, row, points)
            if fault is not None:
                yield fault
    yield from subject.seals_of(LateResult.objects.filter(run=subject.run.id))


def _points_named_by(
    subject: Subject, results: list[TaskResult]
) -> dict[int, _CheckpointColumns]:
    """Return the checkpoints that these results name, and those before them, by their
    number. One query.
    """
    seqs: set[int] = set()
    for row in results:
        if row.seq is not None:
            seqs.add(row.seq)
        # The first checkpoint, 0, has none before it.
        if row.seq:
            seqs.add(row.seq - 1)
    rows = Checkpoint.objects.filter(run=subject.run.id, seq__in=seqs)
    columns = rows.values("id", "seq", "superstep", "source", "nodes", "line")
    return {point["seq"]: dict(point) for point in columns}


def _unlisted(
    subject: Subject, row: TaskResult, points: dict[int, _CheckpointColumns]
) -> Fault | None:
    """Return the fault of a result that the checkpoint that it names does not list, or
    that names none though its superstep is over.
    """
    if row.seq is None:
        return _unlisted_though_over(subject, row)
    point = points.get(row.seq)
    if point is None:
        if row.seq in subject.removed.checkpoints:
            return None
    elif _covers(row, point, points.get(row.seq - 1)):
        return None
    return subject.fault(
        row,
        f"names checkpoint {row.seq}, which does not list it",
        checkpoint=point["id"] if point else "",
    )


def _unlisted_though_over(subject: Subject, row: TaskResult) -> Fault | None:
    run = subject.run
    # Results that a rewind left on an older line count nowhere, and a superstep that
    # has not ended is in no checkpoint yet.
    if row.line != run.line or row.superstep > run.superstep:
        return None
    return subject.fault(
        row, "is listed by no checkpoint, though its superstep is over"
    )


def _covers(
    row: TaskResult, point: _CheckpointColumns, before: _CheckpointColumns | None
) -> bool:
    """Return whether a checkpoint is the one that follows the superstep of the row."""
    if point["line"] != row.line:
        return False
    first_superstep = 1
    if before:
        first_superstep = before["superstep"] + 1
    last_superstep = point["superstep"]
    # The checkpoint of a failure has the number of the superstep before the failed one.
    if point["source"] == Source.FAILURE:
        last_superstep += 1
    if not first_superstep <= row.superstep <= last_superstep:
        return False

    # A checkpoint that replaced recovery points covers their supersteps too, but names
    # only the nodes of that superstep.
    if first_superstep < last_superstep:
        return True
    return (row.node, row.visit) in _visits_listed(point["nodes"])


def _visits_listed(nodes: Any) -> list[tuple[Any, Any]]:
    """Return node and visit of each entry of a checkpoint's list of nodes, which was not
    compared with its seal: what is no entry lists nothing.
    """
    if not isinstance(nodes, list):
        return []
    visits = []
    for entry in nodes:
        if isinstance(entry, dict):
            visits.append((entry.get("node"), entry.get("visit")))
    return visits
