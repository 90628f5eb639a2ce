"""Values as payload columns keep them: canonical JSON, packed. The one place where rows and values meet."""

from typing import Any

from django.db.models import Model

from checkpoints import sealing
from checkpoints.core import codec
from orchestrator.engine import canonical


def pack(value: Any) -> bytes:
    """What a payload column keeps for a JSON value. Raises `InvalidValue` where the value has no canonical form."""
    return codec.pack(canonical.dumps(value))


def unpack(kept: bytes | memoryview) -> Any:
    """The JSON value of a payload column; None for an empty column. Raises `codec.UnknownFormat`."""
    data = bytes(kept)
    return canonical.loads(codec.unpack(data)) if data else None


def value(row: Model, column: str) -> Any:
    """The JSON value of a row's payload column, decrypted where it is encrypted; None for an empty column. Raises
    `codec.UnknownFormat`, `TamperedRow`, `WrongKey`.
    """
    return unpack(sealing.opened(row, column))
