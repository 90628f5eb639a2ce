"""What a holder reads before he works: the head and the input of his run, proven to be what was sealed."""

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
from orchestrator.engine import canonical
from orchestrator.engine.errors import PayloadLost, TamperedRow


def load_head(lease: Lease) -> Head:
    """The head of a begun run, once its rows prove to be what was sealed. One query. Raises `UnknownThing` where its
    row is gone, `TamperedRow`, `WrongKey`.
    """
    try:
        return _loaded(lease)
    except PayloadLost:
        # A rotation of keys may have put the bytes elsewhere since the rows were read.
        return _loaded(lease)


def _loaded(lease: Lease) -> Head:
    rows = list(reader.range_of(lease.head))
    if not rows:
        raise TamperedRow(f"checkpoint {lease.head} of run {lease.key} is gone", run=str(lease.id))
    newest = rows[-1]
    run_row.verify_seal(lease, event_seq=lease.end.seq, event_hash=lease.end.hash)
    if (newest.run_id, newest.line, newest.content_hash) != (lease.id, lease.line, lease.head_hash):
        raise TamperedRow(f"{newest} is not the head that run {lease.key} names", checkpoint=str(newest.id))
    head = reader.head_of(rows, lease.protection)
    if not lease.departed:
        # Else a replay would act, and a fork repeat what its origin did, where somebody took away what says so.
        lines.require_started(lease, first=rows[0])
    return head


def input_of(lease: Lease) -> Any:
    """The input of a begun run, as it was staged. Raises `TamperedRow` where it is not what the run was started with,
    `WrongKey`.
    """
    row = new_row(Run, id=lease.id, input=lease.input)
    given = read_value(row, "input")
    if lease.protection.encrypted and lease.input[:1] != ENCRYPTED:
        raise TamperedRow(f"the input of run {lease.key} is not encrypted, but the run is", run=str(lease.id))
    if lease.protection.digest(canonical.encode(given)) != lease.input_hash:
        raise TamperedRow(f"the input of run {lease.key} is not what it was started with", run=str(lease.id))
    return given
