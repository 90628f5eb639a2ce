"""Keys by their ids: what seals, what encrypts, what is not to be trusted any more. Pure; `conf` makes the ring.

The newest key of a kind, the last one given, makes, unless it is compromised; all of them check and open. The
primitives are `cryptography`'s.
"""

import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from orchestrator.engine.errors import TamperedRow, WrongKey

ENCRYPTED = b"\x03"
"""The format byte of encrypted bytes. Then: length and text of the key's id, four bytes that tell this key from another
under the same id, the nonce, the sealed bytes with their tag.
"""
KEY_BYTES = 32
MARK_BYTES = 4
FINGERPRINT_BYTES = 8
NONCE_BYTES = 12
TAG_BYTES = 16
DATA_KEY = "@"
"""How the id of a data key begins: of a key that encrypts one run's payloads, and is itself kept encrypted."""
LONGEST_KEY_ID = 40
"""Characters of the id of a key in the settings."""
MOST_DATA_KEYS = 1000
"""Data keys that a process keeps unwrapped."""


def derived(secret: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose, from a secret (HKDF with SHA-256, RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose.encode()).derive(secret)


@dataclass(frozen=True)
class Keyring:
    """Keys by id, in the order in which they came; `compromised` says from when on a signing key proves nothing."""

    signing: Mapping[str, bytes]
    encryption: Mapping[str, bytes] = field(default_factory=dict)
    compromised: Mapping[str, datetime] = field(default_factory=dict)

    @cached_property
    def signer(self) -> str:
        """The id of the newest signing key that is not compromised. Raises `WrongKey` where there is none."""
        trusted = [key_id for key_id in self.signing if key_id not in self.compromised]
        if not trusted:
            raise WrongKey("every signing key is compromised; add a new one to COUNTERSIGN['SIGNING_KEYS']")
        return trusted[-1]

    @cached_property
    def encrypter(self) -> str:
        """The id of the newest encryption key. Raises `WrongKey` where there is none."""
        if not self.encryption:
            raise WrongKey("there is no encryption key; name one in COUNTERSIGN['ENCRYPTION_KEYS']")
        return list(self.encryption)[-1]

    def mac(self, key_id: str, data: bytes) -> bytes:
        """HMAC-SHA256 of the data under a signing key. Raises `WrongKey` for an unknown id."""
        key = self.signing.get(key_id)
        if key is None:
            raise WrongKey(f"signing key {key_id!r} is not configured", key=key_id)
        return hmac.digest(key, data, "sha256")

    def keyed_hash(self, key_id: str, data: bytes) -> str:
        """HMAC-SHA256 in hex, under a key derived from an encryption key: it tells nothing to whoever lacks the key."""
        key = self._hashers.get(key_id)
        if key is None:
            key = self._hashers[key_id] = derived(self._key(key_id), "countersign hash")
        return hmac.digest(key, data, "sha256").hex()

    def lock(self, data: bytes, name: bytes, under: str = "") -> bytes:
        """The data encrypted under the newest key, or the data key of this id; it opens under the same `name` only."""
        cipher, head = self._cipher(under or self.encrypter)
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + cipher.encrypt(nonce, data, head + name)

    def open(self, kept: bytes, name: bytes) -> bytes:
        """What `lock` was given. Raises `WrongKey` for an unknown key or another under its id, else `TamperedRow`."""
        key_id, head, nonce, sealed = _parts(kept)
        cipher, known = self._cipher(key_id)
        if head != known:
            raise WrongKey(f"encryption key {key_id!r} is not the one that made this", key=key_id)
        try:
            return cipher.decrypt(nonce, sealed, head + name)
        except InvalidTag as error:
            raise TamperedRow("it was changed, or moved here from another row", key=key_id) from error

    def _cipher(self, key_id: str) -> tuple[AESGCM, bytes]:
        """What encrypts under this key, and how all that it makes begins."""
        found = self._ciphers.get(key_id)
        if found is None:
            key = self.data_keys[key_id] if key_id in self.data_keys else self._key(key_id)
            mark = derived(key, "countersign mark")[:MARK_BYTES]
            head = ENCRYPTED + bytes([len(key_id)]) + key_id.encode() + mark
            found = self._ciphers[key_id] = AESGCM(key), head
        return found

    def keep_data_key(self, key_id: str, key: bytes) -> None:
        """Know a data key, unwrapped, as long as this ring stands and others do not push it out."""
        while len(self.data_keys) >= MOST_DATA_KEYS:
            self.forget_data_key(next(iter(self.data_keys)))
        self.forget_data_key(key_id)
        self.data_keys[key_id] = key

    def forget_data_key(self, key_id: str) -> None:
        """Know a data key no longer."""
        self.data_keys.pop(key_id, None)
        self._ciphers.pop(key_id, None)

    @cached_property
    def data_keys(self) -> dict[str, bytes]:
        """The data keys that are known now, unwrapped, by their ids. They never leave the process."""
        return {}

    @cached_property
    def data_keys_in_use(self) -> dict[str, bool]:
        """Whether a data key encrypts, as far as that is known, by its id."""
        return {}

    def _key(self, key_id: str) -> bytes:
        key = self.encryption.get(key_id)
        if key is None:
            raise WrongKey(f"encryption key {key_id!r} is not configured", key=key_id)
        return key

    @cached_property
    def _ciphers(self) -> dict[str, tuple[AESGCM, bytes]]:
        return {}

    @cached_property
    def _hashers(self) -> dict[str, bytes]:
        return {}


def fingerprint_of(key: bytes, purpose: str) -> str:
    """16 hexadecimal digits that tell a key from another of the same name, derived under the key itself: like a seal
    that it makes, they tell nothing of it to whoever does not have it.
    """
    return derived(key, f"countersign fingerprint {purpose}")[:FINGERPRINT_BYTES].hex()


def public_part(seed: bytes) -> bytes:
    """The 32 bytes of the public key of an Ed25519 seed."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def key_of(kept: bytes) -> str:
    """The id of the key that encrypted these bytes. Raises `TamperedRow` where they are no encrypted bytes."""
    return _parts(kept)[0]


def _parts(kept: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Key id, head, nonce and sealed bytes."""
    length = kept[1] if len(kept) > 1 and kept[:1] == ENCRYPTED else -1
    named = 2 + length
    begin = named + MARK_BYTES
    if length < 0 or len(kept) < begin + NONCE_BYTES + TAG_BYTES:
        raise TamperedRow("it is cut off, or was never encrypted")
    nonce, sealed = kept[begin : begin + NONCE_BYTES], kept[begin + NONCE_BYTES :]
    return kept[2:named].decode("utf-8", "replace"), kept[:begin], nonce, sealed
