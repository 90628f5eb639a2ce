"""How many bytes of values a piece of work gets from the database, whichever one it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from django.db.backends.utils import CursorWrapper

FETCHES = ("fetchone", "fetchmany", "fetchall")


@dataclass
class Fetched:
    """Bytes of binary values and characters of texts; other values are as small as
    their columns.
    """

    bytes: int = 0

    def add(self, value: Any) -> None:
        if isinstance(value, bytes | memoryview | str):
            self.bytes += len(value)
        elif isinstance(value, list | tuple):
            for each in value:
                self.add(each)


@contextmanager
def counting() -> Iterator[Fetched]:
    """Count what Django's cursors give within the block."""
    counted = Fetched()
    plain = CursorWrapper.__getattr__

    def watched(cursor: CursorWrapper, name: str) -> Any:
        value = plain(cursor, name)
        return _counted(value, counted) if name in FETCHES else value

    with patch.object(CursorWrapper, "__getattr__", watched):
        yield counted


def _counted(fetch: Callable[..., Any], counted: Fetched) -> Callable[..., Any]:
    def act(*arguments: Any) -> Any:
        rows = fetch(*arguments)
        counted.add(rows)
        return rows

    return act
