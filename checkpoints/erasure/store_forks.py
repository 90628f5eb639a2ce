"""Forks that a store made of a run and that nobody has resumed: checkpoints that have no run. They have the values of
the run that they came from; no log could tell of tombstones in them, so they are cleared as a whole.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db import transaction

from checkpoints.ledger import checkpoint_rows
from checkpoints.lines import in_parts
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source

STORE_FORK = "store fork"
"""How such a fork came of a run."""


def forks_made_of(runs: Collection[UUID]) -> set[UUID]:
    """The ids under which forks of these runs are kept, whether they have a run by now or not. A query a thousand."""
    found: set[UUID] = set()
    for some in in_parts(runs):
        points = Checkpoint.objects.filter(run__in=some).order_by().values("id")
        rows = Checkpoint.objects.filter(source=Source.FORK, parent__in=points).order_by()
        found |= set(rows.values_list("run", flat=True))
    return found


def clear(forks: Iterable[UUID]) -> set[UUID]:
    """Delete the checkpoints of these forks, and of forks that a store made of them; one that has a run stays. Gives
    the ids that were looked at. Done twice, it finds what is left.
    """
    cleared: set[UUID] = set()
    level = {*forks}
    while level:
        cleared |= level
        level = _cleared(level) - cleared
    return cleared


def _cleared(level: set[UUID]) -> set[UUID]:
    """Gives what was forked of these. Whoever forks one waits for its row, and then finds it gone."""
    with transaction.atomic():
        level = level - set(Run.objects.filter(id__in=level).values_list("id", flat=True))
        rows = Checkpoint.objects.filter(run__in=level)
        # In an order of its own: one by runs would join them, and these have none.
        gone = list(rows.select_for_update(of=("self",)).order_by("id"))
        below = forks_made_of(level)
        rows.delete()
    for row in gone:
        checkpoint_rows.delete_payloads(row)
    return below
