"""Seals and encryption of rows. Whoever inserts or reads a row with payloads goes through here.

A seal is an HMAC over all fields of a row, with the payload columns as they are before encryption; so encrypting anew
changes neither seals nor hashes. A model says what its payload columns are (`PAYLOADS`), which fields name its rows
(`IDENTITY`), and what changes later and is left out (`UNSEALED`).
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.db.models import Model

from checkpoints.conf import keyring
from checkpoints.core.keyring import LOCKED
from orchestrator.engine import canonical
from orchestrator.engine.errors import TamperedRow

Row = TypeVar("Row", bound=Model)
Part = bytes | str | int | None

_NEVER = frozenset({"seal", "seal_key"})


@dataclass(frozen=True, slots=True)
class Cover:
    """How the rows of one run are protected. `hash_key` is the id of the key that makes its hashes; empty for plain
    SHA-256.
    """

    encrypted: bool = False
    hash_key: str = ""

    def digest(self, data: bytes) -> str:
        """The hash of these bytes, in hex: SHA-256, keyed where the run is encrypted."""
        return keyring().keyed_hash(self.hash_key, data) if self.hash_key else canonical.digest(data)

    def framed_hash(self, *parts: Part) -> str:
        """The hash of the framed parts, in hex."""
        return self.digest(canonical.framed(*parts))


class Covered(Protocol):
    """A run, or whoever holds it."""

    encrypted: bool
    hash_key: str


def cover_of(run: Covered) -> Cover:
    """How the rows of this run are protected."""
    return Cover(run.encrypted, run.hash_key)


def new_cover(*, encrypted: bool) -> Cover:
    """The cover of a run that begins now. Raises `WrongKey` where it asks for encryption and there is no key."""
    return Cover(True, keyring().locker) if encrypted else Cover()


def finish(rows: Sequence[Row], cover: Cover) -> Sequence[Row]:
    """The rows, sealed and then encrypted, ready to be inserted."""
    for row in rows:
        seal(row, cover)
        lock(row, cover)
    return rows


def seal(row: Model, cover: Cover) -> None:
    """Seal a row whose payload columns are plain."""
    ring = keyring()
    row.seal_key = ring.signer  # type: ignore[attr-defined]
    row.seal = ring.mac(ring.signer, _sealed(row, cover, lambda name: bytes(getattr(row, name))))  # type: ignore[attr-defined]


def lock(row: Model, cover: Cover) -> None:
    """Encrypt the payload columns of a row, where its run is encrypted. What is empty stays empty."""
    if not cover.encrypted:
        return
    for name in _shape(type(row)).payloads:
        setattr(row, name, locked(row, name, bytes(getattr(row, name)), cover))


def locked(row: Model, column: str, plain: bytes, cover: Cover) -> bytes:
    """What is kept of a payload column's plain bytes: the bytes, encrypted where the run is. What is empty stays so."""
    return keyring().lock(plain, _name(row, column)) if plain and cover.encrypted else plain


def opened(row: Model, column: str, kept: bytes | None = None) -> bytes:
    """The plain bytes of a payload column, or of `kept` that belongs there. Raises `TamperedRow`, `WrongKey`."""
    kept = bytes(getattr(row, column)) if kept is None else kept
    return keyring().open(kept, _name(row, column)) if kept[:1] == LOCKED else kept


def verify(row: Model, cover: Cover, *, at: datetime | None = None) -> None:
    """Raise `TamperedRow` or `WrongKey`, naming the row and the reason, where it is not as it was sealed.

    `at` is when it was written, for keys that are compromised from a moment on.
    """
    what = f"{row._meta.db_table} {' '.join(str(part) for part in _identity(row))}"
    key_id, kept = row.seal_key, bytes(row.seal or b"")  # type: ignore[attr-defined]
    if not kept:
        raise TamperedRow(f"{what} has no seal", row=what)
    for name in _shape(type(row)).payloads:
        _same_cover(row, name, cover, what)
    made = keyring().mac(key_id, _sealed(row, cover, lambda name: opened(row, name)))
    if not hmac.compare_digest(made, kept):
        raise TamperedRow(f"{what} is not as it was sealed", row=what)
    refuse_compromised(key_id, at or _moment(row), what)


def refuse_compromised(key_id: str, at: datetime | None, what: str) -> None:
    """Raise `TamperedRow` for a seal made with a key after the moment from which it proves nothing."""
    since = keyring().compromised.get(key_id)
    if since is not None and (at is None or at >= since):
        raise TamperedRow(f"{what} is sealed with key {key_id}, compromised since {since.isoformat()}", row=what)


def _same_cover(row: Model, column: str, cover: Cover, what: str) -> None:
    kept = bytes(getattr(row, column))
    if kept and (kept[:1] == LOCKED) != cover.encrypted:
        said = "is not encrypted, but its run is" if cover.encrypted else "is encrypted, but its run is not"
        raise TamperedRow(f"{column} of {what} {said}", row=what, column=column)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What sealing needs to know of a model."""

    head: bytes
    fields: tuple[str, ...]
    payloads: tuple[str, ...]
    identity: tuple[str, ...]
    moment: str


@cache
def _shape(model: type[Model]) -> _Shape:
    given: Any = model
    left_out = _NEVER | frozenset(given.UNSEALED)
    kept = [f for f in model._meta.concrete_fields if f.name not in left_out and not _numbered(f)]
    table, names = model._meta.db_table, tuple(f.attname for f in kept)
    head = canonical.framed("countersign row 1", table, *names)
    return _Shape(head, names, tuple(given.PAYLOADS), tuple(given.IDENTITY), given.MOMENT)


def _numbered(field: Any) -> bool:
    """Whether the database gives the value, so that it is not known when the row is sealed."""
    return bool(field.primary_key and field.get_internal_type() == "BigAutoField")


def _sealed(row: Model, cover: Cover, payload: Callable[[str], bytes]) -> bytes:
    shape = _shape(type(row))
    parts = [payload(name) if name in shape.payloads else _part(getattr(row, name)) for name in shape.fields]
    return shape.head + canonical.framed(int(cover.encrypted), cover.hash_key, *parts)


def _part(value: Any) -> Part:
    if value is None or isinstance(value, str | bytes):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return value
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, memoryview):
        return bytes(value)
    return canonical.encode(value)


def _identity(row: Model) -> Iterable[Part]:
    return [_part(getattr(row, name)) for name in _shape(type(row)).identity]


def _name(row: Model, column: str) -> bytes:
    """What encrypted bytes are bound to: table, the row's own identity, column. Its run is part of the identity."""
    return canonical.framed(row._meta.db_table, *_identity(row), column)


def _moment(row: Model) -> datetime | None:
    found: datetime | None = getattr(row, _shape(type(row)).moment, None)
    return found
