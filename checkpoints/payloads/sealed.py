"""A backend that seals the payloads of another one: bytes that were changed, or moved
to another name, are refused.
"""

import hmac
from collections.abc import Iterable
from datetime import datetime

from checkpoints.conf import keyring
from checkpoints.payloads.base import PayloadBackend
from orchestrator.engine.errors import PayloadLost
from orchestrator.engine.values import canonical

_FORM = b"\x11"
_MAC = 32


class SealedPayloads:
    """A backend that stores each payload in `backend`, preceded by an HMAC-SHA256 over
    its name and its bytes.

    The newest signing key seals; every key of the ring verifies. Nothing is encrypted
    here: the bytes of an encrypted graph are encrypted before a backend gets them.
    """

    def __init__(self, backend: PayloadBackend) -> None:
        self._inner = backend
        self.in_row = backend.in_row

    def put(self, name: str, data: bytes) -> bytes:
        key = keyring().signer
        head = _FORM + bytes([len(key)]) + key.encode()
        mac = _mac(key, name, data)
        return self._inner.put(name, head + mac + data)

    def get(self, name: str, kept: bytes) -> bytes:
        return _opened(name, self._inner.get(name, kept))

    def delete(self, name: str, kept: bytes) -> None:
        self._inner.delete(name, kept)

    def names(
        self,
        *,
        before: datetime,
        folder: str = "",
    ) -> Iterable[str]:
        return self._inner.names(before=before, folder=folder)


def _opened(name: str, sealed: bytes) -> bytes:
    """Return the bytes without their seal. Raises `PayloadLost` if the seal is missing
    or does not fit, `WrongKey` if no key of the ring made it.
    """
    # Bytes without a head leave no HMAC, and are refused like those that were cut off.
    mac_start = len(sealed)
    if len(sealed) > 1 and sealed[:1] == _FORM:
        mac_start = 2 + sealed[1]
    mac_end = mac_start + _MAC
    mac = sealed[mac_start:mac_end]
    data = sealed[mac_end:]
    if len(mac) < _MAC:
        raise PayloadLost(f"payload {name} has no whole seal", name=name)
    key = sealed[2:mac_start].decode("utf-8", "replace")
    if not hmac.compare_digest(mac, _mac(key, name, data)):
        raise PayloadLost(
            f"payload {name} is not as it was sealed: "
            "its bytes were changed, or moved here",
            name=name,
        )
    return data


def _mac(key: str, name: str, data: bytes) -> bytes:
    # With the name, so that bytes cannot be moved to another one.
    framed = canonical.framed("countersign payload 1", name, data)
    return keyring().mac(key, framed)
