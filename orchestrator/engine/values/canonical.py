"""Canonical JSON and hashes: the one byte form of a value, which is stored and hashed.

UTF-8, keys sorted, no spaces, numbers as orjson writes them. It never guesses: a value
without a canonical form is refused.
"""

import hashlib
import math
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

import orjson

from orchestrator.engine.errors import InvalidValue

LARGEST = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""

DEEPEST = 100

Json = Any
"""A plain JSON value: dict with str keys, list, str, int, float, bool, None."""


def dumps(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value (tuples are lists). Raises
    `InvalidValue` naming the path of a value that is none.
    """
    return encode(normalised(value))


encode: Callable[[Json], bytes] = partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)
"""Returns the canonical bytes of a value that is known to be normalised: staged here
before, or read from canonical bytes.
"""

loads: Callable[[bytes], Json] = orjson.loads
"""Returns the value of canonical bytes."""


def digest(data: bytes) -> str:
    """Return the SHA-256 of the bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def framed(*parts: bytes | str | int | UUID | None) -> bytes:
    """Return the parts joined without ambiguity: a JSON list in which a one-item list
    holds the length of a part of bytes, then those parts. A UUID counts as its text.
    """
    head: list[Any] = []
    tail: list[bytes] = []
    for part in parts:
        if type(part) is bytes:
            head.append([len(part)])
            tail.append(part)
        else:
            head.append(part)
    return b"".join((orjson.dumps(head), *tail))


def framed_hash(*parts: bytes | str | int | UUID | None) -> str:
    """Return the SHA-256 over the framed parts, in hex."""
    return digest(framed(*parts))


def path_text(path: tuple[str | int, ...]) -> str:
    """Return a path in readable form: `rows[3].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif text:
            text += f".{part}"
        else:
            text = part
    return text


def normalised(value: Any, *, path: tuple[str | int, ...] = ()) -> Json:
    """Return the value with tuples as lists and -0.0 as 0.0, in fresh containers. Raises
    `InvalidValue` naming the path.
    """
    # A value that is in order already comes back the same from orjson, which is ten times
    # faster than a walk through it.
    try:
        data = orjson.dumps(value, option=_STRICT)
    except TypeError:
        return _normalised(value, path, 0)
    back = orjson.loads(data)
    # A text may only look like one of these; the slow way is right for it too.
    is_suspicious = b"-0.0" in data or b"\\u0000" in data
    # A tuple comes back as a list, NaN as null.
    if is_suspicious or back != value:
        return _normalised(value, path, 0)
    # So few brackets cannot be nested too deeply.
    is_shallow = data.count(b"[") + data.count(b"{") < DEEPEST
    return back if is_shallow or is_flat(back) else _normalised(value, path, 0)


_CONTAINERS = (dict, list)
_STRICT = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATACLASS
)
_STRICT |= orjson.OPT_PASSTHROUGH_DATETIME


def is_flat(value: Json) -> bool:
    """Return whether nothing is nested deeper than allowed."""
    # Level by level, for a recursion into too deep a value could end the stack.
    level: list[Json] = [value] if type(value) in _CONTAINERS else []
    for _ in range(DEEPEST):
        next_level: list[Json] = []
        for container in level:
            members = container.values() if type(container) is dict else container
            next_level += [each for each in members if type(each) in _CONTAINERS]
        level = next_level
        if not level:
            return True
    return False


def _normalised(
    value: Any,
    path: tuple[str | int, ...],
    depth: int,
) -> Json:
    kind = type(value)
    # A member of an enumeration of texts or numbers counts as its value.
    if isinstance(value, Enum) and isinstance(value, str | int | float):
        return _normalised(value.value, path, depth)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _checked_text(value, path)
    if kind is int or kind is float:
        return _checked_number(value, path)
    if depth >= DEEPEST:
        raise _refusal(path, f"is nested deeper than {DEEPEST}")
    return _normalised_container(value, path, depth + 1)


def _normalised_container(
    value: Any,
    path: tuple[str | int, ...],
    depth: int,
) -> dict[str, Json] | list[Json]:
    """Return a fresh dict or list; its members are at this depth."""
    kind = type(value)
    if kind is dict:
        fields: dict[str, Json] = {}
        for key, inner in value.items():
            text = _checked_key(key, path)
            fields[text] = _normalised(inner, (*path, key), depth)
        return fields
    if kind is list or kind is tuple:
        items: list[Json] = []
        for index, inner in enumerate(value):
            items.append(_normalised(inner, (*path, index), depth))
        return items
    reason = f"is a {kind.__name__}, which is not JSON; "
    raise _refusal(path, reason + "give the channel a type that knows it")


def _checked_number(value: float, path: tuple[str | int, ...]) -> float:
    if isinstance(value, int):
        if not -LARGEST <= value <= LARGEST:
            raise _refusal(path, "is an integer beyond ±(2^53 - 1)")
        return value
    if not math.isfinite(value):
        raise _refusal(path, f"is {value}, which JSON cannot hold")
    # -0.0 has the form of 0.0.
    return value if value else 0.0


def _checked_key(key: Any, path: tuple[str | int, ...]) -> str:
    if type(key) is not str:
        raise _refusal(path, f"has the key {key!r}; keys must be text")
    return _checked_text(key, path)


def _checked_text(value: str, path: tuple[str | int, ...]) -> str:
    if "\x00" in value:
        raise _refusal(path, "holds a NUL character")
    # ASCII text, the usual case, holds no surrogates.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _refusal(path, "holds half of a surrogate pair") from error
    return value


def _refusal(path: tuple[str | int, ...], reason: str) -> InvalidValue:
    # A key may itself be what cannot be shown, so the path is cleaned before it goes
    # into a message.
    clean: list[str | int] = []
    for part in path:
        if isinstance(part, int):
            clean.append(part)
        else:
            clean.append(str(part).encode("utf-8", "replace").decode())
    where = path_text(tuple(clean))
    message = f"{where or 'the value'} {reason}"
    return InvalidValue(
        message,
        path=where,
        reason=reason,
    )
