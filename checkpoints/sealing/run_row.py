"""Owns the seal of a run's row: over what the run was started with, and what the row
says of head, log and decisions. It shows a row that was put back to an earlier state,
and rows that were deleted. The ledger makes it in each transaction that changes one of
these.
"""

import hmac
from typing import Any
from uuid import UUID

from django.db.models import Subquery

from checkpoints.conf import keyring
from checkpoints.models import Run, RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.erased_rows import is_erased
from checkpoints.sealing.sealed_rows import mac_of, protection_of, refuse_compromised
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical

SEALED = (
    "id",
    "key",
    "graph",
    "version",
    "fingerprint",
    "input",
    "input_hash",
    "started_by_id",
    "on_behalf_of_id",
    "encrypted",
    "hash_key",
    "payloads",
    "line",
    "head",
    "head_hash",
    "event_seq",
    "event_hash",
    "decisions",
    "imported",
    "seal",
    "seal_key",
)
"""The columns of a run's row that `verify_run_row` and `input_of` need."""


def seal_columns(
    run: Any,
    *,
    head: UUID | None,
    head_hash: str,
    event_seq: int,
    event_hash: str,
    decisions: int,
) -> dict[str, Any]:
    """Return the columns `seal` and `seal_key` of a run's row (given the run, or a
    worker's lease on it), as it will be with these values.
    """
    ring = keyring()
    data = _data(run, head, head_hash, event_seq, event_hash, decisions)
    return {"seal": ring.mac(ring.signer, data), "seal_key": ring.signer}


def verify_seal(run: Any, *, event_seq: int, event_hash: str) -> None:
    """Raise `TamperedRow` or `WrongKey` if a run's row (given the run, or a worker's
    lease on it) does not match its seal.
    """
    data = _data(run, run.head, run.head_hash, event_seq, event_hash, run.decisions)
    row_name = f"the row of run {run.key}"
    # A row without a seal names no key, and must not be refused for an unknown one.
    is_sealed = bool(run.seal) and hmac.compare_digest(
        mac_of(run.seal_key, data, lambda: row_name), bytes(run.seal)
    )
    if not is_sealed:
        raise TamperedRow(
            f"{row_name} is not as it was sealed",
            run=str(run.id),
            row=f"checkpoints_run {run.id}",
        )
    if keyring().compromised:
        # The columns that the seal covers change only together with the log, so its
        # last line says when the row was sealed.
        lines = RunEvent.objects.filter(run=run.id, seq=event_seq)
        sealed_at = lines.values_list("at", flat=True).first()
        refuse_compromised(run.seal_key, sealed_at, row_name)


def verify_run_row(run: Run) -> None:
    """Call `verify_seal` for a run's row as it was read."""
    verify_seal(run, event_seq=run.event_seq, event_hash=run.event_hash)


def input_of(run: Run) -> Any:
    """Return the input in a run's row, proven to be what it was started with. Raises
    `TamperedRow`, `WrongKey`.
    """
    verify_run_row(run)
    protection = protection_of(run)
    sealed_rows.require_protection(run, "input", bytes(run.input), protection)
    data = sealed_columns.read_bytes(run, "input")
    is_original = protection.digest(data) == run.input_hash
    # An erasure is rare, so its records are read only for an input that differs.
    if not is_original and not is_erased(run, "input", data, protection):
        row_name = sealed_rows.name_of(run)
        raise TamperedRow(
            f"the input of {row_name} is not what it was started with",
            row=row_name,
            column="input",
        )
    return canonical.loads(data) if data else None


def require_last_event(run_id: UUID) -> None:
    """Raise `TamperedRow` if the log goes on after the line that the run's row names as
    its last: the row was put back to an earlier state, with its seal of that time. One
    query.
    """
    # Read in the same statement: a commit between two would look like such a row.
    named = Subquery(Run.objects.filter(id=run_id).values("event_seq"))
    behind = (
        RunEvent.objects.filter(run=run_id, seq__gt=named)
        .order_by("seq")
        .values_list("seq", flat=True)
        .first()
    )
    if behind is not None:
        raise TamperedRow(
            f"the log of run {run_id} has line {behind}, and its row names an earlier"
            " one as the last"
        )


def _data(
    run: Any,
    head: UUID | None,
    head_hash: str,
    event_seq: int,
    event_hash: str,
    decisions: int,
) -> bytes:
    """Return the bytes that the seal covers."""
    head_id = f"{head.int:032x}" if head else None
    # A row has the id of a person beside the person, a lease instead of the person.
    if isinstance(run, Run):
        people = (run.started_by_id, run.on_behalf_of_id)
    else:
        people = (run.started_by, run.on_behalf_of)
    started_with = [
        *[None if person is None else str(person) for person in people],
        run.input_hash,
        run.version,
        run.fingerprint,
    ]
    protection = [int(run.encrypted), run.hash_key, run.payloads]
    position = [run.line, head_id, head_hash, event_seq, event_hash, decisions]
    # A lease has no such field: an imported run is never leased.
    imported = ["imported"] if getattr(run, "imported", False) else []
    # The first part keeps the seal of any other kind of record from fitting a run's
    # row.
    return canonical.framed(
        "countersign run 1",
        f"{run.id.int:032x}",
        run.key,
        run.graph,
        *started_with,
        *protection,
        *position,
        *imported,
    )
