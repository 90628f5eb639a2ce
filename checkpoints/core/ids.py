"""Identifiers that sort by time: UUID version 7 of RFC 9562 (48 bits of milliseconds,
then a counter, then random bits); and ids that callers pass as a UUID or its text.
"""

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.engine.errors import UnknownThing

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """Return a new UUIDv7. Within one process each is greater than the one before, even
    inside one millisecond.
    """
    global _last
    with _lock:
        # 12 bits below the millisecond come from the clock's own fraction; a tie or a
        # clock set back counts on from the last.
        moment = max(time.time_ns() * 4096 // 1_000_000, _last + 1)
        _last = moment
    milliseconds = moment >> 12
    fraction = moment & 0xFFF
    random_bits = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    # The version 7 and the variant 0b10 have fixed places among the bits.
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= fraction << 64
    value |= 0b10 << 62
    value |= random_bits
    return UUID(int=value)


def made_at(id: UUID) -> datetime | None:
    """Return when an id was made, by the clock of the process that made it; None if it
    does not say so.
    """
    if id.version != 7:
        return None
    milliseconds = id.int >> 80
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        # Anybody may write an id, also one of a year that no calendar has.
        return None


def uuid_of(value: Any, what: str) -> UUID:
    """Return an id that is passed as a UUID or its text. Raises `UnknownThing`: a text
    that is no id names nothing.
    """
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError as error:
        raise unknown_thing(what, value) from error


def unknown_thing(what: str, value: object) -> UnknownThing:
    """Return the error that there is no such thing, in words that every log and
    database can hold.
    """
    shown = str(value)[:80].encode("utf-8", "replace").decode().replace("\x00", "?")
    return UnknownThing(f"there is no {what} {shown!r}", **{what: shown})


def is_storable(text: str) -> bool:
    """Return whether a column can hold or compare it: no NUL, and no half of a
    surrogate pair.
    """
    if "\x00" in text:
        return False
    # Most texts are ASCII, which need not be walked.
    if text.isascii():
        return True
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
