"""The contract of a payload backend: put, get, delete under insert-only names. Docs: docs/payloads.md.

The ledger and the store call backends; `conformance.check_payloads` tests one. A backend knows names and bytes only: no
rows, no runs, no keys.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from orchestrator.engine.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9_~-]{1,80}(/[A-Za-z0-9_~-]{1,80}){0,5}")


class PayloadBackend(Protocol):
    """Keeps bytes under names that are never used for other bytes.

    `put` must be durable when it returns, or be part of the caller's transaction. What `put` returns is kept in the
    checkpoint's row and handed back to `get` and `delete`: all of the bytes, or as little as the backend needs to find
    and check them. Threads of several processes call it at once.
    """

    in_row: bool
    """What `put` returns is all that there is: nothing to sweep, and the row's transaction is the backend's too."""

    def put(self, name: str, data: bytes) -> bytes:
        """Keep the bytes. The same bytes again are no error; others raise `PayloadTaken` and change nothing."""
        ...

    def get(self, name: str, kept: bytes) -> bytes:
        """The bytes as they were put. Raises `PayloadLost` where they are gone or not what they were."""
        ...

    def delete(self, name: str, kept: bytes) -> None:
        """Forget the bytes. A name that is not there is no error. `kept` is empty where no row is left."""
        ...

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        """Names whose bytes were put before that moment: what the sweep looks through; with `folder` those of which it
        is the first part, at no cost for others. Empty for `in_row`.
        """
        ...


def check_name(name: str) -> str:
    """The name, if it is one: 1 to 6 parts of letters, digits, `_`, `~` and `-`, with `/` between. Raises
    `InvalidValue`. So no name is a path to somewhere else, whatever a backend makes of it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        form = "parts of letters, digits, _ ~ - with / between"
        raise InvalidValue(f"{str(name)[:100]!r} is no name for a payload: {form}")
    return name
