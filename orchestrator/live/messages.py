"""Messages that a client may send to a socket, read strictly: the last number it has
seen, and the rows it wants to watch.
"""

from typing import Any
from urllib.parse import parse_qs
from uuid import UUID

from checkpoints.core.strict_json import parse_strict

ROWS = 100
"""The most rows of a list that one socket may watch."""
MOST_BYTES = 16 * 1024
"""The largest message; one that watches a hundred rows has about six thousand."""
HIGHEST = 2**63 - 1
"""The highest number that a line of a log can have."""


class NotUnderstood(Exception):
    """The client sent something that this socket does not know."""


class TooLarge(Exception):
    """The message is larger than any that this socket accepts."""


def read_after(query: bytes) -> int:
    """Return the number in `?after=`, 0 if there is none. Raises `NotUnderstood`."""
    return _number_in(query, "after") or 0


def _number_in(query: bytes, name: str) -> int | None:
    """Return the number of a parameter; None if it is not there."""
    try:
        parameters = parse_qs(
            query.decode("ascii"), keep_blank_values=True, max_num_fields=10
        ).get(name)
    except ValueError as error:
        raise NotUnderstood from error
    if parameters is None:
        return None
    return read_number(parameters[0]) if len(parameters) == 1 else _refuse(parameters)


def read_comments(query: bytes) -> int | None:
    """Return the number in `?comments=`, None if there is none. Raises
    `NotUnderstood`.
    """
    return _number_in(query, "comments")


def read_number(text: str) -> int:
    """Return the number of a line, in plain digits. Raises `NotUnderstood`."""
    # The length first: Python reads no number of thousands of digits, and the database
    # none of twenty.
    if not (
        text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= HIGHEST
    ):
        raise NotUnderstood
    return int(text)


def read_watch(text: str | None) -> dict[UUID, int]:
    """Return the rows of `{"watch": {run: seq}}`. Raises `NotUnderstood`, `TooLarge`."""
    if text is None:
        raise NotUnderstood
    # Characters first, which are never more than bytes: a huge text is not even
    # encoded.
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise TooLarge
    try:
        content = parse_strict(text)
    except ValueError as error:
        raise NotUnderstood from error
    if (
        not isinstance(content, dict)
        or set(content) != {"watch"}
        or not isinstance(content["watch"], dict)
    ):
        raise NotUnderstood
    if len(content["watch"]) > ROWS:
        raise NotUnderstood
    return {_run(run): _seq(seq) for run, seq in content["watch"].items()}


def _run(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as error:
        raise NotUnderstood from error


def _seq(value: Any) -> int:
    # The type itself: true is an int to Python.
    return value if type(value) is int and 0 <= value <= HIGHEST else _refuse(value)


def _refuse(_: Any) -> Any:
    raise NotUnderstood
