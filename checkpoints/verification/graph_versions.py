"""Examines the versions of graphs: their seals, and that each was first seen after the
one that it names, so that the order of versions was not changed. Workers judge no run
by versions that have a fault.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.db.models import Min

from checkpoints import versions
from checkpoints.models import Checkpoint, GraphVersion
from checkpoints.sealing import sealed_rows
from checkpoints.verification.base import Fault

CLOCKS = timedelta(hours=1)
"""How much the clocks of two hosts may differ."""


def version_faults() -> Iterator[Fault]:
    """Yield the faults of all versions. Two queries."""
    rows = list(GraphVersion.objects.defer("structure").order_by("first_seen_at", "id"))
    table = GraphVersion._meta.db_table
    for _, fault in versions.version_faults(rows):
        yield Fault(
            run="",
            checkpoint="",
            table=table,
            what=fault.row,
            reason=fault.reason,
            code=fault.code,
        )
    yield from _faults_of_first_sight(rows)


def _faults_of_first_sight(rows: Iterable[GraphVersion]) -> Iterator[Fault]:
    """Yield a fault for each version that was first seen after runs of it had begun:
    its row was deleted and inserted again. One query.
    """
    table = GraphVersion._meta.db_table
    # An imported run began in another installation, maybe before this one saw its
    # version.
    beginnings = (
        Checkpoint.objects.filter(seq=0, run__imported=False)
        .order_by()
        .values("fingerprint")
        .annotate(first=Min("created_at"))
        .values_list("fingerprint", "first")
    )
    began_at = dict(beginnings)
    for row in rows:
        # Runs of a version that has none cannot have begun too early.
        first_run_at = began_at.get(row.fingerprint, row.first_seen_at)
        if row.first_seen_at - CLOCKS > first_run_at:
            what = sealed_rows.name_of(row)
            reason = f"{what} says that it was first seen after a run of it had begun"
            yield Fault("", "", table, what, reason)
