"""What nobody sends by mistake, and somebody sends on purpose: for addresses, forms, and bodies in JSON."""

import json
from typing import Any

EDGE = "0001-01-01T00:00:00+23:59"
"""A moment that is before the first in another time zone."""
LATE = "9999-12-31T23:59:59.999999-23:59"
SOME_ID = "01890000-0000-7000-8000-000000000000"

TEXTS: list[str] = [
    "", "0", "-1", "1", str(2**31), str(2**63 - 1), str(2**63), str(10**30), "9" * 5000, "-" + "9" * 5000, "1.5",
    "1e999", "NaN", "Infinity", "٣", "²", "１２", " 7 ", "\x00", "a\x00b", "\ud800", "a\udfffb", "\ufeff",
    "\u202e", "💥",
    "'\"<>&%;--", "%", "_", "\\", "..", "{", "[" * 300, "x" * 4000, "null", "true", SOME_ID, "f" * 32,
    "{" + SOME_ID + "}",
    f"{EDGE}~{SOME_ID}", f"{LATE}~{SOME_ID}", EDGE, LATE, "2026-02-30", "0000-01-01", "9999-12-31", "10000-01-01",
    "9999-12-31T23:59:59-23:59", "0001-01-01", "2026-01-01T00:00:00+99:99", "CLM-1:at-" + "9" * 30,
    "CLM-1:line-9:step-" + "9" * 5000,
    "CLM-1:at-٣", "cD0yMDI2", "cD0lMDA=", f"{SOME_ID}.raw.{'9' * 6}",
]  # fmt: skip
"""As parts of an address or fields of a form. Half a surrogate goes out as the three bytes that stand for it."""

VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 2**31, 2**53 + 1, 2**63, 10**30, -(10**30), 1e308, "", "\x00", "\ud800", "x" * 20_000, "٣",
    [], {}, [[]], {"": None}, {"\x00": 1}, {"\ud800": 1},
    json.loads("[" * 120 + "]" * 120), EDGE, LATE, SOME_ID, "9" * 5000,
]  # fmt: skip
"""As a field of a body in JSON."""

BODIES: list[bytes] = [
    b"", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"null", b"[]", b'"x"', b"NaN", b"-Infinity", b"{", b'{"a":',
    b"9" * 6000,
    b"[" * 100_000, b'{"a":' * 50_000, b'{"a": Infinity}', b'{"a": ' + b"9" * 6000 + b"}", b'{"\\ud800": 1}',
    b'{"\\u0000": 1}',
    b'{"a": 1, "a": 2}', b"{}", b'{"decisions": [{}]}', b'{"decisions": {}}', b'{"decisions": [1]}',
]  # fmt: skip
"""As a whole body."""
