"""Versions of graphs: their seals, and that each was seen behind the one that it names, so that nobody changed which is
newer. Workers judge no run by versions of which something here is wrong.
"""

from collections.abc import Iterable, Iterator

from checkpoints.models import GraphVersion
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.verification.base import Fault


def version_faults() -> Iterator[Fault]:
    """The faults of all versions. One query."""
    rows = GraphVersion.objects.defer("structure").order_by("first_seen_at", "id")
    for _, fault in faults_among(rows):
        yield fault


def faults_among(rows: Iterable[GraphVersion]) -> Iterator[tuple[str, Fault]]:
    """The faults of versions that are given in the order in which they were seen, each with the name of its graph."""
    seen: dict[str, set[str]] = {}
    for row in rows:
        earlier = seen.setdefault(row.name, set())
        fault = _fault(row, earlier)
        if fault is not None:
            yield row.name, fault
        earlier.add(row.fingerprint)


def _fault(row: GraphVersion, earlier: set[str]) -> Fault | None:
    table, what = row._meta.db_table, sealed_rows.name_of(row)
    fault = fault_of(row, sealed_rows.PLAIN)
    if fault is not None:
        return Fault("", "", table, what, fault.reason, fault.code)
    # Two that are noted at once may name the same one before them, or none.
    if row.before and row.before not in earlier:
        reason = f"{what} was seen after {row.before}, which is gone or stands behind it"
        return Fault("", "", table, what, reason)
    return None
