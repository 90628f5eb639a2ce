"""Rows erased batch by batch: what is left of them sealed anew, and a row of the record for each, in one transaction
under the lock of their run.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from django.db import transaction
from django.utils import timezone

from checkpoints import payloads
from checkpoints.conf import keyring
from checkpoints.core import codec
from checkpoints.core.eraser import Eraser, erased_change, erased_document
from checkpoints.core.keyring import ENCRYPTED, key_of
from checkpoints.erasure.places import FIRST_LINE, PLACES, Place, Values
from checkpoints.ledger import locked_run, reader
from checkpoints.models import Checkpoint, ErasedRow, ErasureRecord, Run
from checkpoints.sealing import data_keys, run_row, sealed_columns, sealed_rows
from checkpoints.sealing.erased_rows import ErasedRows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine import canonical
from orchestrator.engine.errors import WrongKey
from orchestrator.engine.frozen import frozen

BATCH = 100
"""Rows of one transaction."""
CHECKPOINTS = 20
"""Checkpoints of one transaction: each may hold a whole state."""


@frozen
class Batch:
    """How far a table has got: rows looked at, the key behind which it goes on, and of how many rows the record now
    tells.
    """

    rows: int
    after: Any
    noted: int


def erase_rows(place: Place, record: ErasureRecord, eraser: Eraser, after: Any = None) -> Iterator[Batch]:
    """The rows of a place, in order of their keys. Raises `TamperedRow` and `WrongKey` before it seals what does not
    verify.
    """
    while True:
        with transaction.atomic():
            run = locked_run.lock_run(record.run, also_imported=True)
            data_keys.read_use_again(run.id)
            rows = place.rows(run.id).order_by("pk")
            page = (rows if after is None else rows.filter(pk__gt=after))[: 1 if place.shared else BATCH]
            keys = list(page.values_list("pk", flat=True))
            # Another run may write a row that is shared while this waits for it: then it is not this run's any more.
            mine = rows.filter(pk__in=keys).select_for_update() if place.shared else rows.filter(pk__in=keys)
            noted = _erase_page(list(mine), record, protection_of(run), lambda row: place.left(row, eraser))
        if not keys:
            return
        after = keys[-1]
        yield Batch(len(keys), str(after), noted)


def _erase_page(
    page: Sequence[Any], record: ErasureRecord, protection: Protection, left: Callable[[Any], Values]
) -> int:
    """A page that was erased already is passed by: a piece of a job may be done twice. Gives how many were noted."""
    noted = 0
    for row in _not_yet(page, record):
        own = Protection(row.encrypted) if isinstance(getattr(row, "encrypted", None), bool) else protection
        sealed_rows.verify_row(row, own)
        if values := left(row):
            _seal_anew(row, values, record, own)
            noted += 1
    for row in page:
        encrypt_anew(row)
    return noted


def encrypt_anew(row: Any) -> None:
    """Encrypt what is left in a row under the key that encrypts it now, where another one did: a data key that is to be
    destroyed takes nothing with it that stays. Neither seal nor content changes.
    """
    new = {}
    for name in type(row).PAYLOADS:
        kept = bytes(getattr(row, name) or b"")
        if kept[:1] == ENCRYPTED and key_of(kept) != (data_keys.key_for(row) or keyring().encrypter):
            plain = sealed_rows.decrypted(row, name)
            new[name] = sealed_rows.encrypted(row, name, plain, Protection(encrypted=True))
    if new:
        type(row)._base_manager.filter(pk=row.pk).update(**new)


def require_own_key_unused(run: Run) -> None:
    """Raise `WrongKey` where what is left of a run is still encrypted under the key that is to be destroyed."""
    places = [(place.rows(run.id), place.model) for place in (*PLACES, FIRST_LINE)]
    places += [(Checkpoint.objects.filter(run=run.id), Checkpoint), (Run.objects.filter(id=run.id), Run)]
    for rows, model in places:
        given: Any = model
        columns = ("change", "snapshot") if model is Checkpoint else given.PAYLOADS
        if data_keys.is_under_own_key(rows, columns, run.id):
            message = f"rows of {model._meta.db_table} are still encrypted under the data key of run {run.key}"
            raise WrongKey(message, run=str(run.id))


def _not_yet(page: Sequence[Any], record: ErasureRecord) -> list[Any]:
    if not page:
        return []
    keys = [str(row.pk) for row in page]
    done = ErasedRow.objects.filter(record=record, table=page[0]._meta.db_table, row__in=keys)
    there = set(done.values_list("row", flat=True))
    return [row for row in page if str(row.pk) not in there]


def _seal_anew(row: Any, values: Values, record: ErasureRecord, protection: Protection) -> None:
    old = (bytes(row.seal), row.seal_key)
    packed = {name: value for name, value in values.items() if name in type(row).PAYLOADS}
    names = sealed_rows.seal_again(row, protection, **values)
    contents = {name: codec.unpack(data) for name, data in packed.items() if data}
    # The database lets a decision be changed only where its record is there.
    note_row(row, record, old, contents, protection)
    type(row)._base_manager.filter(pk=row.pk).update(**{name: getattr(row, name) for name in names})


def note_row(
    row: Any, record: ErasureRecord, old: tuple[bytes, str], contents: dict[str, bytes], protection: Protection
) -> None:
    """Write down a row with its old seal, its new one, and the hashes of what stands in it now: in what an earlier
    erasure changed too, for only the newest says what stands there.
    """
    before = ErasedRows.of_rows([row]).said_of(row)
    hashes = {name: protection.digest(data) for name, data in contents.items()}
    said = ErasedRow(
        record=record,
        run=record.run,
        table=row._meta.db_table,
        row=str(row.pk),
        old_seal=old[0],
        old_key=old[1],
        new_seal=bytes(row.seal),
        new_key=row.seal_key,
        contents={**(before.contents if before else {}), **hashes},
        at=timezone.now(),
    )
    sealed_rows.seal(said, sealed_rows.PLAIN)
    said.save(force_insert=True)


def erase_checkpoints(record: ErasureRecord, eraser: Eraser, after: int | None = None) -> Iterator[Batch]:
    """The checkpoints of a run, the newest first: so what is left can be folded, and what is not erased yet too."""
    while True:
        replaced: list[tuple[Checkpoint, str, bytes]] = []
        noted = 0
        with transaction.atomic():
            run = locked_run.lock_run(record.run, also_imported=True)
            data_keys.read_use_again(run.id)
            rows = Checkpoint.objects.filter(run=run.id).order_by("-seq")
            page = list((rows if after is None else rows.filter(seq__lt=after))[:CHECKPOINTS])
            for row in _not_yet(page, record):
                erased, was = _erase_checkpoint(row, record, eraser, protection_of(run))
                noted += erased
                replaced += was
        for row, column, kept in replaced:
            payloads.delete_payload(row.backend, payloads.name_of(row.run_id, row.id, column), kept)
        if page:
            after = page[-1].seq
            yield Batch(len(page), after, noted)
        if len(page) < CHECKPOINTS:
            return


def _erase_checkpoint(
    row: Checkpoint, record: ErasureRecord, eraser: Eraser, protection: Protection
) -> tuple[bool, list[tuple[Checkpoint, str, bytes]]]:
    """Gives whether anything was erased, and what a backend keeps of it no longer, to be deleted after the commit. New
    bytes are put before the row points to them; where that is cut off they are swept.
    """
    sealed_rows.verify_row(row, protection)
    stored = {name: reader.stored_bytes(row, name) for name in ("change", "snapshot")}
    parts = {name: reader.bytes_of(row, name, protection, stored=data) for name, data in stored.items() if data}
    for name, data in parts.items():
        reader.require_hashed(row, data, protection, begins=name == "snapshot")
    left = {name: canonical.encode(_left(row, name, data, eraser)) for name, data in parts.items()}
    changed = {name: data for name, data in left.items() if data != parts[name]}
    # What stays is encrypted anew, under another key than the one that will be destroyed.
    left = left if protection.encrypted and not record.paths else changed
    if not left:
        return False, []
    was = {name: bytes(getattr(row, name)) for name in left}
    old = (bytes(row.seal or b""), row.seal_key)
    locked = {name: sealed_rows.encrypted(row, name, codec.pack(data), protection) for name, data in left.items()}
    columns = _put(row, locked)
    row.stored_size = sum(len(data) for data in (stored | locked).values())
    names = sealed_rows.seal_again(row, protection)
    note_row(row, record, old, left, protection)
    values = {name: getattr(row, name) for name in names} | columns | {"stored_size": row.stored_size}
    Checkpoint.objects.filter(id=row.id).update(**values)
    elsewhere = row.backend != payloads.DATABASE
    return True, [(row, name, kept) for name, kept in was.items()] if elsewhere else []


def _left(row: Checkpoint, column: str, data: bytes, eraser: Eraser) -> Any:
    if column == "snapshot":
        return erased_document(canonical.loads(data), eraser)
    before = reader.document_at(row.parent) if eraser.counts and row.parent is not None else None
    return erased_change(canonical.loads(data), before, eraser)


def _put(row: Checkpoint, locked: dict[str, bytes]) -> dict[str, bytes]:
    columns = {}
    for name, data in locked.items():
        where = payloads.name_of(row.run_id, row.id, name)
        columns[name] = payloads.put_payload(row.backend, where, data, under=uuid4().hex)
    return columns


def erase_run_row(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """What the locked row of a run, and the first line of its log, say of its values: input, error, label, facts."""
    _erase_page(list(FIRST_LINE.rows(run.id)), record, protection_of(run), lambda row: FIRST_LINE.left(row, eraser))
    given = run_row.input_of(run)
    left = eraser.input(given)
    protection = protection_of(run)
    packed = {"input": pack_json(left)} if left != given else {}
    for column, erase in (("error", eraser.error), ("progress", eraser.texts)):
        value = sealed_columns.read_value(run, column)
        if value is not None and (kept := erase(value)) != value:
            packed[column] = pack_json(kept)
    values: dict[str, Any] = {name: sealed_rows.encrypted(run, name, data, protection) for name, data in packed.items()}
    values |= _shown_left(run, record, eraser)
    if not values:
        return
    if not ErasedRow.objects.filter(record=record, table=run._meta.db_table, row=str(run.id)).exists():
        contents = {name: codec.unpack(data) for name, data in packed.items() if name == "input"}
        note_row(run, record, (bytes(run.seal or b""), run.seal_key), contents, protection)
    Run.objects.filter(id=run.id).update(**values)
    run.refresh_from_db(fields=list(values))
    encrypt_anew(run)


def _shown_left(run: Run, record: ErasureRecord, eraser: Eraser) -> dict[str, Any]:
    """Label and facts: of all values nothing, which lists tell from the run's own name."""
    if not record.paths:
        return {"label": "", "facts": {}}
    return {"label": eraser.text(run.label), "facts": eraser.texts(run.facts)}
