"""Owns seals and encryption of rows: code that inserts or reads a row with payloads
goes through here.

A seal is an HMAC over all fields of a row, with the payload columns as they are before
encryption; so re-encrypting changes neither seals nor hashes. A model declares its
payload columns (`PAYLOADS`), the fields that identify its rows (`IDENTITY`), the fields
that change later and are left out (`UNSEALED`), a column with a separate seal over
fields that may come later (`SEALED_LATER`), and the fields that older rows lack
(`ADDED`).
"""

import hmac
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, Protocol, TypeVar
from uuid import UUID

import orjson
from django.db.models import Model

from checkpoints.conf import keyring
from checkpoints.core.keyring import ENCRYPTED
from checkpoints.models import OlderSeals
from checkpoints.sealing import data_keys
from orchestrator.engine.errors import (
    CountersignError,
    OlderSeal,
    TamperedRow,
    WrongKey,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

Row = TypeVar("Row", bound=Model)
Part = bytes | str | int | UUID | None

_NEVER = frozenset({"seal", "seal_key"})
RENEWAL = "`manage.py seal_anew`"
"""The command that seals the rows of an older release again."""
_FORMAT = "countersign row 3"
"""No seal that an older release made has this format: `older_seals` reads those."""
# JSON columns need not keep the order of keys, and `json_value` writes each moment in
# one zone.
OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATETIME


@frozen
class Protection:
    """How the rows of one run are protected. `hash_key`: id of the key of its hashes;
    empty for plain SHA-256.
    """

    encrypted: bool = False
    hash_key: str = ""

    def digest(self, data: bytes) -> str:
        """Return the hash of these bytes in hex: SHA-256, keyed in an encrypted run."""
        if self.hash_key:
            return keyring().keyed_hash(self.hash_key, data)
        return sha256(data).hexdigest()

    def framed_hash(self, *parts: Part) -> str:
        """Return the hash of the framed parts, in hex."""
        data = canonical.framed(*parts)
        return self.digest(data) if self.hash_key else sha256(data).hexdigest()


PLAIN = Protection()
"""The protection of rows that belong to no run: sealed, not encrypted."""


class Protected(Protocol):
    """A run, or a worker's lease on it."""

    encrypted: bool
    hash_key: str


def protection_of(run: Protected) -> Protection:
    """Return how the rows of this run are protected."""
    return Protection(run.encrypted, run.hash_key)


def new_protection(*, encrypted: bool) -> Protection:
    """Return the protection of a run that begins now. Raises `WrongKey` if the run is
    to be encrypted and there is no key.
    """
    if not encrypted:
        return Protection()
    return Protection(True, keyring().encrypter)


@frozen
class _Shape:
    """The facts of a model that sealing needs. `values` returns all sealed fields of a
    row but the payload columns; `later` is what `SEALED_LATER` names, `added` what
    `ADDED` does, each with its attribute and the value that it has in rows that lack it.
    """

    head: bytes
    values: Callable[[Any], tuple[Any, ...]]
    payloads: tuple[str, ...]
    identity: tuple[str, ...]
    moment: str
    later: tuple[str, ...]
    added: tuple[tuple[str, str, Any], ...]


@cache
def _shape(model: type[Model], *, with_added: tuple[str, ...] = ()) -> _Shape:
    """Return the shape of a model, for its rows without added fields or for those that
    have these. Computed once.
    """
    any_model: Any = model
    payloads = tuple(any_model.PAYLOADS)
    added = tuple(getattr(model, "ADDED", ()))
    left_out = _NEVER.union(any_model.UNSEALED, payloads)
    left_out = left_out.union(added).difference(with_added)
    names = []
    for field in model._meta.concrete_fields:
        if field.name not in left_out and not is_numbered(field):
            names.append(field.attname)

    # The head names the fields, so a seal never fits the same values under other names.
    table = model._meta.db_table
    return _Shape(
        head=canonical.framed(_FORMAT, table, *names, "payloads", *payloads),
        values=attrgetter(*names),
        payloads=payloads,
        identity=tuple(any_model.IDENTITY),
        moment=any_model.MOMENT,
        # Models that are encrypted and not sealed do not declare it.
        later=tuple(getattr(model, "SEALED_LATER", ())),
        added=tuple([_added_field(model, name) for name in added]),
    )


def _added_field(model: type[Model], name: str) -> tuple[str, str, Any]:
    """Return the name of an added field, that of its column's value, and its default."""
    field: Any = model._meta.get_field(name)
    return name, field.attname, field.get_default()


def is_numbered(field: Any) -> bool:
    """Return whether the database assigns the value, so that it is not known when the
    row is sealed.
    """
    return bool(field.primary_key and field.get_internal_type() == "BigAutoField")


# Sealing


def seal_and_encrypt(rows: Sequence[Row], protection: Protection) -> Sequence[Row]:
    """Seal the rows, then encrypt them. Returns them, ready to be inserted."""
    for row in rows:
        seal(row, protection)
        encrypt(row, protection)
    return rows


def seal(row: Model, protection: Protection) -> None:
    """Seal a row whose payload columns are plain."""
    shape = _shape(type(row))
    plain: list[bytes] = []
    for name in shape.payloads:
        plain.append(bytes(getattr(row, name) or b""))
    ring = keyring()
    any_row: Any = row
    any_row.seal_key = ring.signer
    any_row.seal = ring.mac(ring.signer, _sealed(row, protection, plain))
    if shape.later and getattr(row, shape.later[-1]):
        seal_later(row)


def seal_again(row: Model, protection: Protection, **values: Any) -> list[str]:
    """Set these fields of a row that verified, and seal it again. Returns the names of
    all fields that changed.

    Values of payload columns are passed plain and packed. The other payload columns
    keep their bytes.
    """
    shape = _shape(type(row))
    # The plain bytes are read before any field is set, for encrypted ones are bound to
    # the identity that the row has now.
    plain = []
    for name in shape.payloads:
        plain.append(values[name] if name in values else decrypted(row, name))
    for name, value in values.items():
        stored = value
        if name in shape.payloads:
            stored = encrypted(row, name, value, protection)
        setattr(row, name, stored)

    ring = keyring()
    any_row: Any = row
    any_row.seal_key = ring.signer
    any_row.seal = ring.mac(ring.signer, _sealed(row, protection, plain))
    changed = [*values, "seal", "seal_key"]
    if shape.later and getattr(row, shape.later[-1]):
        seal_later(row)
        changed.append(shape.later[0])
    return changed


def seal_later(row: Model) -> None:
    """Fill the column of a row that holds a separate seal (`SEALED_LATER`), once the
    fields that it covers are set.
    """
    shape = _shape(type(row))
    setattr(row, shape.later[0], _later_seal(row, shape, keyring().signer))


def _later_seal(row: Model, shape: _Shape, key_id: str) -> bytes:
    """Return the bytes of a separate seal: length and text of the key's id, HMAC."""
    column, *names = shape.later
    parts = [_part(getattr(row, name)) for name in (*shape.identity, *names)]
    # Its format never changed: this is what it has been called from the beginning.
    data = canonical.framed("countersign apart 1", row._meta.db_table, column, *parts)
    mac = mac_of(key_id, data, lambda: name_of(row))
    return bytes([len(key_id)]) + key_id.encode() + mac


def _sealed(row: Model, protection: Protection, payloads: Sequence[bytes]) -> bytes:
    """Return the bytes that a seal covers: a head with the names of format, table and
    fields; one JSON list with the values and the length of each payload; then the
    payloads. Raises `TypeError` for a value that cannot be sealed.
    """
    shape = _shape(type(row))
    # The names of added fields are in the head, so that none of them can be emptied
    # under a seal that covered it.
    # Any other value than their default counts, also an empty one. A field that came
    # later changes nothing about the seal of a row that has only earlier ones.
    present: list[str] = []
    for name, column, default in shape.added:
        if getattr(row, column) != default:
            present.append(name)
    if present:
        shape = _shape(type(row), with_added=tuple(present))
    # The lengths keep bytes from being moved from one payload to the next under the
    # same seal.
    values = [
        protection.encrypted,
        protection.hash_key,
        *shape.values(row),
        *map(len, payloads),
    ]
    return b"".join((shape.head, orjson.dumps(values, json_value, OPTIONS), *payloads))


def json_value(value: Any) -> Any:
    """Return a value that orjson does not know as one that it does."""
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    raise TypeError(f"a {type(value).__name__} cannot be sealed")


@lru_cache(maxsize=100)
def _moment(at: datetime) -> str:
    """Return a moment as text. Rows of one commit share their moment; equal datetimes
    of different zones are the same moment, and the same text.
    """
    return at.astimezone(UTC).isoformat()


# Encryption


def encrypt(row: Model, protection: Protection) -> None:
    """Encrypt the payload columns of an encrypted run's row. Empty ones stay empty."""
    if not protection.encrypted:
        return
    for name in _shape(type(row)).payloads:
        plain = bytes(getattr(row, name) or b"")
        setattr(row, name, encrypted(row, name, plain, protection))


def encrypted(row: Model, column: str, plain: bytes, protection: Protection) -> bytes:
    """Return the bytes that a payload column stores for these plain ones: encrypted in
    an encrypted run, else unchanged. Empty ones stay empty.
    """
    if not (plain and protection.encrypted):
        return plain
    return keyring().lock(plain, _name(row, column), data_keys.key_for(row))


def decrypted(row: Model, column: str, stored: bytes | None = None) -> bytes:
    """Return a payload column's plain bytes, or those of `stored`. Raises `TamperedRow`
    and `WrongKey`, naming column and row.
    """
    if stored is None:
        stored = bytes(getattr(row, column) or b"")
    if stored[:1] != ENCRYPTED:
        return stored
    try:
        data_keys.ensure_known(stored)
        return keyring().open(stored, _name(row, column))
    except CountersignError as error:
        row_name = name_of(row)
        # The class stays, because each has its own answer and cure.
        raise type(error)(
            f"{column} of {row_name} cannot be opened: {error.message}",
            row=row_name,
            **error.facts,
        ) from error


# Verification


def verify_row(
    row: Model, protection: Protection, *, at: datetime | None = None
) -> None:
    """Raise `TamperedRow` or `WrongKey`, naming the row and the reason, if it does not
    match its seal, and `OlderSeal` while rows of an older release wait to be resealed.

    `at` is when it was written, for keys that are compromised from a moment on.
    """
    shape = _shape(type(row))
    any_row: Any = row
    seal = bytes(any_row.seal or b"")
    if not seal:
        raise TamperedRow(f"{name_of(row)} has no seal", row=name_of(row))

    plain = [plain_payload(row, name, protection) for name in shape.payloads]
    try:
        data = _sealed(row, protection, plain)
    # A number or a text that no row of ours can hold.
    except TypeError as error:
        raise _not_as_sealed(row, f": {error}") from error
    # Rows are verified whenever they are read, so a name is built for a refusal only.
    expected_seal = mac_of(any_row.seal_key, data, lambda: name_of(row))
    if not hmac.compare_digest(expected_seal, seal):
        raise _not_as_sealed(row)

    at = at or getattr(row, shape.moment, None)
    if keyring().compromised:
        refuse_compromised(any_row.seal_key, at, name_of(row))
    if shape.later:
        verify_later(row, at)


def verify_rows(rows: Iterable[Model], protection: Protection) -> None:
    """Call `verify_row` for each of these rows of one run."""
    for row in rows:
        verify_row(row, protection)


def _not_as_sealed(row: Model, reason: str = "") -> CountersignError:
    """Return the refusal of a row that its seal does not fit. One query, but none for a
    row that matches its seal.
    """
    row_name = name_of(row)
    if OlderSeals.objects.exists():
        return OlderSeal(
            f"{row_name} is sealed in the format of an older release, or was changed:"
            f" {RENEWAL} tells, and seals it anew",
            row=row_name,
        )
    return TamperedRow(f"{row_name} is not as it was sealed{reason}", row=row_name)


def verify_later(row: Model, at: datetime | None) -> None:
    """Raise `TamperedRow` or `WrongKey` if the separate seal of a row does not prove
    the last of the fields that it covers. A row without that field has no such seal.
    `at` is as for `verify_row`.
    """
    shape = _shape(type(row))
    column = shape.later[0]
    proven_column = shape.later[-1]
    seal = bytes(getattr(row, column) or b"")
    proven_value = getattr(row, proven_column)
    if not seal and not proven_value:
        return

    key_id = seal[1 : 1 + seal[0]].decode("utf-8", "replace") if seal else ""
    # Neither may be missing alone: then the field or its seal was removed or put in.
    is_proven = bool(seal and proven_value) and hmac.compare_digest(
        _later_seal(row, shape, key_id), seal
    )
    if not is_proven:
        row_name = name_of(row)
        raise TamperedRow(
            f"{column} of {row_name} does not prove its {proven_column}",
            row=row_name,
            column=column,
        )
    refuse_compromised(key_id, at, f"{column} of {name_of(row)}")


def mac_of(key_id: str, data: bytes, name: Callable[[], str]) -> bytes:
    """Return the HMAC that a seal is compared with. Raises `WrongKey`, with the row's
    `name`, if the key is unknown.
    """
    try:
        return keyring().mac(key_id, data)
    except WrongKey as error:
        row_name = name()
        raise WrongKey(
            f"{row_name} cannot be verified: {error.message}", row=row_name, key=key_id
        ) from error


def refuse_compromised(key_id: str, at: datetime | None, what: str) -> None:
    """Raise `TamperedRow` for a seal made with a key after the moment from which the
    key proves nothing.
    """
    since = keyring().compromised.get(key_id)
    if since is None:
        return
    # A row that does not say when it was written may have been written since.
    if at is None or at >= since:
        raise TamperedRow(
            f"{what} is sealed with key {key_id},"
            f" compromised since {since.isoformat()}",
            row=what,
        )


def plain_payload(row: Model, column: str, protection: Protection) -> bytes:
    """Return the plain bytes of a payload column, which must be encrypted in an
    encrypted run, and only there. Raises `TamperedRow`, `WrongKey`.
    """
    stored = bytes(getattr(row, column) or b"")
    require_protection(row, column, stored, protection)
    return decrypted(row, column, stored)


def require_protection(
    row: Model, column: str, stored: bytes, protection: Protection
) -> None:
    """Raise `TamperedRow` if a payload column's bytes are encrypted and its run is not,
    or the other way round.
    """
    if not stored or (stored[:1] == ENCRYPTED) == protection.encrypted:
        return
    content = "is encrypted, but its run is not"
    if protection.encrypted:
        content = "is not encrypted, but its run is"
    row_name = name_of(row)
    raise TamperedRow(f"{column} of {row_name} {content}", row=row_name, column=column)


# Names


def name_of(row: Model) -> str:
    """Return the row's name in errors: its table and the fields that identify it."""
    identity = [str(getattr(row, name)) for name in _shape(type(row)).identity]
    return " ".join([row._meta.db_table, *identity])


def _name(row: Model, column: str) -> bytes:
    """Return the name that encrypted bytes are bound to: table, the row's identity,
    column. The identity of a run's row includes the run.
    """
    identity = [_part(getattr(row, name)) for name in _shape(type(row)).identity]
    return canonical.framed(row._meta.db_table, *identity, column)


def _part(value: Any) -> Part:
    """Return a field's value as `canonical.framed` takes it."""
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    part: Part = value
    return part
