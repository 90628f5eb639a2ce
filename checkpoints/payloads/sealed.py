"""Seals round another backend: bytes that were changed, or moved to another name, are refused."""

import hmac
from collections.abc import Iterable
from datetime import datetime

from checkpoints.conf import keyring
from checkpoints.payloads.base import PayloadBackend
from orchestrator.engine import canonical
from orchestrator.engine.errors import PayloadLost

_FORM = b"\x11"
_MAC = 32


class SealedPayloads:
    """Keeps what `backend` keeps, each payload behind an HMAC-SHA256 over its name and its bytes.

    The newest signing key seals; every key of the ring opens. It does not encrypt: the bytes of an encrypted graph are
    encrypted before a backend gets them.
    """

    def __init__(self, backend: PayloadBackend) -> None:
        self._inner = backend
        self.in_row = backend.in_row

    def put(self, name: str, data: bytes) -> bytes:
        key = keyring().signer
        seal = _FORM + bytes([len(key)]) + key.encode() + _mac(key, name, data)
        return self._inner.put(name, seal + data)

    def get(self, name: str, kept: bytes) -> bytes:
        return _opened(name, self._inner.get(name, kept))

    def delete(self, name: str, kept: bytes) -> None:
        self._inner.delete(name, kept)

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        return self._inner.names(before=before, folder=folder)


def _opened(name: str, sealed: bytes) -> bytes:
    """Raises `PayloadLost` where the seal is missing or does not fit, `WrongKey` where no key of the ring made it."""
    begin = 2 + sealed[1] if len(sealed) > 1 and sealed[:1] == _FORM else len(sealed)
    mac, data = sealed[begin : begin + _MAC], sealed[begin + _MAC :]
    if len(mac) < _MAC:
        raise PayloadLost(f"payload {name} has no whole seal", name=name)
    if not hmac.compare_digest(mac, _mac(sealed[2:begin].decode("utf-8", "replace"), name, data)):
        raise PayloadLost(f"payload {name} is not as it was sealed: its bytes were changed, or moved here", name=name)
    return data


def _mac(key: str, name: str, data: bytes) -> bytes:
    return keyring().mac(key, canonical.framed("countersign payload 1", name, data))
