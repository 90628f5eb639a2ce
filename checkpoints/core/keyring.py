"""Keys by their ids: those that seal, those that encrypt, and those that are no longer
trusted. Pure; `conf` makes the ring.

The newest key of a kind, which is the last in the settings, seals or encrypts, unless
it is compromised; all of them verify and decrypt. The primitives are `cryptography`'s.
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
"""The format byte of encrypted bytes. It is followed by length and text of the key's
id, four bytes that distinguish this key from another one of the same id, the nonce, and
the sealed bytes with their tag.
"""
KEY_BYTES = 32
MARK_BYTES = 4
FINGERPRINT_BYTES = 8
NONCE_BYTES = 12
TAG_BYTES = 16
DATA_KEY = "@"
"""The beginning of the id of a data key: a key that encrypts one run's payloads, and is
itself stored encrypted.
"""
LONGEST_KEY_ID = 40
"""The most characters of the id of a key in the settings."""
MOST_DATA_KEYS = 1000
"""The most data keys that a process holds unwrapped."""


def derived(secret: bytes, purpose: str) -> bytes:
    """Return a key of 32 bytes for one purpose, derived from a secret (HKDF with
    SHA-256, RFC 5869).
    """
    # Without a salt, so that every process derives the same key.
    derivation = HKDF(
        algorithm=SHA256(),
        length=KEY_BYTES,
        salt=None,
        info=purpose.encode(),
    )
    return derivation.derive(secret)


@dataclass(frozen=True)
class Keyring:
    """Keys by id, in the order of the settings; `compromised` has the time from which
    a signing key proves nothing.
    """

    signing: Mapping[str, bytes]
    encryption: Mapping[str, bytes] = field(default_factory=dict)
    compromised: Mapping[str, datetime] = field(default_factory=dict)

    @cached_property
    def signer(self) -> str:
        """Return the id of the newest signing key that is not compromised. Raises
        `WrongKey` where there is none.
        """
        trusted = [key_id for key_id in self.signing if key_id not in self.compromised]
        if not trusted:
            raise WrongKey(
                "every signing key is compromised; "
                "add a new one to COUNTERSIGN['SIGNING_KEYS']"
            )
        return trusted[-1]

    @cached_property
    def encrypter(self) -> str:
        """Return the id of the newest encryption key. Raises `WrongKey` where there is
        none.
        """
        if not self.encryption:
            raise WrongKey(
                "there is no encryption key; name one in COUNTERSIGN['ENCRYPTION_KEYS']"
            )
        return list(self.encryption)[-1]

    def mac(self, key_id: str, data: bytes) -> bytes:
        """Return the HMAC-SHA256 of the data under a signing key. Raises `WrongKey` for
        an unknown id.
        """
        key = self.signing.get(key_id)
        if key is None:
            raise WrongKey(f"signing key {key_id!r} is not configured", key=key_id)
        return hmac.digest(key, data, "sha256")

    def keyed_hash(self, key_id: str, data: bytes) -> str:
        """Return the HMAC-SHA256 in hex, under a key derived from an encryption key.
        Without that key it reveals nothing about the data.
        """
        # Derived once only: every commit of an encrypted run makes several hashes.
        key = self._hashers.get(key_id)
        if key is None:
            key = derived(self._key(key_id), "countersign hash")
            self._hashers[key_id] = key
        return hmac.digest(key, data, "sha256").hex()

    def lock(self, data: bytes, name: bytes, under: str = "") -> bytes:
        """Return the data encrypted under the newest key, or the data key of this id.
        It can be decrypted only with the same `name`.
        """
        # Head and name are authenticated too: the bytes cannot be moved to another row.
        cipher, head = self._cipher(under or self.encrypter)
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + cipher.encrypt(nonce, data, head + name)

    def open(self, encrypted: bytes, name: bytes) -> bytes:
        """Return the data that `lock` encrypted. Raises `WrongKey` for an unknown key,
        or a different key under its id, else `TamperedRow`.
        """
        key_id, head, nonce, sealed = _parts(encrypted)
        cipher, head_of_key = self._cipher(key_id)
        # Another key under this id is a mistake in the settings, not tampering.
        if head != head_of_key:
            raise WrongKey(
                f"encryption key {key_id!r} is not the one that made this", key=key_id
            )
        try:
            return cipher.decrypt(nonce, sealed, head + name)
        except InvalidTag as error:
            raise TamperedRow(
                "it was changed, or moved here from another row", key=key_id
            ) from error

    def _cipher(self, key_id: str) -> tuple[AESGCM, bytes]:
        """Return the cipher of this key, and the head of all bytes that it encrypts."""
        cached = self._ciphers.get(key_id)
        if cached is not None:
            return cached
        # Another thread may forget the key in the meantime, so that nothing is read
        # twice.
        key = self.data_keys.get(key_id)
        if key is None:
            key = self._key(key_id)
        mark = derived(key, "countersign mark")[:MARK_BYTES]
        head = ENCRYPTED + bytes([len(key_id)]) + key_id.encode() + mark
        cipher = (AESGCM(key), head)
        self._ciphers[key_id] = cipher
        return cipher

    def keep_data_key(self, key_id: str, key: bytes) -> None:
        """Hold a data key, unwrapped, as long as this ring exists and newer ones do not
        displace it.
        """
        while len(self.data_keys) >= MOST_DATA_KEYS:
            oldest = next(iter(self.data_keys))
            self.forget_data_key(oldest)
        # The cipher of an older key of this id goes with it.
        self.forget_data_key(key_id)
        self.data_keys[key_id] = key

    def forget_data_key(self, key_id: str) -> None:
        """Drop a data key and its cipher."""
        self.data_keys.pop(key_id, None)
        self._ciphers.pop(key_id, None)

    @cached_property
    def data_keys(self) -> dict[str, bytes]:
        """Return the data keys that are held now, unwrapped, by their ids. They never
        leave the process.
        """
        return {}

    @cached_property
    def data_keys_in_use(self) -> dict[str, bool]:
        """Return, by its id, whether a data key encrypts, as far as that was read."""
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
    """Return 16 hexadecimal digits that distinguish a key from another one of the same
    name. They are derived under the key itself: without it they reveal as little about
    it as a seal that it makes.
    """
    fingerprint = derived(key, f"countersign fingerprint {purpose}")
    return fingerprint[:FINGERPRINT_BYTES].hex()


def public_part(seed: bytes) -> bytes:
    """Return the 32 bytes of the public key of an Ed25519 seed."""
    private_key = Ed25519PrivateKey.from_private_bytes(seed)
    return private_key.public_key().public_bytes_raw()


def key_of(encrypted: bytes) -> str:
    """Return the id of the key that encrypted these bytes. Raises `TamperedRow` if they
    are not encrypted bytes.
    """
    return _parts(encrypted)[0]


def _parts(encrypted: bytes) -> tuple[str, bytes, bytes, bytes]:
    """Return key id, head, nonce and sealed bytes. Raises `TamperedRow`."""
    if len(encrypted) < 2 or encrypted[:1] != ENCRYPTED:
        raise TamperedRow("it is cut off, or was never encrypted")
    id_end = 2 + encrypted[1]
    head_end = id_end + MARK_BYTES
    nonce_end = head_end + NONCE_BYTES
    if len(encrypted) < nonce_end + TAG_BYTES:
        raise TamperedRow("it is cut off, or was never encrypted")
    key_id = encrypted[2:id_end].decode("utf-8", "replace")
    nonce = encrypted[head_end:nonce_end]
    return key_id, encrypted[:head_end], nonce, encrypted[nonce_end:]
