"""The contract of a payload backend: put, get, delete under insert-only names. Docs:
docs/payloads.md.

The ledger and the store call backends; `conformance.check_payloads` tests one. A
backend knows names and bytes only: no rows, no runs, no keys.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from orchestrator.engine.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9_~-]{1,80}(/[A-Za-z0-9_~-]{1,80}){0,5}")


class PayloadBackend(Protocol):
    """A store of bytes under names that are never used again for other bytes.

    `put` must be durable when it returns, or be part of the caller's transaction. Its
    result is stored in the checkpoint's row and passed to `get` and `delete` as `kept`:
    all of the bytes, or as little as the backend needs to find and check them. Threads
    of several processes call a backend at once.
    """

    in_row: bool
    """True if the result of `put` is all that is stored: then there is nothing to sweep,
    and the row's transaction is the backend's too.
    """

    def put(self, name: str, data: bytes) -> bytes:
        """Store the bytes. The same bytes again are no error; others raise
        `PayloadTaken` and change nothing.
        """
        ...

    def get(self, name: str, kept: bytes) -> bytes:
        """Return the bytes as they were put. Raises `PayloadLost` if they are gone or
        have changed.
        """
        ...

    def delete(self, name: str, kept: bytes) -> None:
        """Delete the bytes. A missing name is no error. `kept` is empty if there is no
        longer a row.
        """
        ...

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        """Return the names whose bytes were put before that moment, for the sweep; with
        `folder` only those of which it is the first part, at no cost for others. None
        for `in_row`.
        """
        ...


def check_name(name: str) -> str:
    """Return the name if it is valid: 1 to 6 parts of letters, digits, `_`, `~` and
    `-`, separated by `/`. Raises `InvalidValue`. So no name is a path that leads
    elsewhere, whatever a backend does with it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        form = "parts of letters, digits, _ ~ - with / between"
        raise InvalidValue(f"{str(name)[:100]!r} is no name for a payload: {form}")
    return name
