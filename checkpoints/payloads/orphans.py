"""The sweep, which deletes bytes in payload backends that no row points to, after a
day. A standing job does it.

Phase 1 of a commit puts bytes, phase 2 inserts the row that points to them. A process
that dies between the two leaves bytes that nobody reads; so does a recovery point that
was replaced. A day is far longer than any commit takes, so the sweep never considers
the bytes of a commit in flight.
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
    """The progress of a sweep of one backend: how many names are `remaining`,
    and the bytes of how many it has deleted.
    """

    backend: str
    remaining: int
    deleted: int


def delete_orphans(
    *, now: datetime | None = None, done: Mapping[str, int] | None = None
) -> Iterator[SweepResult]:
    """Delete the bytes that no row points to, in each backend outside the rows. Yields
    its progress, batch by batch.

    Only names that begin with a run and a checkpoint are examined; others are left
    alone. `done` has the number of names of each backend that an earlier sweep has
    left, after which this one goes on.
    """
    before = (now or timezone.now()) - AFTER
    for name, backend in payloads.backends().items():
        if not backend.in_row:
            yield from _sweep(name, backend, before, skip=(done or {}).get(name, 0))


def _sweep(
    label: str, backend: PayloadBackend, before: datetime, *, skip: int
) -> Iterator[SweepResult]:
    # The names that an earlier sweep left come first again, so they are skipped.
    names = islice(backend.names(before=before), skip, None)
    not_deleted = skip
    deleted = 0
    while batch := list(islice(names, BATCH)):
        orphans = orphans_among(batch)
        for name in orphans:
            backend.delete(name, b"")
        not_deleted += len(batch) - len(orphans)
        deleted += len(orphans)
        yield SweepResult(label, not_deleted, deleted)
    if deleted:
        log.info("payloads_swept", backend=label, left=not_deleted, deleted=deleted)


def orphans_among(names: Iterable[str]) -> list[str]:
    """Return those of the names that stand for a checkpoint whose row does not point to
    them. One query.

    The row may be of any backend outside the rows: the settings may have two that store
    their bytes in one place.
    """
    checkpoint_of = {}
    for name in names:
        checkpoint = _checkpoint(name)
        if checkpoint is not None:
            checkpoint_of[name] = checkpoint
    # A row that keeps its bytes itself points to none elsewhere.
    outside_rows = Checkpoint.objects.exclude(backend=payloads.DATABASE)
    rows = outside_rows.only("run_id", *COLUMNS).in_bulk(set(checkpoint_of.values()))
    return [
        name
        for name, checkpoint in checkpoint_of.items()
        if checkpoint not in rows or not _points(rows[checkpoint], name)
    ]


def _points(row: Checkpoint, name: str) -> bool:
    """Return whether the row's bytes are under this name. A damaged record is for
    people to repair, so it points to every name that it may have had.
    """
    for column in COLUMNS:
        first_name = payloads.name_of(row.run_id, row.id, column)
        record = bytes(getattr(row, column))
        if not record:
            continue
        try:
            if payloads.where(first_name, record)[0] == name:
                return True
        except PayloadLost:
            if name.startswith(first_name):
                return True
    return False


def _checkpoint(name: str) -> UUID | None:
    """Return the checkpoint in `<run>/<checkpoint>/<column>...`; None for any other
    name.
    """
    run, _, rest = name.partition("/")
    checkpoint, _, column = rest.partition("/")
    try:
        UUID(run)
        return UUID(checkpoint) if column.partition("/")[0] in COLUMNS else None
    except ValueError:
        return None
