"""Deletes forks that a store made of a run and that were never resumed, which are
checkpoints without a run. They have the values of the run that they came from, and no
log in which tombstones could be recorded, so they are deleted as a whole.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db import transaction

from checkpoints.ledger import checkpoint_rows
from checkpoints.lines import in_parts
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source

STORE_FORK = "store fork"
"""How such a fork inherits from a run, in an erasure's record."""


def forks_made_of(runs: Collection[UUID]) -> set[UUID]:
    """Return the ids of forks of these runs, whether or not they have a run yet. One
    query for a thousand runs.
    """
    forks: set[UUID] = set()
    for part in in_parts(runs):
        points = Checkpoint.objects.filter(run__in=part).order_by().values("id")
        rows = Checkpoint.objects.filter(source=Source.FORK, parent__in=points)
        ids = rows.order_by().values_list("run", flat=True)
        forks.update(ids)
    return forks


def clear(forks: Iterable[UUID]) -> set[UUID]:
    """Delete the checkpoints of these forks, and of forks that a store made of them; a
    fork that has a run stays. Return the ids of all that were examined. May be
    repeated, and then clears the rest.
    """
    cleared: set[UUID] = set()
    level = {*forks}
    while level:
        cleared |= level
        level = _cleared(level) - cleared
    return cleared


def _cleared(level: set[UUID]) -> set[UUID]:
    """Delete the checkpoints of these forks, and return the forks of them. A process
    that is forking one waits for its row, and then finds it deleted.
    """
    with transaction.atomic():
        with_run = Run.objects.filter(id__in=level).values_list("id", flat=True)
        # One that was resumed has a log, in which its tombstones can be recorded.
        level = level - set(with_run)
        rows = Checkpoint.objects.filter(run__in=level)
        # Ordered by their id: an order by runs would join them, and these have none.
        deleted = list(rows.select_for_update(of=("self",)).order_by("id"))
        # Their forks are found by the rows that go.
        below = forks_made_of(level)
        rows.delete()
    # Only now: a transaction that is rolled back still needs the bytes.
    for row in deleted:
        checkpoint_rows.delete_payloads(row)
    return below
