"""A short record of bytes that are stored elsewhere, by which they are recognized: size
and SHA-256. Pure.
"""

import hashlib

from orchestrator.engine.errors import PayloadLost

_FORM = b"\x01"
SIZE = 1 + 8 + 32
"""Bytes of a record."""


def digest_record(data: bytes) -> bytes:
    """Return the record of bytes that are stored elsewhere."""
    size = len(data).to_bytes(8, "big")
    return _FORM + size + hashlib.sha256(data).digest()


def checked(name: str, data: bytes, record: bytes) -> bytes:
    """Return the bytes, if they are those that were recorded. Raises `PayloadLost`
    saying how they differ.
    """
    if len(record) != SIZE or record[:1] != _FORM:
        raise PayloadLost(f"the row's record of payload {name} is damaged", name=name)
    # Bytes that were cut off are named as such, before the hash is computed.
    size = int.from_bytes(record[1:9], "big")
    if len(data) != size:
        raise PayloadLost(
            f"payload {name} has {len(data)} bytes, not the {size} that were saved",
            name=name,
        )
    if hashlib.sha256(data).digest() != record[9:]:
        raise PayloadLost(
            f"payload {name} holds other bytes than were saved", name=name
        )
    return data
