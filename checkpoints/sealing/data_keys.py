"""Data keys: each encrypted run has one of its own, wrapped by the keyring and kept beside the run. What it encrypts
cannot be read any more by anybody, in no copy either, when it is destroyed.

Which key encrypted a payload stands in the payload, so rows of runs that began without one open as ever.
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
from checkpoints.core.keyring import DATA_KEY, ENCRYPTED, KEY_BYTES, MOST_DATA_KEYS, key_of
from checkpoints.models import Run
from checkpoints.models.run import RunKey
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError, WrongKey

_HEAD = 64
"""Bytes in which the id of a data key stands, at the beginning of what it encrypted."""


def make_data_key(run: Run) -> None:
    """Give a run that is about to be inserted its key, in the caller's transaction, where it is encrypted."""
    if not run.encrypted:
        return
    key, ring = os.urandom(KEY_BYTES), keyring()
    RunKey.objects.create(id=run.id, wrapped=ring.lock(key, _name(run.id)), at=timezone.now())
    ring.keep_data_key(_id(run.id), key)
    _note(_id(run.id), in_use=True)


def wrapped_key_of(run: UUID) -> bytes:
    """A run's key as it is kept, for whoever takes the run along; empty where it has none."""
    return bytes(RunKey.objects.filter(id=run).values_list("wrapped", flat=True).first() or b"")


def keep_wrapped_key(run: UUID, wrapped: bytes) -> None:
    """Keep the key of a run that comes from elsewhere, unless one is here. In the caller's transaction."""
    if wrapped:
        RunKey.objects.get_or_create(id=run, defaults={"wrapped": wrapped, "at": timezone.now()})
        read_use_again(run)


def key_for(row: Model) -> str:
    """The id of the key under which a row's payloads are encrypted now: its run's, or empty for the newest of the ring.

    At most one query for a run in a process. Rows of the installation, as memory, belong to no run.
    """
    run = _run_of(row)
    if run is None:
        return ""
    ring, name = keyring(), _id(run)
    known = ring.data_keys_in_use
    if name not in known or (known[name] and name not in ring.data_keys):
        found = RunKey.objects.filter(id=run, retired=False).first()
        if found is not None:
            ring.keep_data_key(name, _unwrapped(found))
        _note(name, in_use=found is not None)
    return name if known[name] else ""


def _note(name: str, *, in_use: bool) -> None:
    known = keyring().data_keys_in_use
    if len(known) >= MOST_DATA_KEYS:
        known.clear()
    known[name] = in_use


def ensure_known(kept: bytes) -> None:
    """See to it that the ring knows the data key that encrypted these bytes, if one did. Raises `WrongKey`."""
    if kept[2:3] != DATA_KEY.encode() or kept[:1] != ENCRYPTED:
        return
    ring, name = keyring(), key_of(kept)
    if name in ring.data_keys:
        return
    row = RunKey.objects.filter(id=name.removeprefix(DATA_KEY)).first()
    if row is None or not row.wrapped:
        raise WrongKey("the data key of its run was destroyed, or is not there", key=name)
    ring.keep_data_key(name, _unwrapped(row))


def know_keys_of(rows: Iterable[Model]) -> None:
    """Let the ring know the data keys of what these rows hold, as far as their payloads were read: a page of rows of
    many runs then opens without a query for each. One query for those that it does not know, none where it knows all.
    """
    ring, wanted = keyring(), set()
    for row in rows:
        for column in getattr(type(row), "PAYLOADS", ()):
            kept = bytes(row.__dict__.get(column) or b"")[:_HEAD]
            if kept[:1] == ENCRYPTED and kept[2:3] == DATA_KEY.encode():
                wanted.add(kept[2 : 2 + kept[1]].decode("ascii", "replace"))
    missing = [name.removeprefix(DATA_KEY) for name in wanted if name not in ring.data_keys]
    for found in RunKey.objects.filter(id__in=filter(_is_id, missing)).exclude(wrapped=b"") if missing else ():
        # A key that does not open is told where a row is read that needs it.
        with suppress(CountersignError):
            ring.keep_data_key(_id(found.id), _unwrapped(found))


def retire_data_key(run: UUID) -> None:
    """Encrypt nothing more under a run's key; what it encrypted still opens. In the caller's transaction."""
    if RunKey.objects.filter(id=run).update(retired=True):
        _note(_id(run), in_use=False)


def read_use_again(run: UUID) -> None:
    """Forget whether a run's key encrypts: another process may have retired it since this one asked."""
    keyring().data_keys_in_use.pop(_id(run), None)


def is_under_own_key(rows: "QuerySet[Any]", columns: Sequence[str], run: UUID) -> bool:
    """Whether any of these rows keeps a payload that the data key of this run encrypted. One query."""
    name = _id(run).encode()
    head = ENCRYPTED + bytes([len(name)]) + name
    wanted = Q(pk__in=[])
    for column in columns:
        wanted |= Q(**{f"{column}_head": head})
    heads = {f"{column}_head": Substr(column, 1, len(head), output_field=BinaryField()) for column in columns}
    found: bool = rows.alias(**heads).filter(wanted).exists()
    return found


def destroy_data_key(run: UUID) -> None:
    """Take a run's key away, when nothing that must be read is encrypted under it. In the caller's transaction."""
    if RunKey.objects.filter(id=run).update(wrapped=b"", retired=True):
        keyring().forget_data_key(_id(run))
        _note(_id(run), in_use=False)


def remove_data_key(run: UUID) -> None:
    """Take a run's key away with its run, when nothing is left that it encrypts. In the caller's transaction."""
    if RunKey.objects.filter(id=run).delete()[0]:
        keyring().forget_data_key(_id(run))
        read_use_again(run)


def _run_of(row: Any) -> UUID | None:
    """The run whose key encrypts a row: the run itself, and rows that its id names."""
    if isinstance(row, Run):
        return row.id
    identity = type(row).IDENTITY
    if "run_id" not in identity and "run" not in identity:
        return None
    found: UUID = row.run_id if "run_id" in identity else row.run
    return found


def _unwrapped(row: RunKey) -> bytes:
    return keyring().open(bytes(row.wrapped), _name(row.id))


def _id(run: UUID) -> str:
    return f"{DATA_KEY}{run.hex}"


def _is_id(text: str) -> bool:
    """Whether a text of a damaged row may be that of a run."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


def _name(run: UUID) -> bytes:
    """What a wrapped key is bound to: as `sealed_rows` names a column, so that a rotation wraps it anew."""
    return canonical.framed(RunKey._meta.db_table, run.hex, "wrapped")
