"""Why a run stopped, as the run's row keeps it: `error` (encrypted where the run is) and `error_code`."""

from typing import Any
from uuid import UUID

from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import WrongKey


def error_columns(run: UUID, error: dict[str, Any], protection: Protection) -> dict[str, Any]:
    """The columns that say why a run stopped. Where there is no key to encrypt them with, the code alone says it."""
    try:
        kept = sealed_rows.encrypted(Run(id=run), "error", pack_json(error), protection)
    except WrongKey:
        kept = b""
    return {"error": kept, "error_code": str(error["code"])}


def stored_error(run: Run) -> dict[str, Any] | None:
    """Why a run stopped: {code, message, node, task, type, attempt, traceback}, or None."""
    error: dict[str, Any] | None = read_value(run, "error")
    return error
