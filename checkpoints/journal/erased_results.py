"""Results that come after their run was erased."""

from collections.abc import Sequence

from checkpoints.core.tombstone import tombstone
from checkpoints.models import LateResult, Run
from checkpoints.queue.leases import Lease
from checkpoints.sealing import data_keys
from checkpoints.sealing.sealed_columns import pack_json


def drop_erased(lease: Lease, rows: Sequence[LateResult]) -> None:
    """Of late results of a run that is erased, or is being erased, nothing but tombstones is kept. Under its lock, so
    that an erasure that begins finds the others.
    """
    held = Run.objects.select_for_update().filter(id=lease.id).order_by()
    record = held.values_list("erasure", flat=True).first()
    if record is None:
        return
    data_keys.read_use_again(lease.id)
    mark = pack_json(tombstone(record))
    for row in rows:
        row.output, row.error = (mark if kept else b"" for kept in (row.output, row.error))
