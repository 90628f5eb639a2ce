"""The import of a bundle from an installation whose key is trusted. The bundle is read
twice: first to validate all of it, then to write it in one transaction.

Its rows are resealed with the keys of this installation, and the run is verified like
any other before the transaction ends. The run is read-only from then on;
`docs/bundles.md` says what can be done with it.
"""

import base64
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import DataError, IntegrityError, transaction
from django.db.models import Model
from django.utils import timezone

from checkpoints import payloads, uploads
from checkpoints.audit import lines as audit_log
from checkpoints.bundle import told_erasures, verifier
from checkpoints.bundle.row_json import BYTES, columns_of, is_person
from checkpoints.bundle.row_reader import People, row_of
from checkpoints.bundle.row_shapes import require_shapes
from checkpoints.bundle.signing_keys import name_of_key, public_key
from checkpoints.bundle.tables import TABLES, shapes_of
from checkpoints.bundle.told_erasures import Note
from checkpoints.bundle.verifier import Bad, Contents
from checkpoints.core.run_key import LONGEST_KEY, RULE, is_run_key
from checkpoints.core.status import ENDS, STOPPED, Status
from checkpoints.core.visible_text import visible_text
from checkpoints.models import (
    AuditLine,
    BundleImport,
    Checkpoint,
    ErasureRecord,
    PendingWrite,
    Run,
    RunLine,
)
from checkpoints.models.fields import Sealed
from checkpoints.rights import require_right_of_verb
from checkpoints.sealing import data_keys, run_row, sealed_columns, sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, Protection, protection_of
from checkpoints.verification import verify_run
from checkpoints.verification.audit import REMOVED
from orchestrator.engine.errors import (
    CountersignError,
    InvalidBundle,
    InvalidValue,
    KeyConflict,
    TamperedRow,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

BATCH_ROWS = 50
BATCH_BYTES = 4_000_000
# The signature is the last line, and no longer than this with its frame.
_TAIL = 2 * verifier.LONGEST_SIGNATURE
_KEY = re.compile(rb'"key":"([0-9a-f]{64})"')
_NONSENSE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    DataError,
)
"""The exceptions of reading rows that a trusted key signed but that no row can be."""


@frozen
class Signed:
    """A bundle that a trusted key signed: the key and its name, the hash of the last
    line, the number of lines.
    """

    signer: bytes
    signer_name: str
    last: str
    lines: int


def load(file: "str | PathLike[str] | BinaryIO", *, by: Any = None) -> Run:
    """Return the run of a bundle, read-only. The same bundle again returns the same
    run. `by` None means the system.

    Nothing is changed, but for a line in the audit log, where it raises `InvalidBundle`
    (with `line` and `reason`), `KeyConflict` (a run or a row of that id is here
    already), `WrongKey` (it is encrypted under a key that is not here), `OSError`;
    `Forbidden`, where verbs ask for rights.
    """
    run, _ = load_or_find(file, by=by)
    return run


def load_or_find(
    file: "str | PathLike[str] | BinaryIO", *, by: Any = None
) -> tuple[Run, bool]:
    """Return the run of `load`, and whether this call made it."""
    require_right_of_verb(by, "import_run")
    if not isinstance(file, str | PathLike) and not hasattr(file, "readline"):
        raise InvalidValue("file is a path, or a binary file", path="file")
    try:
        with _opened(file) as source:
            run, is_new = _loaded(source, by)
    except CountersignError as refused:
        facts = {}
        for name in ("line", "run"):
            if name in refused.facts:
                facts[name] = refused.facts[name]
        # Outside the transaction of the import, which took back all that it wrote.
        audit_log.record("refused_import", actor=by, code=refused.code, **facts)
        raise
    if is_new:
        audit_log.record(
            "run_imported", actor=by, run=run.id, last=run.bundle_import.last
        )
    return run, is_new


def _opened(file: Any) -> AbstractContextManager[BinaryIO]:
    if not isinstance(file, str | PathLike):
        return nullcontext(file)
    try:
        return Path(file).open("rb")
    except ValueError:
        raise InvalidValue("file is no path that can be opened", path="file") from None


def _loaded(source: BinaryIO, by: Any) -> tuple[Run, bool]:
    """Return the run, and whether it is new. Raises `InvalidBundle`, `KeyConflict`."""
    begin = source.tell()
    try:
        signed = _require_trusted(source, begin)
        source.seek(begin)
        first_reading = _Reading(source, signed, {})
        # To the end: only there is it certain that these rows are those that were
        # signed.
        for _ in first_reading.rows():
            pass
        return _find_or_write(source, begin, signed, first_reading, by)
    except Bad as bad:
        raise _invalid(*bad.args) from None
    except TamperedRow as error:
        raise _invalid(0, error.message) from error


def _find_or_write(
    source: BinaryIO, begin: int, signed: Signed, first_reading: "_Reading", by: Any
) -> tuple[Run, bool]:
    """Return the run that this bundle made before, or write it; and whether it is new.
    The bundle was valid when it was first read.
    """
    row = first_reading.contents.run_row
    imported = _imported_before(row, signed)
    if imported is not None:
        return imported, False
    _require_end_of_removed(row)
    source.seek(begin)

    # Users of another installation are none here, whatever their names.
    is_own = signed.signer == public_key()
    people = _people(first_reading.names) if is_own else {}
    try:
        with transaction.atomic():
            return _written(_Reading(source, signed, people), signed, by), True
    except IntegrityError as error:
        # Another import of this very bundle may have been first.
        imported = _imported_before(row, signed)
        if imported is not None:
            return imported, False
        raise KeyConflict(
            "a row of this bundle is here already, in another run"
        ) from error
    except _NONSENSE as error:
        raise _invalid(0, _sentence(error)) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    return f"it does not say what it must: {error!r}"[:200]


def _invalid(line: int, reason: str) -> InvalidBundle:
    """Return the refusal. A reason may quote the bundle, and hold characters that no
    answer can carry.
    """
    visible = visible_text(reason)
    message = f"line {line} of the bundle: {visible}" if line else visible
    return InvalidBundle(message, line=line, reason=visible)


def _require_trusted(source: BinaryIO, begin: int) -> Signed:
    """Return the signature of a bundle. Raises `Bad` if it is not signed as a whole
    with a trusted key.
    """
    source.seek(max(begin, source.seek(0, os.SEEK_END) - _TAIL))
    named_keys = _KEY.findall(source.read(_TAIL))
    # The key that the bundle names only chooses among those that are trusted here.
    signer = bytes.fromhex(named_keys[-1].decode()) if named_keys else public_key()
    source.seek(begin)
    name = name_of_key(signer)
    if name is None:
        raise Bad(
            0, f"it is signed with a key that is not trusted here: {signer.hex()}"
        )
    last, lines = verifier.require_signed(source, signer)
    return Signed(signer, name, last, lines)


def _people(names: Collection[str]) -> People:
    """Return the people among these that are users here. One query."""
    users = get_user_model()
    rows = users._default_manager.filter(**{f"{users.USERNAME_FIELD}__in": names})
    return dict(rows.values_list(users.USERNAME_FIELD, "pk"))


def _imported_before(row: Mapping[str, Any], signed: Signed) -> Run | None:
    """Return the run that this very bundle made before, or None. Raises `KeyConflict`
    if another run has its id.
    """
    run_id = UUID(row["id"])
    run = Run.objects.filter(id=run_id).select_related("bundle_import").first()
    if run is not None and run.imported and run.bundle_import.last == signed.last:
        return run
    # Checkpoints can be here without a run's row.
    if run is not None or Checkpoint.objects.filter(run=run_id).exists():
        message = f"run {run_id} is here already, and did not come from this bundle"
        raise KeyConflict(message, run=str(run_id))
    return None


def _require_end_of_removed(row: Mapping[str, Any]) -> None:
    """Raise `KeyConflict` if this run was removed here and its log ended elsewhere:
    only the removed run itself may come back. Otherwise the log would end before an
    anchored line, or differ.
    """
    last: dict[str, Any] | None = None
    for line in AuditLine.objects.filter(run=row["id"], kind=REMOVED):
        # A line that does not match its seal proves nothing.
        if fault_of(line, PLAIN) is not None:
            continue
        if last is None or int(line.facts["event_seq"]) > int(last["event_seq"]):
            last = line.facts
    if last is None:
        return
    removed_end = (last["event_seq"], last["event_hash"])
    if removed_end == (row["event_seq"], row["event_hash"]):
        return
    message = (
        f"run {row['id']} was removed here at line {last['event_seq']} "
        "of its log, where this bundle does not end"
    )
    if "bundle" in last:
        message += f"; {last['bundle']} is the bundle that restores it"
    raise KeyConflict(message, run=row["id"])


class _Reading:
    """One pass over a bundle: its rows in order, each checked. `contents` is the
    verifier's state, `names` are the people that rows name. Only at its end it is
    certain that the rows are those that were signed.
    """

    def __init__(self, source: BinaryIO, signed: Signed, people: People) -> None:
        self._source = source
        self._end = (signed.last, signed.lines)
        self._people = people
        self.names: set[str] = set()
        self.contents = Contents()
        self.manifest: dict[str, Any] = {}
        self.erasures: list[ErasureRecord] = []
        self._ids: dict[str, set[Any]] = {"request": set(), "receipt": set()}

    def rows(self) -> Iterator[tuple[Model, Note | None]]:
        """Yield each row with the note of its line on erased values. Raises `Bad` for
        the first line that cannot be imported.
        """
        for number, body, _ in verifier.chained(self._source, self._end):
            line = verifier.parsed(body, number)
            try:
                self.contents.take(line, number)
                row = self._row(line)
            except _NONSENSE as error:
                raise Bad(number, _sentence(error)) from None
            if row is not None:
                yield row, line.get("erased")
        if self.contents.as_is:
            raise Bad(1, "it was exported as it is, for the run did not verify")

    def _row(self, line: dict[str, Any]) -> Any:
        """Return the row of a line, or None. Raises one of `_NONSENSE`."""
        kind = line["kind"]
        if kind == "manifest":
            self._take_manifest(line)
        if kind not in verifier.ROWS:
            return None
        columns = line["row"]
        model: type[Model] = Run
        if kind == "run":
            _require_key("the run", columns["key"], run=columns["id"])
        else:
            model = TABLES[kind].model
        row: Any = row_of(
            model,
            columns,
            encrypted=self.contents.encrypted,
            people=self._people,
            shapes=shapes_of(model),
            erased=self.contents.erased,
        )
        for field in columns_of(model):
            if is_person(field) and columns[field.name]:
                self.names.add(columns[field.name])
        self._require_related(kind, row)
        return row

    def _take_manifest(self, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        exported_at = datetime.fromisoformat(manifest["exported_at"])
        run = manifest["run"]
        if exported_at.tzinfo is None or str(UUID(run)) != run:
            raise ValueError(
                "the manifest does not say when it was exported, or of which run"
            )
        _require_key("the manifest", manifest["key"], run=run)
        base64.b64decode(manifest["data_key"], validate=True)
        self.erasures = told_erasures.records_in(manifest, self._people)
        for erasure in manifest["erasures"]:
            if erasure["by"]:
                self.names.add(erasure["by"])

    def _require_related(self, kind: str, row: Any) -> None:
        """Raise `ValueError` if a decision or comment refers to a row that is not in the
        bundle, but may be here in another run.
        """
        for name, ids in self._ids.items():
            if kind == name:
                ids.add(row.id)
            elif kind in ("decision", "comment"):
                # A comment is of no receipt.
                related = getattr(row, f"{name}_id", None)
                if related is not None and related not in ids:
                    message = f"the {name} of this {kind} is not in the bundle"
                    raise ValueError(message)


def _require_key(what: str, key: Any, *, run: str) -> None:
    """Raise `ValueError` for a key that no run could be started with, because it would
    become part of addresses and aliases here.

    The key of a run that was started without one is its id.
    """
    if not isinstance(key, str) or not (is_run_key(key) or key == run):
        raise ValueError(f"{what} has a key that no run can have, which is {RULE}")


def _written(reading: _Reading, signed: Signed, by: Any) -> Run:
    """Write the rows of a bundle, and return its run once that verifies."""
    batch = _Batch()
    for row, note in reading.rows():
        if isinstance(row, Run):
            # The data key opens the payloads of the rows that follow.
            wrapped_key = base64.b64decode(reading.manifest["data_key"])
            data_keys.keep_wrapped_key(row.id, wrapped_key)
            # Before the run's row is inserted, which names the newest of the records.
            told_erasures.keep_records(row, reading.erasures)
            batch.begin(_placed(row, note["columns"] if note else {}), note)
        else:
            batch.add(row, note)
    batch.flush()
    run = batch.run
    told_erasures.seal_records(run, reading.erasures)
    bundle_import = BundleImport(
        run=run,
        origin_key=reading.manifest["key"],
        signer=signed.signer.hex(),
        signer_name=signed.signer_name,
        last=signed.last,
        lines=signed.lines,
        exported_at=datetime.fromisoformat(reading.manifest["exported_at"]),
        by=by,
        at=timezone.now(),
    )
    sealed_rows.seal(bundle_import, protection_of(run))
    bundle_import.save(force_insert=True)
    faults = verify_run(run.id, most=1)
    if faults:
        raise _invalid(0, f"the run does not verify: {faults[0].reason}")
    return Run.objects.select_related("bundle_import").get(id=run.id)


def _placed(run: Run, erased: Collection[str]) -> Run:
    """Insert the run's row as it is stored here and return it: under a key that no
    start uses, payloads in this installation's backend, and paused unless it has ended
    or stopped.
    """
    # The key itself stays free for a start here; the end of the id is added to this.
    run.key = f"{run.key[: LONGEST_KEY - 9]}~{str(run.id)[-8:]}"
    run.payloads = payloads.chosen(None)
    run.imported = True
    # No worker continues it here, and `verify_run` says whether it is tampered.
    if run.status not in {*ENDS, *STOPPED} or run.status == Status.TAMPERED:
        run.status = Status.PAUSED
    _decrypt(run)
    _require_opened_shapes(run, erased, protection_of(run))
    sealed = run_row.seal_columns(
        run,
        head=run.head,
        head_hash=run.head_hash,
        event_seq=run.event_seq,
        event_hash=run.event_hash,
        decisions=run.decisions,
    )
    run.seal = sealed["seal"]
    run.seal_key = sealed["seal_key"]
    sealed_rows.encrypt(run, protection_of(run))
    run.save(force_insert=True)
    # A bundle holds no files, but if the run came from this installation they may still
    # be here: keep them for it.
    uploads.note_references(run.id, sealed_columns.read_value(run, "input"))
    return run


def _decrypt(row: Any) -> None:
    """Decrypt the payload columns of a row in place, so that it can be sealed."""
    for name in getattr(row, "PAYLOADS", ()):
        if bytes(getattr(row, name)):
            setattr(row, name, sealed_rows.decrypted(row, name))


def _require_opened_shapes(
    row: Any, erased: Collection[str], protection: Protection
) -> None:
    """Check the shapes of the payload columns of an encrypted run, which can be read
    only now. Raises `ValueError`.
    """
    if not protection.encrypted:
        return
    contents = {}
    for name in getattr(row, "PAYLOADS", ()):
        if name in erased:
            continue
        data = sealed_columns.read_bytes(row, name)
        if data:
            contents[name] = canonical.loads(data)
    require_shapes(row, contents, shapes_of(type(row)))


class _Batch:
    """Rows of one table that are written together."""

    run: Run

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._notes: list[Note | None] = []
        self._size = 0

    def begin(self, run: Run, note: Note | None) -> None:
        self.run = run
        self._protection = protection_of(run)
        told_erasures.note_rows(run, [(run, note)])

    def add(self, row: Any, note: Note | None) -> None:
        if self._rows and type(row) is not type(self._rows[0]):
            self.flush()
        self._prepare(row, note["columns"] if note else {})
        self._rows.append(row)
        self._notes.append(note)
        for value in vars(row).values():
            if isinstance(value, bytes):
                self._size += len(value)
        if len(self._rows) >= BATCH_ROWS or self._size > BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows, in one statement. Raises `KeyConflict` if a write of them is
        one of another run.
        """
        if not self._rows:
            return
        model = type(self._rows[0])
        _require_own_writes(self.run, model, self._rows)
        model._base_manager.bulk_create(self._rows)
        noted_rows = list(zip(self._rows, self._notes, strict=True))
        told_erasures.note_rows(self.run, noted_rows)
        self._rows = []
        self._notes = []
        self._size = 0

    def _prepare(self, row: Any, erased: Mapping[str, str]) -> None:
        """Check a row and seal it again; `erased` are hashes of its erased columns."""
        if isinstance(row, RunLine):
            _require_departure(self.run, row)
        if isinstance(row, Checkpoint):
            # Before it is sealed: the seal covers the name of the backend.
            row.backend = self.run.payloads
        if isinstance(row, Sealed):
            _decrypt(row)
            _require_opened_shapes(row, erased, self._protection)
            sealed_rows.seal_and_encrypt([row], self._protection)
        stored_size = 0
        for column in BYTES.get(type(row), ()):
            stored_size += self._put(row, column, erased.get(column))
        if isinstance(row, Checkpoint):
            row.stored_size = stored_size

    def _put(self, row: Any, column: str, erased: str | None) -> int:
        """Give the bytes of a checkpoint to the payload backend, and return how many
        they are. They must have the hash of the row, or the one that is noted if they
        were `erased`.
        """
        in_row = bytes(getattr(row, column))
        if not in_row:
            return 0
        plain = sealed_rows.decrypted(row, column, in_row)
        data = sealed_columns.read_bytes(row, column, plain)
        expected_hash = erased or getattr(row, f"{column}_hash")
        if self._protection.digest(data) != expected_hash:
            raise TamperedRow(f"the {column} of {row} has another hash")
        # The payloads of an encrypted run can be read only now, with its key.
        if self._protection.encrypted and not erased:
            contents = {column: canonical.loads(data)}
            require_shapes(row, contents, shapes_of(type(row)))
        encrypted = sealed_rows.encrypted(row, column, plain, self._protection)
        name = payloads.name_of(row.run_id, row.id, column)
        setattr(row, column, payloads.put_payload(row.backend, name, encrypted))
        return len(encrypted)


def _require_own_writes(run: Run, model: type[Model], rows: list[Any]) -> None:
    """Raise `KeyConflict` if a write of these rows is one of another run. The id of a
    write is no key of a table, but a query by it must not meet rows of two runs.
    """
    if not hasattr(rows[0], "write"):
        return
    writes = {row.write for row in rows}
    for writes_model in (PendingWrite, model):
        with_writes = writes_model._base_manager.filter(write__in=writes)
        if with_writes.exclude(run=run.id).exists():
            raise KeyConflict(
                "a write of this bundle is here already, in another run",
                run=str(run.id),
            )


def _require_departure(run: Run, row: RunLine) -> None:
    """Raise `KeyConflict` if a line departs from a run that is here, but not from a
    checkpoint of it with that hash.
    """
    if row.departure_run == run.id:
        return
    # Locked, so that what it departs from is not removed before this transaction ends.
    origins = Run.objects.select_for_update().filter(id=row.departure_run)
    if origins.only("id").first() is None:
        return
    departures = Checkpoint.objects.filter(
        id=row.departure, run=row.departure_run, content_hash=row.departure_hash
    )
    if not departures.exists():
        message = (
            f"it says that it comes from run {row.departure_run}, "
            "which knows nothing of that"
        )
        raise KeyConflict(message, run=str(row.departure_run))
