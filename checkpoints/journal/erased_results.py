"""The erasure of results that arrive after their run was erased."""

from collections.abc import Sequence

from checkpoints.core.tombstone import tombstone
from checkpoints.models import LateResult, Run
from checkpoints.queue.leases import Lease
from checkpoints.sealing import data_keys
from checkpoints.sealing.sealed_columns import pack_json


def drop_erased(lease: Lease, rows: Sequence[LateResult]) -> None:
    """Replace the contents of late results by tombstones if their run is erased, or is
    being erased. The run is locked, so that an erasure that begins later finds the
    others.
    """
    locked_run = Run.objects.select_for_update().filter(id=lease.id).order_by()
    record = locked_run.values_list("erasure", flat=True).first()
    if record is None:
        return
    # The erasure, in another process, may have retired the run's data key.
    data_keys.read_use_again(lease.id)
    mark = pack_json(tombstone(record))
    for row in rows:
        if row.output:
            row.output = mark
        if row.error:
            row.error = mark
