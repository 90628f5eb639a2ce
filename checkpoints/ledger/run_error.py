"""Why a run stopped, as the run's row keeps it: `error` (encrypted if the run is) and
`error_code`.
"""

from typing import Any
from uuid import UUID

from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import WrongKey

RESTORED = "database_restored"
"""The code of a run that stopped because a copy of the database was put back."""


def error_columns(
    run: UUID,
    error: dict[str, Any],
    protection: Protection,
) -> dict[str, Any]:
    """Return the columns that record why a run stopped: the code alone if there is no
    key to encrypt the rest with.
    """
    try:
        packed = sealed_rows.encrypted(
            Run(id=run), "error", pack_json(error), protection
        )
    # A missing key is what such a run may stop for, and it must stop all the same.
    except WrongKey:
        packed = b""
    return {"error": packed, "error_code": str(error["code"])}


def stored_error(run: Run) -> dict[str, Any] | None:
    """Return why a run stopped, {code, message, node, task, type, attempt, traceback},
    or None.
    """
    error: dict[str, Any] | None = read_value(run, "error")
    return error
