"""The seal of a run's row: over what the run was started with, and what the row says of head, log and decisions. It
shows a row that was put back to an earlier state, and rows that were deleted. The ledger makes it in each transaction
that changes one of these.
"""

import hmac
from typing import Any
from uuid import UUID

from django.db.models import Subquery

from checkpoints.conf import keyring
from checkpoints.models import Run, RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import mac_of, protection_of, refuse_compromised
from orchestrator.engine import canonical
from orchestrator.engine.errors import TamperedRow

SEALED = (
    "id", "key", "graph", "version", "fingerprint", "input", "input_hash", "started_by_id", "on_behalf_of_id",
    "encrypted", "hash_key", "payloads", "line", "head", "head_hash", "event_seq", "event_hash", "decisions",
    "imported", "seal", "seal_key",
)  # fmt: skip
"""What `verify_run_row` and `input_of` need of a run's row."""


def seal_columns(
    run: Any, *, head: UUID | None, head_hash: str, event_seq: int, event_hash: str, decisions: int
) -> dict[str, Any]:
    """The columns `seal` and `seal_key` of the row of a run (or of whoever holds it), as it will stand with these."""
    ring = keyring()
    data = _data(run, head, head_hash, event_seq, event_hash, decisions)
    return {"seal": ring.mac(ring.signer, data), "seal_key": ring.signer}


def verify_seal(run: Any, *, event_seq: int, event_hash: str) -> None:
    """Raise `TamperedRow` or `WrongKey` where the row of a run (or of whoever holds it) is not as it was sealed."""
    data = _data(run, run.head, run.head_hash, event_seq, event_hash, run.decisions)
    what = f"the row of run {run.key}"
    if not run.seal or not hmac.compare_digest(mac_of(run.seal_key, data, lambda: what), bytes(run.seal)):
        raise TamperedRow(f"{what} is not as it was sealed", run=str(run.id), row=f"checkpoints_run {run.id}")
    if keyring().compromised:
        # What the seal covers changes only together with the log.
        at = RunEvent.objects.filter(run=run.id, seq=event_seq).values_list("at", flat=True).first()
        refuse_compromised(run.seal_key, at, what)


def verify_run_row(run: Run) -> None:
    """`verify_seal` for a run's row as it was read."""
    verify_seal(run, event_seq=run.event_seq, event_hash=run.event_hash)


def input_of(run: Run) -> Any:
    """The input in a run's row, proven to be what it was started with. Raises `TamperedRow`, `WrongKey`."""
    verify_run_row(run)
    sealed_rows.require_protection(run, "input", bytes(run.input), protection_of(run))
    data = sealed_columns.read_bytes(run, "input")
    if protection_of(run).digest(data) != run.input_hash:
        what = sealed_rows.name_of(run)
        raise TamperedRow(f"the input of {what} is not what it was started with", row=what, column="input")
    return canonical.loads(data) if data else None


def require_last_event(run_id: UUID) -> None:
    """Raise `TamperedRow` where the log goes on behind the line that the run's row names as its last: the row was put
    back to an earlier state, under the seal of then. One query.
    """
    named = Subquery(Run.objects.filter(id=run_id).values("event_seq"))
    behind = RunEvent.objects.filter(run=run_id, seq__gt=named).order_by("seq").values_list("seq", flat=True).first()
    if behind is not None:
        raise TamperedRow(f"the log of run {run_id} has line {behind}, and its row names an earlier one as the last")


def _data(run: Any, head: UUID | None, head_hash: str, event_seq: int, event_hash: str, decisions: int) -> bytes:
    named = head.hex if head else None
    started = [_person(run, "started_by"), _person(run, "on_behalf_of"), run.input_hash, run.version, run.fingerprint]
    protection = [int(run.encrypted), run.hash_key, run.payloads]
    stands = [run.line, named, head_hash, event_seq, event_hash, decisions]
    # No lease is ever on a run that was imported; the seals of all others are as they were before runs were.
    imported = ["imported"] if getattr(run, "imported", False) else []
    return canonical.framed(
        "countersign run 1", run.id.hex, run.key, run.graph, *started, *protection, *stands, *imported
    )


def _person(run: Any, name: str) -> str | None:
    """The id of a person: a row keeps it beside the person, a hold has nothing but it."""
    found = getattr(run, f"{name}_id") if isinstance(run, Run) else getattr(run, name)
    return None if found is None else str(found)
