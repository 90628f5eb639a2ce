"""What a holder reads before he works: the head and the input of his run, proven to be what was sealed."""

from typing import Any

from checkpoints.core.keyring import LOCKED
from checkpoints.db import statements as sql
from checkpoints.ledger import reader as folding
from checkpoints.ledger.checkpoint_rows import Head
from checkpoints.models import Run
from checkpoints.queue.leases import Hold
from checkpoints.sealing import run_row as run_seal
from checkpoints.sealing.sealed_columns import value
from orchestrator.engine import canonical
from orchestrator.engine.errors import PayloadLost, TamperedRow


def load(hold: Hold) -> Head:
    """The head of a begun run, once its rows prove to be what was sealed. One query. Raises `UnknownThing` where its
    row is gone, `TamperedRow`, `WrongKey`.
    """
    try:
        return _loaded(hold)
    except PayloadLost:
        # A rotation of keys may have put the bytes elsewhere since the rows were read.
        return _loaded(hold)


def _loaded(hold: Hold) -> Head:
    rows = list(folding.range_of(hold.head))
    if not rows:
        raise TamperedRow(f"checkpoint {hold.head} of run {hold.key} is gone", run=str(hold.id))
    newest = rows[-1]
    run_seal.verify(hold, event_seq=hold.end.seq, event_hash=hold.end.hash)
    if (newest.run_id, newest.line, newest.content_hash) != (hold.id, hold.line, hold.head_hash):
        raise TamperedRow(f"{newest} is not the head that run {hold.key} names", checkpoint=str(newest.id))
    return folding.head_of(rows, hold.cover)


def input_of(hold: Hold) -> Any:
    """The input of a begun run, as it was staged. Raises `TamperedRow` where it is not what the run was started with,
    `WrongKey`.
    """
    row = sql.new(Run, id=hold.id, input=hold.input)
    given = value(row, "input")
    if hold.cover.encrypted and hold.input[:1] != LOCKED:
        raise TamperedRow(f"the input of run {hold.key} is not encrypted, but the run is", run=str(hold.id))
    if hold.cover.digest(canonical.encode(given)) != hold.input_hash:
        raise TamperedRow(f"the input of run {hold.key} is not what it was started with", run=str(hold.id))
    return given
