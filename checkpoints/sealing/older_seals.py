"""Owns the seals that releases before the one format made: two formats, and fields that
came when rows were sealed already. Only `manage.py seal_anew` needs them, and the
migrations that give older rows a seal, which that command then seals again.
"""

import hmac
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

import orjson
from django.db.models import Model

from checkpoints.conf import keyring
from checkpoints.models.fields import Sealed
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import Protection, is_numbered, mac_of, name_of
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical

_MAC_BYTES = 32
_SECOND = b"\x02"
"""First byte of a seal of the second format; one of the first is the bare HMAC."""
_NEVER = frozenset({"seal", "seal_key"})
_ADDED: dict[str, tuple[str, ...]] = {
    "approvals_approvalrequest": ("ordinal", "input_hash", "prepared_from"),
    "approvals_decision": ("checked",),
    "checkpoints_auditline": ("graph",),
    "checkpoints_erasurerecord": ("origin_rows_hash",),
    "checkpoints_retentionpolicy": ("switched_off", "most_a_night"),
    "checkpoints_taskresult": ("pid_space",),
}
"""Fields that came when rows were sealed already: a seal covers them if one of them is
not empty.
"""
_SEALED_SINCE_2: dict[str, tuple[str, ...]] = {
    "approvals_approvalrequest": ("deadline",),
    "checkpoints_taskresult": ("thread_ended_at",),
}
"""Fields that seals of the first format left out."""
_SEALED_UNTIL_2: dict[str, tuple[str, ...]] = {
    "checkpoints_checkpoint": ("anchor", "snapshot_hash"),
}
"""Fields that seals of the first format covered, and those of the second leave out."""
_ATTRIBUTES = (
    *("PAYLOADS", "IDENTITY", "UNSEALED", "SEALED_LATER", "ADDED"),
    "MOMENT",
)


def sealable(model: Any, **attributes: Any) -> Any:
    """Return the model of a migration, ready to be sealed: it has the fields of its
    moment, and none of the attributes that say how rows are sealed. `attributes` are
    those in which its rows differ from other sealed rows at that moment.
    """
    for name in _ATTRIBUTES:
        setattr(model, name, attributes.get(name, getattr(Sealed, name)))
    return model


def seal_as_older(row: Model) -> None:
    """Seal a row without payloads, of no run, as the release of its migration did."""
    any_row: Any = row
    ring = keyring()
    any_row.seal_key = ring.signer
    any_row.seal = ring.mac(ring.signer, _covered(row, sealed_rows.PLAIN, (), 1))


def verify_older(row: Model, protection: Protection) -> None:
    """Raise `TamperedRow` or `WrongKey`, naming the row and the reason, if it is not as
    an older release sealed it.
    """
    any_row: Any = row
    row_name = name_of(row)
    seal = bytes(any_row.seal or b"")
    if not seal:
        raise TamperedRow(f"{row_name} has no seal", row=row_name)
    format_, mac = _parts_of(seal)
    plain = []
    for column in any_row.PAYLOADS:
        plain.append(sealed_rows.plain_payload(row, column, protection))
    try:
        data = _covered(row, protection, plain, format_)
    # A number or a text that no row of ours can hold.
    except TypeError as error:
        raise TamperedRow(
            f"{row_name} is not as it was sealed: {error}", row=row_name
        ) from error
    expected_mac = mac_of(any_row.seal_key, data, lambda: row_name)
    if not hmac.compare_digest(expected_mac, mac):
        raise TamperedRow(f"{row_name} is not as it was sealed", row=row_name)

    at: datetime | None = getattr(row, any_row.MOMENT, None)
    sealed_rows.refuse_compromised(any_row.seal_key, at, row_name)
    # A seal of the first format covers the row's snapshot itself.
    if format_ == 2 and any_row.SEALED_LATER:
        sealed_rows.verify_later(row, at)


def _parts_of(seal: bytes) -> tuple[int, bytes]:
    """Return the format of a seal, and its HMAC."""
    # A bare HMAC may begin with the same byte, so the length decides.
    if len(seal) > _MAC_BYTES and seal.startswith(_SECOND):
        return 2, seal[len(_SECOND) :]
    return 1, seal


def _covered(
    row: Model, protection: Protection, payloads: Sequence[bytes], format_: int
) -> bytes:
    """Return the bytes that a seal of this format covers. Raises `TypeError`."""
    model: Any = type(row)
    table = model._meta.db_table
    added = _ADDED.get(table, ())
    names = _names(model, format_)
    head = canonical.framed(
        f"countersign row {format_}", table, *names, "payloads", *model.PAYLOADS
    )
    values: list[Any] = [protection.encrypted, protection.hash_key]
    values += attrgetter(*names)(row)
    values += map(len, payloads)

    # A row that was sealed before these fields existed has one value fewer, so neither
    # passes for the other. The model of a migration may not have them yet.
    columns = {field.name for field in model._meta.concrete_fields}
    added_values = [getattr(row, name) for name in added if name in columns]
    if any(added_values):
        values.append(added_values)
    data = orjson.dumps(values, sealed_rows.json_value, sealed_rows.OPTIONS)
    return b"".join((head, data, *payloads))


def _names(model: Any, format_: int) -> list[str]:
    """Return the names of the columns that a seal of this format covers, without the
    payloads and the fields that came later.
    """
    table = model._meta.db_table
    left_out = _NEVER.union(model.UNSEALED, model.PAYLOADS, _ADDED.get(table, ()))
    # These came after the last of the older formats.
    left_out = left_out.union(model.ADDED)
    if format_ == 1:
        left_out = left_out.difference(_SEALED_UNTIL_2.get(table, ()))
        left_out = left_out.union(_SEALED_SINCE_2.get(table, ()))
    names = []
    for field in model._meta.concrete_fields:
        if field.name not in left_out and not is_numbered(field):
            names.append(field.attname)
    return names
