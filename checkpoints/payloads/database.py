"""The default backend: the row itself holds the bytes, so both phases of a commit are
one transaction.
"""

from collections.abc import Iterable
from datetime import datetime


class DatabasePayloads:
    """A backend that stores everything in the row."""

    in_row = True

    def put(self, name: str, data: bytes) -> bytes:
        return data

    def get(self, name: str, kept: bytes) -> bytes:
        return kept

    def delete(self, name: str, kept: bytes) -> None:
        """The row's own deletion takes the bytes with it."""

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        return ()
