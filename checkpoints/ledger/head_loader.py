"""Loads what a lease holder needs before it works: the head and the input of its run,
verified against their seals.
"""

from typing import Any

from checkpoints import lines
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.db.rows import new_row
from checkpoints.ledger import reader
from checkpoints.ledger.checkpoint_rows import Head
from checkpoints.models import Run
from checkpoints.queue.leases import Lease
from checkpoints.sealing import run_row
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import PayloadLost, TamperedRow
from orchestrator.engine.values import canonical


def load_head(lease: Lease) -> Head:
    """Return the head of a run that has begun, once its rows are verified. One query.
    Raises `UnknownThing` if its row is gone, `TamperedRow`, `WrongKey`.
    """
    try:
        return _load_verified(lease)
    except PayloadLost:
        # A rotation of keys may have put the bytes elsewhere since the rows were read.
        return _load_verified(lease)


def _load_verified(lease: Lease) -> Head:
    rows = list(reader.range_of(lease.head))
    if not rows:
        raise TamperedRow(
            f"checkpoint {lease.head} of run {lease.key} is gone", run=str(lease.id)
        )
    newest = rows[-1]
    # The seal proves which head the run's row names, before it is compared with it.
    run_row.verify_seal(lease, event_seq=lease.end.seq, event_hash=lease.end.hash)
    is_head = (
        newest.run_id == lease.id
        and newest.line == lease.line
        and newest.content_hash == lease.head_hash
    )
    if not is_head:
        raise TamperedRow(
            f"{newest} is not the head that run {lease.key} names",
            checkpoint=str(newest.id),
        )
    head = reader.head_of(rows, lease.protection)
    if not lease.departed:
        # Else a replay would act, and a fork repeat what its origin did, if the row
        # that makes them one were taken away.
        lines.require_started(lease, first=rows[0])
    return head


def input_of(lease: Lease) -> Any:
    """Return the input of a run that has begun, as it was staged. Raises `TamperedRow`
    if it is not what the run was started with, `WrongKey`.
    """
    row = new_row(Run, id=lease.id, input=lease.input)
    input_json = read_value(row, "input")
    # No value of an encrypted run may be stored in plain, even if its hash still fits.
    if lease.protection.encrypted and lease.input[:1] != ENCRYPTED:
        raise TamperedRow(
            f"the input of run {lease.key} is not encrypted, but the run is",
            run=str(lease.id),
        )
    # The seal of the run's row covers the hash of the input, not the input itself.
    if lease.protection.digest(canonical.encode(input_json)) != lease.input_hash:
        raise TamperedRow(
            f"the input of run {lease.key} is not what it was started with",
            run=str(lease.id),
        )
    return input_json
