"""Where the bytes of checkpoints are kept. Rows live in the Django database; these keep what the rows point to."""

from checkpoints.payloads.base import PayloadBackend
from checkpoints.payloads.database import DatabasePayloads

__all__ = ["DatabasePayloads", "PayloadBackend", "backend"]


def backend(name: str) -> PayloadBackend:
    """The backend of that name. Raises `KeyError` for an unknown one: a graph's choice is checked when it is
    registered.
    """
    return _BACKENDS[name]


_BACKENDS: dict[str, PayloadBackend] = {"database": DatabasePayloads()}
