"""Erasing rows batch by batch: each is resealed without its values and noted in the
record, in one transaction under the lock of its run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from orchestrator.engine.errors import WrongKey
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

BATCH = 100
"""The most rows of one transaction."""
CHECKPOINTS = 20
"""The most checkpoints of one transaction: each may hold a whole state."""


@frozen
class Batch:
    """One batch of a table: how many rows were read, the key after which the next one
    begins, and how many rows were noted in the record.
    """

    rows: int
    after: Any
    noted: int


def erase_rows(
    place: Place, record: ErasureRecord, eraser: Eraser, after: Any = None
) -> Iterator[Batch]:
    """Erase the rows of a place, in order of their keys, and yield each batch. Raises
    `TamperedRow` and `WrongKey` before it seals a row that does not verify.
    """

    def new_values(row: Any) -> Values:
        return place.left(row, eraser)

    size = 1 if place.shared else BATCH
    while True:
        with transaction.atomic():
            run = locked_run.lock_run(record.run, also_imported=True)
            data_keys.read_use_again(run.id)
            rows = place.rows(run.id).order_by("pk")
            page = rows if after is None else rows.filter(pk__gt=after)
            keys = list(page[:size].values_list("pk", flat=True))
            own_rows = rows.filter(pk__in=keys)
            if place.shared:
                # Another run may write a shared row while this waits for it: then it is
                # no longer this run's.
                own_rows = own_rows.select_for_update()
            noted = _erase_page(list(own_rows), record, protection_of(run), new_values)
        if not keys:
            return
        # By the keys, because a row may belong to another run when it is locked.
        after = keys[-1]
        yield Batch(len(keys), str(after), noted)


def _erase_page(
    page: Sequence[Any],
    record: ErasureRecord,
    protection: Protection,
    new_values: Callable[[Any], Values],
) -> int:
    """Erase the rows of a page, and return how many were noted. Rows that were erased
    already are skipped: a piece of a job may be repeated.
    """
    noted = 0
    for row in _not_yet_erased(page, record):
        # A row that runs share is encrypted or not by itself.
        row_protection = protection
        # Memory is the installation's, written by encrypted runs and by others.
        if isinstance(getattr(row, "encrypted", None), bool):
            row_protection = Protection(row.encrypted)
        sealed_rows.verify_row(row, row_protection)
        values = new_values(row)
        if values:
            _seal_anew(row, values, record, row_protection)
            noted += 1
    # Also rows that stay as they are: the run's data key may be destroyed at the end.
    for row in page:
        encrypt_anew(row)
    return noted


def encrypt_anew(row: Any) -> None:
    """Encrypt the payloads of a row under the current key, where another one was used:
    so a data key that is to be destroyed takes nothing with it that stays. Neither seal
    nor content changes.
    """
    changed = {}
    for name in type(row).PAYLOADS:
        stored = bytes(getattr(row, name) or b"")
        if stored[:1] != ENCRYPTED:
            continue
        # Once the data key of a run is retired, a key of the ring encrypts its rows.
        current_key = data_keys.key_for(row) or keyring().encrypter
        if key_of(stored) != current_key:
            plain = sealed_rows.decrypted(row, name)
            changed[name] = sealed_rows.encrypted(
                row, name, plain, Protection(encrypted=True)
            )
    if changed:
        type(row)._base_manager.filter(pk=row.pk).update(**changed)


def require_own_key_unused(run: Run) -> None:
    """Raise `WrongKey` if payloads of a run are still encrypted under the key that is
    to be destroyed.
    """
    places: list[tuple[Any, Any]] = []
    for place in (*PLACES, FIRST_LINE):
        places.append((place.rows(run.id), place.model))
    places.append((Checkpoint.objects.filter(run=run.id), Checkpoint))
    places.append((Run.objects.filter(id=run.id), Run))
    for rows, model in places:
        columns = ("change", "snapshot") if model is Checkpoint else model.PAYLOADS
        if data_keys.is_under_own_key(rows, columns, run.id):
            message = (
                f"rows of {model._meta.db_table} are still encrypted "
                f"under the data key of run {run.key}"
            )
            raise WrongKey(message, run=str(run.id))


def _not_yet_erased(page: Sequence[Any], record: ErasureRecord) -> list[Any]:
    if not page:
        return []
    keys = [str(row.pk) for row in page]
    # By this record alone: an earlier erasure of other paths left the rest of a row.
    done = ErasedRow.objects.filter(
        record=record, table=page[0]._meta.db_table, row__in=keys
    )
    erased_keys = set(done.values_list("row", flat=True))
    return [row for row in page if str(row.pk) not in erased_keys]


def _seal_anew(
    row: Any, values: Values, record: ErasureRecord, protection: Protection
) -> None:
    old = (bytes(row.seal), row.seal_key)
    names = sealed_rows.seal_again(row, protection, **values)
    contents = {}
    for name, value in values.items():
        if value and name in type(row).PAYLOADS:
            contents[name] = codec.unpack(value)
    # The database accepts a change to a decision only if its note exists.
    note_row(row, record, old, contents, protection)
    changed = {name: getattr(row, name) for name in names}
    # The default manager of decisions refuses every change.
    type(row)._base_manager.filter(pk=row.pk).update(**changed)


def note_row(
    row: Any,
    record: ErasureRecord,
    old: tuple[bytes, str],
    contents: dict[str, bytes],
    protection: Protection,
) -> None:
    """Note a row with its old seal, its new one, and the hashes of its contents now:
    also of the columns that an earlier erasure changed, for only the newest counts.
    """
    earlier_note = ErasedRows.of_rows([row]).said_of(row)
    hashes = dict(earlier_note.contents) if earlier_note else {}
    for name, data in contents.items():
        hashes[name] = protection.digest(data)
    note = ErasedRow(
        record=record,
        run=record.run,
        table=row._meta.db_table,
        row=str(row.pk),
        old_seal=old[0],
        old_key=old[1],
        new_seal=bytes(row.seal),
        new_key=row.seal_key,
        contents=hashes,
        at=timezone.now(),
    )
    sealed_rows.seal(note, sealed_rows.PLAIN)
    note.save(force_insert=True)


def erase_checkpoints(
    record: ErasureRecord, eraser: Eraser, after: int | None = None
) -> Iterator[Batch]:
    """Erase the checkpoints of a run, the newest first, and yield each batch: in this
    order the ones that are erased can be folded, and the others too.
    """
    while True:
        replaced: list[tuple[Checkpoint, str, bytes]] = []
        noted = 0
        with transaction.atomic():
            run = locked_run.lock_run(record.run, also_imported=True)
            data_keys.read_use_again(run.id)
            rows = Checkpoint.objects.filter(run=run.id).order_by("-seq")
            if after is not None:
                rows = rows.filter(seq__lt=after)
            page = list(rows[:CHECKPOINTS])
            for row in _not_yet_erased(page, record):
                is_erased, old_payloads = _erase_checkpoint(
                    row, record, eraser, protection_of(run)
                )
                noted += is_erased
                replaced += old_payloads
        # Only now: a transaction that is rolled back still needs the old bytes.
        for row, column, stored in replaced:
            name = payloads.name_of(row.run_id, row.id, column)
            payloads.delete_payload(row.backend, name, stored)
        if page:
            after = page[-1].seq
            yield Batch(len(page), after, noted)
        # Runs that are erased have ended or were imported, so no checkpoint is added.
        if len(page) < CHECKPOINTS:
            return


def _erase_checkpoint(
    row: Checkpoint, record: ErasureRecord, eraser: Eraser, protection: Protection
) -> tuple[bool, list[tuple[Checkpoint, str, bytes]]]:
    """Return whether anything was erased, and the payloads that a backend no longer
    needs, to be deleted after the commit. New bytes are stored before the row points to
    them; after an interruption they are swept.
    """
    sealed_rows.verify_row(row, protection)
    stored = {name: reader.stored_bytes(row, name) for name in ("change", "snapshot")}
    # The key of a run that is erased as a whole will be destroyed, so what stays is
    # re-encrypted under another one.
    changes_key = protection.encrypted and not record.paths
    new_contents = _new_contents(row, stored, eraser, protection, every=changes_key)
    if not new_contents:
        return False, []

    old_seal = (bytes(row.seal or b""), row.seal_key)
    old_payloads = []
    # Bytes within the row go with the update of the row.
    if row.backend != payloads.DATABASE:
        for name in new_contents:
            old_payloads.append((row, name, bytes(getattr(row, name))))
    for name, data in new_contents.items():
        packed = codec.pack(data)
        stored[name] = sealed_rows.encrypted(row, name, packed, protection)
    columns = _put(row, stored, new_contents)
    row.stored_size = sum(len(data) for data in stored.values())
    names = sealed_rows.seal_again(row, protection)
    note_row(row, record, old_seal, new_contents, protection)
    values = {name: getattr(row, name) for name in names}
    values |= columns
    values["stored_size"] = row.stored_size
    Checkpoint.objects.filter(id=row.id).update(**values)
    return True, old_payloads


def _new_contents(
    row: Checkpoint,
    stored: dict[str, bytes],
    eraser: Eraser,
    protection: Protection,
    *,
    every: bool,
) -> dict[str, bytes]:
    """Return the payloads of a checkpoint that change, or `every` one, without the
    erased values.
    """
    new_contents = {}
    for name, stored_data in stored.items():
        if not stored_data:
            continue
        data = reader.bytes_of(row, name, protection, stored=stored_data)
        new_data = _erased_payload(row, name, data, eraser, protection)
        if every or new_data != data:
            new_contents[name] = new_data
    return new_contents


def _put(
    row: Checkpoint, stored: dict[str, bytes], names: Iterable[str]
) -> dict[str, bytes]:
    """Store payloads in the row's backend under new names, and return the columns."""
    columns = {}
    for column in names:
        name = payloads.name_of(row.run_id, row.id, column)
        # A backend refuses other bytes under a name that it has, so each gets a new one.
        columns[column] = payloads.put_payload(
            row.backend, name, stored[column], under=uuid4().hex
        )
    return columns


def _erased_payload(
    row: Checkpoint, column: str, data: bytes, eraser: Eraser, protection: Protection
) -> bytes:
    """Return the snapshot or the change of a checkpoint without the erased values.
    Raises `TamperedRow` if it does not have its hash.
    """
    is_snapshot = column == "snapshot"
    reader.require_hashed(row, data, protection, begins=is_snapshot)
    if is_snapshot:
        return canonical.encode(erased_document(canonical.loads(data), eraser))
    # Some erasers must know what the ops of a change are applied to.
    before = None
    if eraser.counts and row.parent is not None:
        before = reader.document_at(row.parent)
    return canonical.encode(erased_change(canonical.loads(data), before, eraser))


def erase_run_row(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Erase the values in the locked row of a run, and in the first event of its log:
    input, error, label, facts.
    """
    protection = protection_of(run)

    def new_values(row: Any) -> Values:
        return FIRST_LINE.left(row, eraser)

    _erase_page(list(FIRST_LINE.rows(run.id)), record, protection, new_values)

    packed = _changed_payloads(run, eraser)
    values: dict[str, Any] = {}
    for name, data in packed.items():
        values[name] = sealed_rows.encrypted(run, name, data, protection)
    values |= _shown_left(run, record, eraser)
    if not values:
        return
    notes = ErasedRow.objects.filter(
        record=record, table=run._meta.db_table, row=str(run.id)
    )
    if not notes.exists():
        # The seal covers the input alone.
        contents = {}
        if "input" in packed:
            contents["input"] = codec.unpack(packed["input"])
        old_seal = (bytes(run.seal or b""), run.seal_key)
        note_row(run, record, old_seal, contents, protection)
    Run.objects.filter(id=run.id).update(**values)
    # Or `encrypt_anew` would write back the values that were just erased.
    run.refresh_from_db(fields=list(values))
    encrypt_anew(run)


def _changed_payloads(run: Run, eraser: Eraser) -> dict[str, bytes]:
    """Return the payloads of a run's row that change, packed, without erased values."""
    packed = {}
    input_json = run_row.input_of(run)
    erased_input = eraser.input(input_json)
    if erased_input != input_json:
        packed["input"] = pack_json(erased_input)
    for column, erase in (("error", eraser.error), ("progress", eraser.texts)):
        value = sealed_columns.read_value(run, column)
        if value is None:
            continue
        erased_value = erase(value)
        if erased_value != value:
            packed[column] = pack_json(erased_value)
    return packed


def _shown_left(run: Run, record: ErasureRecord, eraser: Eraser) -> dict[str, Any]:
    """Return label and facts without erased values: empty if all values are erased, and
    lists show the run's key.
    """
    if not record.paths:
        return {"label": "", "facts": {}}
    return {"label": eraser.text(run.label), "facts": eraser.texts(run.facts)}
