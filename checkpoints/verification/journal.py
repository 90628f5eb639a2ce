"""The journal of a run: seals of results and of late ones; and whether the checkpoint that a result names lists it."""

from collections.abc import Iterator
from typing import Any

from checkpoints.db.pages import pages
from checkpoints.models import Checkpoint, LateResult, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.verification.base import Fault, Subject


def journal(subject: Subject) -> Iterator[Fault]:
    """Every attempt, then every late result."""
    for page in pages(TaskResult.objects.filter(run=subject.run.id), "id"):
        listing = _listing(subject, page)
        for row in page:
            fault = subject.seal_of(row) or _unlisted(subject, row, listing)
            if fault is not None:
                yield fault
    yield from subject.seals_of(LateResult.objects.filter(run=subject.run.id))


def _listing(subject: Subject, results: list[TaskResult]) -> dict[int, dict[str, Any]]:
    """The checkpoints that these results name, and those before them, by seq."""
    named = {row.seq for row in results if row.seq is not None}
    rows = Checkpoint.objects.filter(run=subject.run.id, seq__in=named | {seq - 1 for seq in named if seq})
    return {row["seq"]: dict(row) for row in rows.values("id", "seq", "superstep", "source", "nodes", "line")}


def _unlisted(subject: Subject, row: TaskResult, listing: dict[int, dict[str, Any]]) -> Fault | None:
    """The fault of a result that names no checkpoint though its superstep is over, or one that does not list it."""
    if row.seq is None:
        over = row.line == subject.run.line and row.superstep <= subject.run.superstep
        return subject.fault(row, "is listed by no checkpoint, though its superstep is over") if over else None
    at, before = listing.get(row.seq), listing.get(row.seq - 1)
    if at is None and row.seq in subject.removed.checkpoints:
        return None
    if at is None or not _covers(row, at, before):
        checkpoint = at["id"] if at else ""
        return subject.fault(row, f"names checkpoint {row.seq}, which does not list it", checkpoint=checkpoint)
    return None


def _covers(row: TaskResult, at: dict[str, Any], before: dict[str, Any] | None) -> bool:
    """Whether this checkpoint is the one that follows the row's superstep. A checkpoint that took the place of recovery
    points covers their supersteps too, and names the nodes of its own alone.
    """
    last = at["superstep"] + (1 if at["source"] == Source.FAILURE else 0)
    first = before["superstep"] + 1 if before else 1
    if at["line"] != row.line or not first <= row.superstep <= last:
        return False
    names = {(entry["node"], entry["visit"]) for entry in at["nodes"]}
    return (row.node, row.visit) in names or first < last
