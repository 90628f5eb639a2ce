"""Sealed payloads: bytes that were changed, moved or made under another key are refused
by name.
"""

from pathlib import Path
from typing import Any

import pytest

from checkpoints.payloads import DatabasePayloads, MemoryPayloads, SealedPayloads
from orchestrator.engine.errors import PayloadLost, WrongKey

ONE = "0190/0191/change"
OTHER = "0190/0192/change"
OLD = bytes(range(32))
NEW = bytes(range(1, 33))


class Bare(MemoryPayloads):
    """What a backend without a record of its own gives whoever writes into it."""

    def swap(self, name: str, other: str) -> None:
        self._payloads[name], self._payloads[other] = (
            self._payloads[other],
            self._payloads[name],
        )

    def spoil(self, name: str, at: int) -> None:
        data, when = self._payloads[name]
        self._payloads[name] = (
            data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
            when,
        )

    def cut(self, name: str, to: int) -> None:
        data, when = self._payloads[name]
        self._payloads[name] = (data[:to], when)

    def size(self, name: str) -> int:
        return len(self._payloads[name][0])


def test_bytes_that_changed_places_are_refused() -> None:
    bare = Bare()
    sealed = SealedPayloads(bare)
    references = sealed.put(ONE, b"mine"), sealed.put(OTHER, b"your")
    bare.swap(ONE, OTHER)
    for name, record in zip((ONE, OTHER), references, strict=True):
        with pytest.raises(
            PayloadLost, match=f"payload {name} is not as it was sealed"
        ):
            sealed.get(name, record)


def test_bytes_moved_to_another_row_are_refused() -> None:
    sealed = SealedPayloads(DatabasePayloads())
    with pytest.raises(PayloadLost, match="moved here"):
        sealed.get(OTHER, sealed.put(ONE, b"mine"))


def test_a_change_of_any_byte_is_refused() -> None:
    bare = Bare()
    sealed = SealedPayloads(bare)
    sealed.put(ONE, b"mine")
    for at in range(bare.size(ONE)):
        bare.spoil(ONE, at)
        with pytest.raises((PayloadLost, WrongKey)):
            sealed.get(ONE, b"")
        bare.spoil(ONE, at)
    assert sealed.get(ONE, b"") == b"mine"


def test_a_payload_cut_anywhere_is_refused() -> None:
    for to in range(len(b"mine") + 32):
        bare = Bare()
        sealed = SealedPayloads(bare)
        sealed.put(ONE, b"mine")
        bare.cut(ONE, to)
        with pytest.raises((PayloadLost, WrongKey)):
            sealed.get(ONE, b"")


def test_what_an_older_key_sealed_still_opens_and_without_it_does_not(
    settings: Any,
) -> None:
    sealed = SealedPayloads(MemoryPayloads())
    settings.COUNTERSIGN = {"SIGNING_KEYS": {"old": OLD}}
    reference = sealed.put(ONE, b"mine")
    settings.COUNTERSIGN = {"SIGNING_KEYS": {"old": OLD, "new": NEW}}
    assert sealed.get(ONE, reference) == b"mine"
    assert b"new" in SealedPayloads(DatabasePayloads()).put(OTHER, b"x")
    settings.COUNTERSIGN = {"SIGNING_KEYS": {"new": NEW}}
    with pytest.raises(WrongKey, match="'old'"):
        sealed.get(ONE, reference)


def test_another_key_under_the_same_id_does_not_open(settings: Any) -> None:
    sealed = SealedPayloads(MemoryPayloads())
    settings.COUNTERSIGN = {"SIGNING_KEYS": {"mine": OLD}}
    reference = sealed.put(ONE, b"mine")
    settings.COUNTERSIGN = {"SIGNING_KEYS": {"mine": NEW}}
    with pytest.raises(PayloadLost):
        sealed.get(ONE, reference)


def test_plain_bytes_are_no_sealed_payload(tmp_path: Path) -> None:
    bare = Bare()
    reference = bare.put(
        ONE, b"never sealed, but long enough to hold a seal of thirty-two bytes"
    )
    with pytest.raises(PayloadLost, match="no whole seal"):
        SealedPayloads(bare).get(ONE, reference)
