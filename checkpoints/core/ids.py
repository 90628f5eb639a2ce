"""Identifiers that sort by time: UUID version 7 of RFC 9562 (48 bits of milliseconds, then a counter, then chance); and
what callers give for one, as a UUID or its text.
"""

import os
import threading
import time
from typing import Any
from uuid import UUID

from orchestrator.engine.errors import UnknownThing

_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """A new UUIDv7. Within one process each is greater than the one before, also inside one millisecond."""
    global _last
    with _lock:
        # 12 bits below the millisecond come from the clock's own fraction; a tie or a clock set back counts on from
        # the last.
        moment = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
        _last = moment
    milliseconds, fraction = moment >> 12, moment & 0xFFF
    chance = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return UUID(int=(milliseconds & ((1 << 48) - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | chance)


def uuid_of(value: Any, what: str) -> UUID:
    """The id that a UUID or its text is. Raises `UnknownThing`, for what is no id names nothing."""
    try:
        return value if isinstance(value, UUID) else UUID(str(value))
    except ValueError as error:
        raise unknown_thing(what, value) from error


def unknown_thing(what: str, value: object) -> UnknownThing:
    """That there is none, in words that every log and database can hold."""
    shown = str(value)[:80].encode("utf-8", "replace").decode().replace("\x00", "?")
    return UnknownThing(f"there is no {what} {shown!r}", **{what: shown})


def is_storable(text: str) -> bool:
    """Whether a column can hold or compare it: no NUL, and no half of a surrogate pair."""
    return "\x00" not in text and (text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text))
