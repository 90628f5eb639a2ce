"""Rotation of encryption keys: every payload column that an older key encrypts is
encrypted again under the newest. Columns under a run's data key stay: the data key
itself is stored in such a column, and is encrypted again.

The command `rotate_keys` and its job use it. The content stays the same: no seal and no
hash changes. There is no list of finished work: the rows record under which key they
are, so a rotation that was interrupted is simply begun again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from django.apps import apps
from django.db import transaction
from django.db.models import (
    BigIntegerField,
    BinaryField,
    F,
    Func,
    Model,
    Q,
    QuerySet,
    Value,
)

from checkpoints import payloads
from checkpoints.conf import keyring
from checkpoints.core.keyring import DATA_KEY, ENCRYPTED, key_of
from checkpoints.db.pages import pages
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.sealing import sealed_rows
from orchestrator.engine.errors import CountersignError

BATCH_ROWS = 200
BATCH_BYTES = 8 * 1024 * 1024
"""The most that one transaction encrypts, so that memory stays flat and nobody waits
long.
"""
MOST_FAULTS = 20
PAGE = 20
"""The most checkpoints with bytes in another backend that are read at once."""
_BACKED = ("change", "snapshot")
_CHECKPOINTS = Checkpoint._meta.db_table


@dataclass(slots=True)
class Rotated:
    """The progress of a rotation: rows by table, and rows that cannot be decrypted and
    stay as they are. `elsewhere` is the last checkpoint with bytes in another backend
    that was looked at.
    """

    rows: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    faults: list[str] = field(default_factory=list)
    elsewhere: str = ""

    @property
    def done(self) -> int:
        return sum(self.rows.values())


def behind() -> dict[str, int]:
    """Return, by table, how many rows have a payload column encrypted under an older
    key; tables without any are left out. Rows whose bytes in a backend cannot be read
    are counted too.

    Raises `WrongKey` if there is no encryption key.
    """
    counts = {
        model._meta.db_table: _behind(model, names).count()
        for model, names in encryptable()
    }
    counts[_CHECKPOINTS] += sum(
        1 for page in _elsewhere() for row in page if _is_behind(row)
    )
    return {table: count for table, count in counts.items() if count}


def rotate(result: Rotated) -> Iterator[Rotated]:
    """Encrypt again what is under an older key, batch by batch, each in its own
    transaction; yields `result` after each.

    Rows that others hold are skipped until the next pass. The last pass finds nothing
    to do except rows that cannot be decrypted. Raises `WrongKey` where there is no
    encryption key.
    """
    before = -1
    while result.done != before:
        before = result.done
        # Each pass meets the rows again that cannot be decrypted.
        result.failed = 0
        result.faults = []
        for model, names in encryptable():
            yield from _pass(model, names, result)
        for page in _elsewhere(result.elsewhere):
            for row in page:
                _put_anew(row, result)
            result.elsewhere = str(page[-1].id)
            yield result
        result.elsewhere = ""


def encryptable() -> list[tuple[type[Model], tuple[str, ...]]]:
    """Return the models that hold encrypted columns, with the names of these, in order
    of their tables.
    """
    columns_of: dict[type[Model], tuple[str, ...]] = {}
    for model in apps.get_models():
        columns = tuple(getattr(model, "PAYLOADS", ()))
        if columns:
            columns_of[model] = columns
    columns_of[Checkpoint] = _BACKED
    return sorted(columns_of.items(), key=lambda item: item[0]._meta.db_table)


def _behind(model: type[Model], names: Sequence[str]) -> "QuerySet[Any]":
    """Return the rows with a column that is encrypted, but not under the newest key."""
    key_id = keyring().encrypter.encode()
    newest = ENCRYPTED + bytes([len(key_id)]) + key_id
    old = Q(pk__in=[])
    # Encrypted bytes begin with a form, the length of the id of their key, and the id.
    begins: dict[str, Func] = {}
    for name in names:
        begins[f"{name}_form"] = _begin(name, 1)
        begins[f"{name}_key"] = _begin(name, len(newest))
        begins[f"{name}_id"] = _begin(name, 1, at=3)
        is_newest = Q(**{f"{name}_key": newest})
        # Data keys are never rotated themselves.
        is_data_key = Q(**{f"{name}_id": DATA_KEY.encode()})
        old |= Q(**{f"{name}_form": ENCRYPTED}) & ~(is_newest | is_data_key)
    rows: QuerySet[Any] = model._base_manager.alias(**begins).filter(old)
    return rows.order_by("pk")


def _begin(column: str, length: int, at: int = 1) -> Func:
    return Func(
        F(column),
        Value(at),
        Value(length),
        function="SUBSTR",
        output_field=BinaryField(),
    )


def _pass(
    model: type[Model], names: tuple[str, ...], result: Rotated
) -> Iterator[Rotated]:
    rows = _behind(model, names)
    lengths = [
        Func(F(name), function="LENGTH", output_field=BigIntegerField())
        for name in names
    ]
    last: Any = None
    while True:
        # After the last key: rows that cannot be decrypted would be found again
        # forever.
        after = rows if last is None else rows.filter(pk__gt=last)
        keys = _within(list(after.values_list("pk", *lengths)[:BATCH_ROWS]))
        if not keys:
            return
        _batch(rows.filter(pk__in=keys), names, result)
        last = keys[-1]
        yield result


def _within(sized: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return the first keys whose columns together are no larger than a batch may be;
    at least one.
    """
    keys: list[Any] = []
    room = BATCH_BYTES
    for pk, *sizes in sized:
        room -= sum(sizes)
        if keys and room < 0:
            break
        keys.append(pk)
    return keys


def _batch(rows: "QuerySet[Any]", names: tuple[str, ...], result: Rotated) -> None:
    needed = rows.only("pk", *names, *rows.model.IDENTITY)
    with transaction.atomic():
        # A rotation never waits for a row while it holds others, so it cannot be part
        # of a circle with a run's writer.
        for row in needed.select_for_update(skip_locked=True, no_key=True):
            _anew(row, names, result)


def _anew(row: Any, names: tuple[str, ...], result: Rotated) -> None:
    stored = {name: bytes(getattr(row, name)) for name in names}
    try:
        new = _locked_anew(row, stored)
    except CountersignError as error:
        _failed(row, error, result)
        return
    # Only if nobody has written the row in the meantime.
    unchanged = {name: stored[name] for name in new}
    rows = type(row)._base_manager.filter(pk=row.pk, **unchanged)
    changed = rows.update(**new, **_size_values(row, stored, new))
    _count(row, changed, result)


def _size_values(
    row: Any, stored: dict[str, bytes], new: dict[str, bytes]
) -> dict[str, Any]:
    """Return the new size of a checkpoint: the id of the newest key may be longer, or
    shorter.
    """
    if not isinstance(row, Checkpoint):
        return {}
    return {
        "stored_size": F("stored_size")
        + sum(len(data) - len(stored[name]) for name, data in new.items())
    }


def _locked_anew(row: Any, stored: dict[str, bytes]) -> dict[str, bytes]:
    """Return those of a row's stored bytes that an older key encrypts, encrypted under
    the newest. Raises `TamperedRow`, `WrongKey`.
    """
    protection = sealed_rows.Protection(encrypted=True)
    plain = {
        name: sealed_rows.decrypted(row, name, stored[name]) for name in _old(stored)
    }
    return {
        name: sealed_rows.encrypted(row, name, data, protection)
        for name, data in plain.items()
    }


def _old(stored: dict[str, bytes]) -> list[str]:
    """Return the names of what is encrypted under an older key."""
    newest = keyring().encrypter
    old = []
    for name, data in stored.items():
        if data[:1] != ENCRYPTED:
            continue
        key = key_of(data)
        if key != newest and not key.startswith(DATA_KEY):
            old.append(name)
    return old


def _count(row: Any, changed: int, result: Rotated) -> None:
    table = row._meta.db_table
    if changed:
        result.rows[table] = result.rows.get(table, 0) + changed


def _failed(row: Any, error: CountersignError, result: Rotated) -> None:
    result.failed += 1
    if len(result.faults) < MOST_FAULTS:
        result.faults.append(f"{row._meta.db_table} {row.pk}: {error.message}")


def _elsewhere(after: str = "") -> Iterator[list[Checkpoint]]:
    """Return the checkpoints of encrypted runs whose bytes are in another backend than
    the database, page by page. A fork that a store made has no run yet, and may be
    encrypted.
    """
    encrypted = Q(run__in=Run.objects.filter(encrypted=True).values("id")) | Q(
        source=Source.FORK
    )
    rows = Checkpoint.objects.filter(encrypted).exclude(backend=payloads.DATABASE)
    rows = rows.filter(id__gt=after) if after else rows
    return pages(rows.only("run_id", "backend", *_BACKED), "id", size=PAGE)


def _stored(row: Checkpoint) -> dict[str, bytes]:
    """Return the bytes that a backend stores for the columns of a row. Raises what the
    backend raises.
    """
    columns = {column: bytes(getattr(row, column)) for column in _BACKED}
    return {
        name: payloads.get_payload(row.backend, _named(row, name), data)
        for name, data in columns.items()
        if data
    }


def _is_behind(row: Checkpoint) -> bool:
    """Return whether a row's bytes in a backend are under an older key; true where they
    cannot be read.
    """
    try:
        return bool(_old(_stored(row)))
    except CountersignError:
        return True


def _put_anew(row: Checkpoint, result: Rotated) -> None:
    """Put new bytes under new names, then update the row, then delete the old bytes.
    Wherever it is interrupted, the row's own bytes exist, and all others are swept.
    """
    try:
        stored = _stored(row)
        new = _locked_anew(row, stored)
    except CountersignError as error:
        _failed(row, error, result)
        return
    if not new:
        return
    # The row must still hold what was read when it is updated.
    was = {column: bytes(getattr(row, column)) for column in new}
    put = partial(payloads.put_payload, row.backend)
    columns = {
        column: put(_named(row, column), data, under=uuid4().hex)
        for column, data in new.items()
    }
    values = {**columns, **_size_values(row, stored, new)}
    changed = Checkpoint.objects.filter(pk=row.pk, **was).update(**values)
    for column, data in (was if changed else columns).items():
        payloads.delete_payload(row.backend, _named(row, column), data)
    _count(row, changed, result)


def _named(row: Checkpoint, column: str) -> str:
    return payloads.name_of(row.run_id, row.id, column)
