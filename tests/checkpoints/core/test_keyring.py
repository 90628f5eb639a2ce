"""Data keys in a keyring: they encrypt under their own ids, and are forgotten when
there are too many.
"""

import pytest

from checkpoints.core import keyring
from checkpoints.core.keyring import Keyring, key_of
from orchestrator.engine.errors import WrongKey

KEY = b"k" * 32


def ring() -> Keyring:
    return Keyring({"sign": KEY}, {"old": b"o" * 32, "new": b"n" * 32})


def test_what_a_data_key_encrypts_opens_with_it_alone() -> None:
    keyring = ring()
    keyring.keep_data_key("@1", KEY)
    ciphertext = keyring.lock(b"Ada", b"row", "@1")
    assert key_of(ciphertext) == "@1"
    assert keyring.open(ciphertext, b"row") == b"Ada"
    assert key_of(keyring.lock(b"Ada", b"row")) == "new"
    keyring.forget_data_key("@1")
    with pytest.raises(WrongKey):
        keyring.open(ciphertext, b"row")
    keyring.keep_data_key("@1", b"x" * 32)
    with pytest.raises(WrongKey):
        keyring.open(ciphertext, b"row")


def test_a_ring_keeps_no_more_data_keys_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyring, "MOST_DATA_KEYS", 3)
    small_ring = ring()
    for number in range(10):
        small_ring.keep_data_key(f"@{number}", KEY)
        small_ring.lock(b"Ada", b"row", f"@{number}")
    assert list(small_ring.data_keys) == ["@7", "@8", "@9"]
    assert {name for name in small_ring._ciphers if name[0] == "@"} == {
        "@7",
        "@8",
        "@9",
    }
