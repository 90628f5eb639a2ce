"""Owns data keys: each encrypted run has its own, wrapped by the keyring and stored
beside the run. Once it is destroyed, nobody can read what it encrypted, in copies
either.

A payload names the key that encrypted it, so rows of runs that began without a data key
still open.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db.models import BinaryField, Model, Q, QuerySet
from django.db.models.functions import Substr
from django.utils import timezone

from checkpoints.conf import keyring
from checkpoints.core.keyring import (
    DATA_KEY,
    ENCRYPTED,
    KEY_BYTES,
    MOST_DATA_KEYS,
    key_of,
)
from checkpoints.models import Run
from checkpoints.models.run import RunKey
from orchestrator.engine.errors import CountersignError, TamperedRow, WrongKey
from orchestrator.engine.values import canonical

_HEAD = 64
"""The first bytes of an encrypted payload, which hold the id of its data key."""


def make_data_key(run: Run) -> None:
    """Insert the key of an encrypted run that is about to be inserted itself. In the
    caller's transaction.
    """
    if not run.encrypted:
        return
    key = os.urandom(KEY_BYTES)
    ring = keyring()
    wrapped = ring.lock(key, _name(run.id))
    RunKey.objects.create(id=run.id, wrapped=wrapped, at=timezone.now())
    name = _id(run.id)
    ring.keep_data_key(name, key)
    # The first rows of the run follow at once, and need no query for its key.
    _note(name, in_use=True)


def wrapped_key_of(run: UUID) -> bytes:
    """Return a run's key as it is stored, for a copy of the run elsewhere; empty if it
    has none.
    """
    keys = RunKey.objects.filter(id=run).values_list("wrapped", flat=True)
    return bytes(keys.first() or b"")


def keep_wrapped_key(run: UUID, wrapped: bytes) -> None:
    """Store the key of a run that comes from elsewhere, unless it is here already. In
    the caller's transaction.
    """
    if not wrapped:
        return
    columns = {"wrapped": wrapped, "at": timezone.now()}
    RunKey.objects.get_or_create(id=run, defaults=columns)
    read_use_again(run)


def key_for(row: Model) -> str:
    """Return the id of the key that encrypts a row's payloads now: its run's data key,
    or empty for the newest of the ring.

    At most one query for a run in a process. Rows of the installation, such as memory,
    belong to no run.
    """
    run = _run_of(row)
    if run is None:
        return ""
    ring = keyring()
    name = _id(run)
    in_use = ring.data_keys_in_use
    # The ring drops keys when it holds too many, and they are read again.
    if name not in in_use or (in_use[name] and name not in ring.data_keys):
        run_key = RunKey.objects.filter(id=run, retired=False).first()
        if run_key is not None:
            ring.keep_data_key(name, _unwrapped(run_key))
        _note(name, in_use=run_key is not None)
    return name if in_use[name] else ""


def _note(name: str, *, in_use: bool) -> None:
    """Remember in this process whether a run's key encrypts."""
    noted = keyring().data_keys_in_use
    # All at once: a run whose entry is dropped takes one query when it is met again.
    if len(noted) >= MOST_DATA_KEYS:
        noted.clear()
    noted[name] = in_use


def ensure_known(stored: bytes) -> None:
    """Load the data key that encrypted these bytes into the ring, if one did. Raises
    `TamperedRow` where they are damaged, and `WrongKey`.
    """
    # The byte before it is the length of the key's id, so the id begins here.
    if stored[2:3] != DATA_KEY.encode() or stored[:1] != ENCRYPTED:
        return
    ring = keyring()
    name = key_of(stored)
    if name in ring.data_keys:
        return
    run_id = name.removeprefix(DATA_KEY)
    # Django refuses a query for what is no UUID.
    if not _is_id(run_id):
        raise TamperedRow("it names no key of a run")
    row = RunKey.objects.filter(id=run_id).first()
    # The row of a destroyed key stays, without the key.
    if row is None or not row.wrapped:
        raise WrongKey(
            "the data key of its run was destroyed, or is not there", key=name
        )
    ring.keep_data_key(name, _unwrapped(row))


def know_keys_of(rows: Iterable[Model]) -> None:
    """Load the data keys of these rows' payloads into the ring, as far as the payloads
    were read, so that a page of rows of many runs opens without a query for each. One
    query for the keys that the ring lacks, none if it has all.
    """
    ring = keyring()
    missing = _data_keys_in(rows) - set(ring.data_keys)
    ids = [name.removeprefix(DATA_KEY) for name in missing]
    if not ids:
        return
    # Django refuses a query for what is no UUID, which a damaged row may name.
    run_keys = RunKey.objects.filter(id__in=filter(_is_id, ids))
    for run_key in run_keys.exclude(wrapped=b""):
        # Reading a row that needs a key which does not open says so.
        with suppress(CountersignError):
            key = _unwrapped(run_key)
            ring.keep_data_key(_id(run_key.id), key)


def _data_keys_in(rows: Iterable[Model]) -> set[str]:
    """Return the ids of the data keys that encrypted what was read of these rows."""
    names = set()
    for row in rows:
        for column in getattr(type(row), "PAYLOADS", ()):
            # A column that was not read is not in the row's dictionary.
            stored = row.__dict__.get(column)
            head = bytes(stored or b"")[:_HEAD]
            if head[:1] != ENCRYPTED or head[2:3] != DATA_KEY.encode():
                continue
            length = head[1]
            name = head[2 : 2 + length]
            names.add(name.decode("ascii", "replace"))
    return names


def retire_data_key(run: UUID) -> None:
    """Stop encrypting under a run's key; what it encrypted still opens. In the caller's
    transaction.
    """
    updated = RunKey.objects.filter(id=run).update(retired=True)
    if updated:
        _note(_id(run), in_use=False)


def read_use_again(run: UUID) -> None:
    """Forget whether a run's key encrypts: another process may have retired it since
    this one read that.
    """
    keyring().data_keys_in_use.pop(_id(run), None)


def is_under_own_key(rows: "QuerySet[Any]", columns: Sequence[str], run: UUID) -> bool:
    """Return whether any of these rows keeps a payload that the data key of this run
    encrypted. One query.
    """
    # The database compares first bytes, so that no payload, which may be large, is
    # read.
    name = _id(run).encode()
    length = bytes([len(name)])
    head = ENCRYPTED + length + name
    # Matches no row, so that conditions can be added; an empty `Q` would match all.
    any_under_key = Q(pk__in=[])
    heads = {}
    for column in columns:
        alias = f"{column}_head"
        heads[alias] = Substr(column, 1, len(head), output_field=BinaryField())
        any_under_key |= Q(**{alias: head})
    exists: bool = rows.alias(**heads).filter(any_under_key).exists()
    return exists


def destroy_data_key(run: UUID) -> None:
    """Destroy a run's key, once nothing that must be read is encrypted under it. In the
    caller's transaction.
    """
    name = _id(run)
    updated = RunKey.objects.filter(id=run).update(wrapped=b"", retired=True)
    if updated:
        keyring().forget_data_key(name)
        _note(name, in_use=False)


def remove_data_key(run: UUID) -> None:
    """Delete a run's key with its run, once it encrypts nothing. In the caller's
    transaction.
    """
    deleted, _ = RunKey.objects.filter(id=run).delete()
    if deleted:
        keyring().forget_data_key(_id(run))
        read_use_again(run)


def _run_of(row: Any) -> UUID | None:
    """Return the run whose key encrypts a row: the run itself, or the run in the row's
    identity; None if there is none.
    """
    run_id: UUID | None = None
    if isinstance(row, Run):
        run_id = row.id
    elif "run_id" in type(row).IDENTITY:
        run_id = row.run_id
    elif "run" in type(row).IDENTITY:
        run_id = row.run
    return run_id


def _unwrapped(row: RunKey) -> bytes:
    """Return the data key itself. Raises `TamperedRow`, `WrongKey`."""
    return keyring().open(bytes(row.wrapped), _name(row.id))


def _id(run: UUID) -> str:
    """Return the id of a run's data key, as payloads name it."""
    return f"{DATA_KEY}{run.hex}"


def _is_id(text: str) -> bool:
    """Return whether a text, which a damaged row may hold, can be the id of a run."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def _name(run: UUID) -> bytes:
    """Return the name that a wrapped key is bound to: as `sealed_rows` names a column,
    so that a rotation rewraps it.
    """
    return canonical.framed(RunKey._meta.db_table, run.hex, "wrapped")
