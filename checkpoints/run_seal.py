"""The seal of a run's row: over what the row says of head, log and decisions. It shows a row that was put back to an
earlier state, and rows that were deleted. The ledger makes it in each transaction that changes one of these.
"""

import hmac
from datetime import datetime
from typing import Any
from uuid import UUID

from checkpoints.conf import keyring
from checkpoints.models import Run, RunEvent
from checkpoints.sealing import mac_of, refuse_compromised
from orchestrator.engine import canonical
from orchestrator.engine.errors import TamperedRow


def columns(
    run: UUID,
    *,
    graph: str,
    line: int,
    head: UUID | None,
    head_hash: str,
    event_seq: int,
    event_hash: str,
    decisions: int,
) -> dict[str, Any]:
    """The columns `seal` and `seal_key` for these."""
    ring = keyring()
    data = _data(run, graph, line, head, head_hash, event_seq, event_hash, decisions)
    return {"seal": ring.mac(ring.signer, data), "seal_key": ring.signer}


def verify(run: Any, *, event_seq: int, event_hash: str, at: datetime | None) -> None:
    """Raise `TamperedRow` or `WrongKey` where the row of a run (or of whoever holds it) is not as it was sealed.

    `at` is when it was written last, for keys that are compromised from a moment on.
    """
    data = _data(run.id, run.graph, run.line, run.head, run.head_hash, event_seq, event_hash, run.decisions)
    what = f"the row of run {run.key}"
    if not run.seal or not hmac.compare_digest(mac_of(run.seal_key, data, what), bytes(run.seal)):
        raise TamperedRow(f"{what} is not as it was sealed", run=str(run.id))
    refuse_compromised(run.seal_key, at, what)


def verify_row(run: Run) -> None:
    """`verify` for a run's row as it was read, at any time."""
    at = None
    if keyring().compromised:
        # What the seal covers changes only together with the log.
        at = RunEvent.objects.filter(run=run.id, seq=run.event_seq).values_list("at", flat=True).first()
    verify(run, event_seq=run.event_seq, event_hash=run.event_hash, at=at)


def _data(
    run: UUID, graph: str, line: int, head: UUID | None, head_hash: str, event_seq: int, event_hash: str, decisions: int
) -> bytes:
    named = head.hex if head else None
    return canonical.framed(
        "countersign run 1", run.hex, graph, line, named, head_hash, event_seq, event_hash, decisions
    )
