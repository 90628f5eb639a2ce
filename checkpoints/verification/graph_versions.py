"""Versions of graphs: their seals, and that each was seen behind the one that it names, so that nobody changed which is
newer. Workers judge no run by versions of which something here is wrong.
"""

from collections.abc import Iterator

from checkpoints import versions
from checkpoints.models import GraphVersion
from checkpoints.verification.base import Fault


def version_faults() -> Iterator[Fault]:
    """Yield the faults of all versions. One query."""
    rows = GraphVersion.objects.defer("structure").order_by("first_seen_at", "id")
    for _, fault in versions.version_faults(rows):
        yield Fault("", "", GraphVersion._meta.db_table, fault.row, fault.reason, fault.code)
