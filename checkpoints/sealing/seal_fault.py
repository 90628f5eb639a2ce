"""Owns the fault of a row that does not match its seal, for lists: they mark the row
and go on, because one row must not hide others.
"""

from typing import Any

from django.db.models import Model

from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import CountersignError, TamperedRow
from orchestrator.engine.frozen import frozen


@frozen
class SealFault:
    """Why a row that is shown does not prove to be what was written. `code` is that of
    the refusal: `tampered_row`; `wrong_key` if a missing key leaves that open;
    `older_seal` if the row waits to be resealed. `row` names the row by table and
    identity.
    """

    code: str
    row: str
    reason: str

    @property
    def tampered(self) -> bool:
        """Return whether the row was changed, as far as this can be known now."""
        return self.code == TamperedRow.code_of_class

    def json(self) -> dict[str, str]:
        """Return the fault for machines."""
        return {"code": self.code, "row": self.row, "reason": self.reason}


def fault_of(row: Model, protection: Protection) -> SealFault | None:
    """Return the fault of a row of a run with this protection; None if it matches its
    seal. No query for a sound row whose columns were all read.
    """
    try:
        sealed_rows.verify_row(row, protection)
    except CountersignError as error:
        return SealFault(error.code, sealed_rows.name_of(row), error.message)
    return None


def json_of(fault: SealFault | None) -> dict[str, Any] | None:
    """Return a fault for machines: {code, row, reason}; None for none."""
    return fault.json() if fault else None
