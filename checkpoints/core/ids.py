"""Identifiers that sort by time: UUID version 7 of RFC 9562 (48 bits of milliseconds, then a counter, then chance)."""

import os
import threading
import time
from uuid import UUID

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
