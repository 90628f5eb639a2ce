"""Seals and encryption of rows. Whoever inserts or reads a row with payloads goes through here.

A seal is an HMAC over all fields of a row, with the payload columns as they are before encryption; so encrypting anew
changes neither seals nor hashes. A model says what its payload columns are (`PAYLOADS`), which fields name its rows
(`IDENTITY`), what changes later and is left out (`UNSEALED`), what older rows did not have (`ADDED`), and which column
is a seal of its own over fields that may come later (`SEALED_APART`).
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from uuid import UUID

import orjson
from django.db.models import Model

from checkpoints.conf import keyring
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.sealing import data_keys
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError, TamperedRow, WrongKey
from orchestrator.engine.frozen import frozen

Row = TypeVar("Row", bound=Model)
MAC_BYTES = 32
Part = bytes | str | int | UUID | None

_NEVER = frozenset({"seal", "seal_key"})
_SECOND = b"\x02"
"""How a seal of the second format begins: it is over the fields of `SEALED_SINCE_2` too, and not over those of
`UNSEALED_SINCE_2`. One of the first is bare.
"""


@frozen
class Protection:
    """How the rows of one run are protected. `hash_key`: id of the key of its hashes; empty for plain SHA-256."""

    encrypted: bool = False
    hash_key: str = ""

    def digest(self, data: bytes) -> str:
        """The hash of these bytes, in hex: SHA-256, keyed where the run is encrypted."""
        return keyring().keyed_hash(self.hash_key, data) if self.hash_key else canonical.digest(data)

    def framed_hash(self, *parts: Part) -> str:
        """The hash of the framed parts, in hex."""
        return self.digest(canonical.framed(*parts))


PLAIN = Protection()
"""The cover of what belongs to no run: sealed, not encrypted."""


class Protected(Protocol):
    """A run, or whoever holds it."""

    encrypted: bool
    hash_key: str


def protection_of(run: Protected) -> Protection:
    """How the rows of this run are protected."""
    return Protection(run.encrypted, run.hash_key)


def new_protection(*, encrypted: bool) -> Protection:
    """The cover of a run that begins now. Raises `WrongKey` where it asks for encryption and there is no key."""
    return Protection(True, keyring().encrypter) if encrypted else Protection()


def seal_and_encrypt(rows: Sequence[Row], protection: Protection) -> Sequence[Row]:
    """The rows, sealed and then encrypted, ready to be inserted."""
    for row in rows:
        seal(row, protection)
        encrypt(row, protection)
    return rows


def seal(row: Model, protection: Protection) -> None:
    """Seal a row whose payload columns are plain."""
    shape, ring = _shape(type(row)), keyring()
    given: Any = row
    plain = [bytes(getattr(row, name) or b"") for name in shape.payloads]
    given.seal_key, given.seal = ring.signer, _seal_of(row, protection, plain)
    if shape.apart and getattr(row, shape.apart[-1]):
        seal_apart(row)


def seal_apart(row: Model) -> None:
    """Fill the column of a row that is a seal of its own (`SEALED_APART`), when the fields that it covers were set."""
    shape = _shape(type(row))
    setattr(row, shape.apart[0], _seal_apart(row, shape, keyring().signer))


def _seal_of(row: Model, protection: Protection, plain: Sequence[bytes]) -> bytes:
    """The seal of a row by the key that signs now, in the newest format of its model."""
    ring, newest = keyring(), _newest(type(row))
    mac = ring.mac(ring.signer, _sealed(row, protection, plain, newest))
    return _SECOND + mac if newest == 2 else mac


@cache
def _newest(model: type[Model]) -> int:
    given: Any = model
    return 2 if given.SEALED_SINCE_2 or given.UNSEALED_SINCE_2 else 1


def _seal_apart(row: Model, shape: "_Shape", key_id: str) -> bytes:
    """What the column of a seal of its own keeps: length and text of the key's id, the HMAC."""
    column, *names = shape.apart
    parts = [_part(getattr(row, name)) for name in (*shape.identity, *names)]
    data = canonical.framed("countersign apart 1", row._meta.db_table, column, *parts)
    mac = mac_of(key_id, data, lambda: name_of(row))
    return bytes([len(key_id)]) + key_id.encode() + mac


def seal_again(row: Model, protection: Protection, **values: Any) -> list[str]:
    """Set these fields of a row that verified, and seal it anew; gives the names of the fields that changed with it.

    Values of payload columns are given plain, packed. The other payload columns keep the bytes that they have.
    """
    shape, ring = _shape(type(row)), keyring()
    given: Any = row
    plain = [values[name] if name in values else decrypted(row, name) for name in shape.payloads]
    for name, value in values.items():
        setattr(row, name, encrypted(row, name, value, protection) if name in shape.payloads else value)
    given.seal_key, given.seal = ring.signer, _seal_of(row, protection, plain)
    if not (shape.apart and getattr(row, shape.apart[-1])):
        return [*values, "seal", "seal_key"]
    seal_apart(row)
    return [*values, "seal", "seal_key", shape.apart[0]]


def encrypt(row: Model, protection: Protection) -> None:
    """Encrypt the payload columns of a row, where its run is encrypted. What is empty stays empty."""
    if not protection.encrypted:
        return
    for name in _shape(type(row)).payloads:
        setattr(row, name, encrypted(row, name, bytes(getattr(row, name) or b""), protection))


def encrypted(row: Model, column: str, plain: bytes, protection: Protection) -> bytes:
    """What is kept of a payload column's plain bytes: the bytes, encrypted where the run is. What is empty stays so."""
    if not (plain and protection.encrypted):
        return plain
    return keyring().lock(plain, _name(row, column), data_keys.key_for(row))


def decrypted(row: Model, column: str, kept: bytes | None = None) -> bytes:
    """A payload column's plain bytes, or those of `kept`. Raises `TamperedRow`, `WrongKey`, naming column and row."""
    kept = bytes(getattr(row, column) or b"") if kept is None else kept
    if kept[:1] != ENCRYPTED:
        return kept
    try:
        data_keys.ensure_known(kept)
        return keyring().open(kept, _name(row, column))
    except CountersignError as error:
        what = name_of(row)
        raise type(error)(f"{column} of {what} cannot be opened: {error.message}", row=what, **error.facts) from error


def verify_row(row: Model, protection: Protection, *, at: datetime | None = None) -> None:
    """Raise `TamperedRow` or `WrongKey`, naming the row and the reason, where it is not as it was sealed.

    `at` is when it was written, for keys that are compromised from a moment on.
    """
    shape, given = _shape(type(row)), row
    key_id, kept = given.seal_key, bytes(given.seal or b"")  # type: ignore[attr-defined]
    if not kept:
        raise TamperedRow(f"{name_of(row)} has no seal", row=name_of(row))
    plain = [_decrypted_in(row, name, protection) for name in shape.payloads]
    second = len(kept) > MAC_BYTES and kept[:1] == _SECOND
    try:
        data = _sealed(row, protection, plain, 2 if second else 1)
    except TypeError as error:  # a number or a text that no row of ours can hold
        raise TamperedRow(f"{name_of(row)} is not as it was sealed: {error}", row=name_of(row)) from error
    if not hmac.compare_digest(mac_of(key_id, data, lambda: name_of(row)), kept[1:] if second else kept):
        raise TamperedRow(f"{name_of(row)} is not as it was sealed", row=name_of(row))
    at = at or getattr(row, shape.moment, None)
    if keyring().compromised:
        refuse_compromised(key_id, at, name_of(row))
    if second and shape.apart and (getattr(row, shape.apart[0]) or getattr(row, shape.apart[-1])):
        _verify_apart(row, shape, at)


def _verify_apart(row: Model, shape: "_Shape", at: datetime | None) -> None:
    """Raise `TamperedRow` or `WrongKey` where a seal of its own does not prove what it is there for."""
    column, kept = shape.apart[0], bytes(getattr(row, shape.apart[0]) or b"")
    what = f"{column} of {name_of(row)}"
    key_id = kept[1 : 1 + kept[0]].decode("utf-8", "replace") if kept else ""
    proves = kept and getattr(row, shape.apart[-1])
    if not (proves and hmac.compare_digest(_seal_apart(row, shape, key_id), kept)):
        raise TamperedRow(f"{what} does not prove its {shape.apart[-1]}", row=name_of(row), column=column)
    refuse_compromised(key_id, at, what)


def verify_rows(rows: Iterable[Model], protection: Protection) -> None:
    """`verify_row` for each of these rows of one run."""
    for row in rows:
        verify_row(row, protection)


def mac_of(key_id: str, data: bytes, name: Callable[[], str]) -> bytes:
    """The HMAC that a seal is compared with. Raises `WrongKey`, with the row's `name`, where the key is unknown."""
    try:
        return keyring().mac(key_id, data)
    except WrongKey as error:
        what = name()
        raise WrongKey(f"{what} cannot be verified: {error.message}", row=what, key=key_id) from error


def refuse_compromised(key_id: str, at: datetime | None, what: str) -> None:
    """Raise `TamperedRow` for a seal made with a key after the moment from which it proves nothing."""
    since = keyring().compromised.get(key_id)
    if since is not None and (at is None or at >= since):
        raise TamperedRow(f"{what} is sealed with key {key_id}, compromised since {since.isoformat()}", row=what)


def _decrypted_in(row: Model, column: str, protection: Protection) -> bytes:
    """The plain bytes of a payload column that must be encrypted where its run is, and only there."""
    kept = bytes(getattr(row, column) or b"")
    require_protection(row, column, kept, protection)
    return decrypted(row, column, kept)


def require_protection(row: Model, column: str, kept: bytes, protection: Protection) -> None:
    """Raise `TamperedRow` where a payload column's bytes are encrypted and its run is not, or the other way round."""
    if kept and (kept[:1] == ENCRYPTED) != protection.encrypted:
        content = "is not encrypted, but its run is" if protection.encrypted else "is encrypted, but its run is not"
        what = name_of(row)
        raise TamperedRow(f"{column} of {what} {content}", row=what, column=column)


@frozen
class _Shape:
    """What sealing needs to know of a model. `values` gives all sealed fields but the payload columns and `added`."""

    head: bytes
    values: Callable[[Any], tuple[Any, ...]]
    added: tuple[str, ...]
    payloads: tuple[str, ...]
    identity: tuple[str, ...]
    moment: str
    apart: tuple[str, ...]


@cache
def _shape(model: type[Model], format_: int = 1) -> _Shape:
    given: Any = model
    payloads = tuple(given.PAYLOADS)
    left_out = _NEVER | frozenset(given.UNSEALED) | frozenset(given.ADDED) | frozenset(payloads)
    left_out |= frozenset(getattr(given, "SEALED_SINCE_2" if format_ == 1 else "UNSEALED_SINCE_2", ()))
    kept = [f for f in model._meta.concrete_fields if f.name not in left_out and not _numbered(f)]
    table, names = model._meta.db_table, [f.attname for f in kept]
    head = canonical.framed(f"countersign row {format_}", table, *names, "payloads", *payloads)
    moment, apart = given.MOMENT, tuple(getattr(given, "SEALED_APART", ()))
    return _Shape(head, attrgetter(*names), given.ADDED, payloads, tuple(given.IDENTITY), moment, apart)


def _numbered(field: Any) -> bool:
    """Whether the database gives the value, so that it is not known when the row is sealed."""
    return bool(field.primary_key and field.get_internal_type() == "BigAutoField")


def _sealed(row: Model, protection: Protection, payloads: Sequence[bytes], format_: int = 1) -> bytes:
    """What a seal is made of: the model's names, one JSON list of values and of lengths of payloads, the payloads."""
    shape = _shape(type(row), format_)
    values = [protection.encrypted, protection.hash_key, *shape.values(row), *map(len, payloads)]
    # One value more than a row has that was sealed before these fields were there: neither passes for the other.
    if shape.added and any(added := [getattr(row, name) for name in shape.added]):
        values.append(added)
    return b"".join((shape.head, orjson.dumps(values, _plain, _OPTIONS), *payloads))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    raise TypeError(f"a {type(value).__name__} cannot be sealed")


@lru_cache(maxsize=100)
def _moment(at: datetime) -> str:
    """Rows of one commit share their moment. Equal datetimes of other zones are the same moment, and the same text."""
    return at.astimezone(UTC).isoformat()


_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME


def name_of(row: Model) -> str:
    """The row as errors name it: its table and what identifies it."""
    return " ".join([row._meta.db_table, *(str(getattr(row, name)) for name in _shape(type(row)).identity)])


def _name(row: Model, column: str) -> bytes:
    """What encrypted bytes are bound to: table, the row's own identity, column. Its run is part of the identity."""
    identity = [_part(getattr(row, name)) for name in _shape(type(row)).identity]
    return canonical.framed(row._meta.db_table, *identity, column)


def _part(value: Any) -> Part:
    if isinstance(value, UUID):
        return value.hex
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
