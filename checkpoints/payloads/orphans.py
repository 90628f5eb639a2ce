"""The sweep: bytes in payload backends that no row points to, after a day. Called by a standing job.

Phase 1 of a commit puts bytes, phase 2 makes the row that points to them. A process that dies between the two leaves
bytes that nobody reads; so does a recovery point that was replaced. A day is far longer than any commit takes, so what
a commit in flight has put is never in question.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

import structlog
from django.utils import timezone

from checkpoints import payloads
from checkpoints.models import Checkpoint
from checkpoints.payloads import PayloadBackend
from orchestrator.engine.errors import PayloadLost

AFTER = timedelta(days=1)
BATCH = 500
COLUMNS = ("change", "snapshot")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """How far a sweep of one backend has got: names whose bytes were left, and names whose bytes were deleted."""

    backend: str
    left: int
    deleted: int


def delete_orphans(*, now: datetime | None = None, done: Mapping[str, int] | None = None) -> Iterator[SweepResult]:
    """Delete what no row points to, in each backend outside the rows. Gives how far it has got, batch by batch.

    Only names that begin with a run and a checkpoint are ours to judge; others are left alone. `done` says how many
    names of each backend an earlier sweep has left, to go on behind them.
    """
    before = (now or timezone.now()) - AFTER
    for name, backend in payloads.backends().items():
        if not backend.in_row:
            yield from _sweep(name, backend, before, left=(done or {}).get(name, 0))


def _sweep(label: str, backend: PayloadBackend, before: datetime, *, left: int) -> Iterator[SweepResult]:
    names = islice(backend.names(before=before), left, None)
    deleted = 0
    while batch := list(islice(names, BATCH)):
        orphans = orphans_among(batch)
        for name in orphans:
            backend.delete(name, b"")
        left, deleted = left + len(batch) - len(orphans), deleted + len(orphans)
        yield SweepResult(label, left, deleted)
    if deleted:
        log.info("payloads_swept", backend=label, left=left, deleted=deleted)


def orphans_among(names: Iterable[str]) -> list[str]:
    """Those of the names that stand for a checkpoint whose row does not point to them. One query.

    The row may be of any backend outside the rows: the settings may have two that keep their bytes in one place.
    """
    ours = {name: id for name in names if (id := _checkpoint(name)) is not None}
    elsewhere = Checkpoint.objects.exclude(backend=payloads.DATABASE)
    rows = elsewhere.only("run_id", *COLUMNS).in_bulk(set(ours.values()))
    return [name for name, id in ours.items() if id not in rows or not _points(rows[id], name)]


def _points(row: Checkpoint, name: str) -> bool:
    """Whether the row's bytes are under this name. A damaged record is for people to mend: it points to all it may."""
    for column in COLUMNS:
        first, kept = payloads.name_of(row.run_id, row.id, column), bytes(getattr(row, column))
        try:
            if kept and payloads.where(first, kept)[0] == name:
                return True
        except PayloadLost:
            if name.startswith(first):
                return True
    return False


def _checkpoint(name: str) -> UUID | None:
    """The checkpoint in `<run>/<checkpoint>/<column>...`; None for any other name."""
    run, _, rest = name.partition("/")
    checkpoint, _, column = rest.partition("/")
    try:
        UUID(run)
        return UUID(checkpoint) if column.partition("/")[0] in COLUMNS else None
    except ValueError:
        return None
