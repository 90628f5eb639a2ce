"""A short record of bytes that are kept elsewhere, by which they are known again: size and SHA-256. Pure."""

import hashlib

from orchestrator.engine.errors import PayloadLost

_FORM = b"\x01"
SIZE = 1 + 8 + 32
"""Bytes of a record."""


def digest_record(data: bytes) -> bytes:
    """What a row keeps of bytes that are elsewhere."""
    return _FORM + len(data).to_bytes(8, "big") + hashlib.sha256(data).digest()


def checked(name: str, data: bytes, kept: bytes) -> bytes:
    """The bytes, if they are those that were recorded. Raises `PayloadLost` saying how they differ."""
    if len(kept) != SIZE or kept[:1] != _FORM:
        raise PayloadLost(f"the row's record of payload {name} is damaged", name=name)
    size = int.from_bytes(kept[1:9], "big")
    if len(data) != size:
        raise PayloadLost(f"payload {name} has {len(data)} bytes, not the {size} that were saved", name=name)
    if hashlib.sha256(data).digest() != kept[9:]:
        raise PayloadLost(f"payload {name} holds other bytes than were saved", name=name)
    return data
