"""Canonical JSON and hashes: the one byte form of a value, which is stored and hashed. Everybody calls it.

UTF-8, keys sorted, no spaces, numbers as orjson writes them. It never guesses: what has no canonical form is refused.
"""

import hashlib
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
    """The canonical bytes of a JSON value (tuples are lists). Raises `InvalidValue` naming the path of what is none."""
    return encode(normalised(value))


encode: Callable[[Json], bytes] = partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)
"""The canonical bytes of a value that is known to be normalised: staged here before, or read from canonical bytes."""

loads: Callable[[bytes], Json] = orjson.loads
"""The value of canonical bytes."""


def digest(data: bytes) -> str:
    """SHA-256 of the bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def framed(*parts: bytes | str | int | UUID | None) -> bytes:
    """The parts in one unambiguous row: a JSON list in which a one-item list holds the length of a part of bytes, then
    those parts. A UUID counts as its text.
    """
    tail = [part for part in parts if type(part) is bytes]
    head = [[len(part)] if type(part) is bytes else part for part in parts] if tail else parts
    return b"".join((orjson.dumps(head), *tail))


def framed_hash(*parts: bytes | str | int | UUID | None) -> str:
    """SHA-256 over the framed parts, in hex."""
    return digest(framed(*parts))


def path_text(path: tuple[str | int, ...]) -> str:
    """A path as people read it: `rows[3].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def normalised(value: Any, *, path: tuple[str | int, ...] = ()) -> Json:
    """The value with tuples as lists and -0.0 as 0.0, in fresh containers. Raises `InvalidValue` naming the path."""
    quick = _quick(value)
    return _normalised(value, path, 0) if quick is _SLOW else quick


_SLOW = object()
_STRICT = orjson.OPT_STRICT_INTEGER | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
_STRICT |= orjson.OPT_PASSTHROUGH_DATETIME


def _quick(value: Any) -> Json:
    """Ten times faster for what is in order already: written and read back by orjson, it is the same. Else `_SLOW`."""
    try:
        data = orjson.dumps(value, option=_STRICT)
    except TypeError:
        return _SLOW
    if b"-0.0" in data or b"\\u0000" in data:
        return _SLOW
    back = orjson.loads(data)
    shallow = data.count(b"[") + data.count(b"{") < DEEPEST
    return back if back == value and (shallow or is_flat(back)) else _SLOW


def is_flat(value: Json) -> bool:
    """Whether nothing is nested deeper than allowed."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(DEEPEST):
        inner = [one for box in level for one in (box.values() if type(box) is dict else box)]
        level = [one for one in inner if type(one) is dict or type(one) is list]
        if not level:
            return True
    return False


def _normalised(value: Any, path: tuple[str | int, ...], depth: int) -> Json:
    kind = type(value)
    if isinstance(value, Enum) and isinstance(value, str | int | float):
        return _normalised(value.value, path, depth)
    if kind is str:
        return _text(value, path)
    if kind is int:
        return value if -LARGEST <= value <= LARGEST else _refuse(path, "is an integer beyond ±(2^53 - 1)")
    if value is None or kind is bool:
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            _refuse(path, f"is {value}, which JSON cannot hold")
        return value if value else 0.0
    if depth >= DEEPEST:
        return _refuse(path, f"is nested deeper than {DEEPEST}")
    if kind is dict:
        return {_key(k, path): _normalised(v, (*path, k), depth + 1) for k, v in value.items()}
    if kind is list or kind is tuple:
        return [_normalised(v, (*path, n), depth + 1) for n, v in enumerate(value)]
    return _refuse(path, f"is a {kind.__name__}, which is not JSON; give the channel a type that knows it")


def _key(key: Any, path: tuple[str | int, ...]) -> str:
    if type(key) is not str:
        return str(_refuse(path, f"has the key {key!r}; keys must be text"))
    return _text(key, path)


def _text(value: str, path: tuple[str | int, ...]) -> str:
    if "\x00" in value:
        _refuse(path, "holds a NUL character")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            _refuse(path, "holds half of a surrogate pair")
    return value


def _refuse(path: tuple[str | int, ...], reason: str) -> Json:
    # A key may itself be what cannot be shown, so the path is cleaned before it goes into a message.
    where = path_text(tuple(p if isinstance(p, int) else str(p).encode("utf-8", "replace").decode() for p in path))
    raise InvalidValue(f"{where or 'the value'} {reason}", path=where, reason=reason)
