"""The backends that store the bytes of checkpoints. Rows live in the Django database;
these store what the rows point to.
"""

from checkpoints.payloads.base import PayloadBackend, check_name
from checkpoints.payloads.columns import (
    delete_payload,
    get_payload,
    name_of,
    put_payload,
    where,
)
from checkpoints.payloads.database import DatabasePayloads
from checkpoints.payloads.files import FilePayloads
from checkpoints.payloads.memory import MemoryPayloads
from checkpoints.payloads.registry import DATABASE, backend, backends, chosen, lend
from checkpoints.payloads.sealed import SealedPayloads

__all__ = [
    "DATABASE",
    "DatabasePayloads",
    "FilePayloads",
    "MemoryPayloads",
    "PayloadBackend",
    "SealedPayloads",
    "backend",
    "backends",
    "check_name",
    "chosen",
    "delete_payload",
    "get_payload",
    "lend",
    "name_of",
    "put_payload",
    "where",
]
