"""A bundle of a trusted house taken in: read twice, first to validate all of it, then to write it in one transaction.

Its rows are sealed anew with the keys of this installation, and the run is verified like any other before the
transaction ends. The run is read-only from then on; `docs/bundles.md` says what can be done with it.
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

from checkpoints import audit_log, payloads, uploads
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
from checkpoints.models import AuditLine, BundleImport, Checkpoint, ErasureRecord, PendingWrite, Run, RunLine
from checkpoints.models.fields import Sealed
from checkpoints.rights import require_right_of_verb
from checkpoints.sealing import data_keys, run_row, sealed_columns, sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, Protection, protection_of
from checkpoints.verification import verify_run
from checkpoints.verification.audit import REMOVED
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError, InvalidBundle, InvalidValue, KeyConflict, TamperedRow
from orchestrator.engine.frozen import frozen

BATCH_ROWS, BATCH_BYTES = 50, 4_000_000
_TAIL = 2 * verifier.LONGEST_SIGNATURE
_KEY = re.compile(rb'"key":"([0-9a-f]{64})"')
_NONSENSE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, DataError)
"""What reading rows raises whose house signed something that no row says."""


@frozen
class Signed:
    """A bundle whose signature is that of a trusted key: the key and its name, hash of the last line, lines."""

    signer: bytes
    signer_name: str
    last: str
    lines: int


def load(file: "str | PathLike[str] | BinaryIO", *, by: Any = None) -> Run:
    """The run of a bundle, read-only. The same bundle again gives the same run. `by` None means the system.

    Nothing is changed, but for a line in the audit log, where it raises `InvalidBundle` (with `line` and `reason`),
    `KeyConflict` (a run or a row of that id is here already), `WrongKey` (it is encrypted under a key that is not
    here), `OSError`; `Forbidden`, where verbs ask for rights.
    """
    return load_or_find(file, by=by)[0]


def load_or_find(file: "str | PathLike[str] | BinaryIO", *, by: Any = None) -> tuple[Run, bool]:
    """As `load`, and whether this call made the run."""
    require_right_of_verb(by, "import_run")
    if not isinstance(file, str | PathLike) and not hasattr(file, "readline"):
        raise InvalidValue("file is a path, or a binary file", path="file")
    try:
        with _opened(file) as source:
            run, new = _loaded(source, by)
    except CountersignError as refused:
        facts = {name: refused.facts[name] for name in ("line", "run") if name in refused.facts}
        audit_log.record("refused_import", actor=by, code=refused.code, **facts)
        raise
    if new:
        audit_log.record("run_imported", actor=by, run=run.id, last=run.bundle_import.last)
    return run, new


def _opened(file: Any) -> AbstractContextManager[BinaryIO]:
    try:
        return Path(file).open("rb") if isinstance(file, str | PathLike) else nullcontext(file)
    except ValueError:
        raise InvalidValue("file is no path that can be opened", path="file") from None


def _loaded(source: BinaryIO, by: Any) -> tuple[Run, bool]:
    begin = source.tell()
    try:
        signed = _require_trusted(source, begin)
        source.seek(begin)
        own = signed.signer == public_key()
        taken = _Reading(source, signed, {})
        for _ in taken.rows():
            pass
        row = taken.contents.row
        if (there := _there(row, signed)) is not None:
            return there, False
        _require_end_of_removed(row)
        source.seek(begin)
        people = _people(taken.names) if own else {}
        try:
            with transaction.atomic():
                return _written(_Reading(source, signed, people), signed, by), True
        except IntegrityError as error:
            # Another import of this very bundle may have been first.
            if (there := _there(row, signed)) is not None:
                return there, False
            raise KeyConflict("a row of this bundle is here already, in another run") from error
        except _NONSENSE as error:
            raise _invalid(0, _sentence(error)) from error
    except Bad as bad:
        raise _invalid(*bad.args) from None
    except TamperedRow as error:
        raise _invalid(0, error.message) from error


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"it does not say what it must: {error!r}"[:200]


def _invalid(line: int, reason: str) -> InvalidBundle:
    """The refusal. What a bundle says of itself may hold anything, also what no answer can carry."""
    seen = visible_text(reason)
    return InvalidBundle(f"line {line} of the bundle: {seen}" if line else seen, line=line, reason=seen)


def _require_trusted(source: BinaryIO, begin: int) -> Signed:
    """Raises `Bad` where the bundle is not signed as a whole with a trusted key."""
    source.seek(max(begin, source.seek(0, os.SEEK_END) - _TAIL))
    named = _KEY.findall(source.read(_TAIL))
    signer = bytes.fromhex(named[-1].decode()) if named else public_key()
    source.seek(begin)
    name = name_of_key(signer)
    if name is None:
        raise Bad(0, f"it is signed with a key that is not trusted here: {signer.hex()}")
    last, lines = verifier.require_signed(source, signer)
    return Signed(signer, name, last, lines)


def _people(names: Collection[str]) -> People:
    """Those of these people that are people here. One query."""
    users = get_user_model()
    found = users._default_manager.filter(**{f"{users.USERNAME_FIELD}__in": names})
    return dict(found.values_list(users.USERNAME_FIELD, "pk"))


def _there(row: Mapping[str, Any], signed: Signed) -> Run | None:
    """The run that this very bundle gave before. Raises `KeyConflict` where the id is that of something else."""
    run_id = UUID(row["id"])
    found = Run.objects.filter(id=run_id).select_related("bundle_import").first()
    if found is not None and found.imported and found.bundle_import.last == signed.last:
        return found
    if found is not None or Checkpoint.objects.filter(run=run_id).exists():
        message = f"run {run_id} is here already, and did not come from this bundle"
        raise KeyConflict(message, run=str(run_id))
    return None


def _require_end_of_removed(row: Mapping[str, Any]) -> None:
    """Raises `KeyConflict` where this run was removed here and its log stood elsewhere: only what was removed comes
    back, else the log would end before a line that is anchored, or tell another story.
    """
    lines = AuditLine.objects.filter(run=row["id"], kind=REMOVED)
    told = [line.facts for line in lines if fault_of(line, PLAIN) is None]
    last = max(told, key=lambda facts: int(facts["event_seq"]), default=None)
    if last is not None and (last["event_seq"], last["event_hash"]) != (row["event_seq"], row["event_hash"]):
        named = f"; {last['bundle']} is the bundle that restores it" if "bundle" in last else ""
        message = (
            f"run {row['id']} was removed here at line {last['event_seq']} of its log, where this bundle does not end"
        )
        raise KeyConflict(message + named, run=row["id"])


class _Reading:
    """One pass over a bundle: its rows in order, each checked. `contents` is what the verifier knows of it, `names` are
    the people that rows name. Only at its end it is certain that the rows are what was signed.
    """

    def __init__(self, source: BinaryIO, signed: Signed, people: People) -> None:
        self._source, self._end, self._people = source, (signed.last, signed.lines), people
        self.names: set[str] = set()
        self.contents = Contents()
        self.manifest: dict[str, Any] = {}
        self.erasures: list[ErasureRecord] = []
        self._ids: dict[str, set[Any]] = {"request": set(), "receipt": set()}

    def rows(self) -> Iterator[tuple[Model, Note | None]]:
        """Each with what its line says of what was erased of it. Raises `Bad` for the first line that cannot be taken
        in.
        """
        for number, body, _ in verifier.chained(self._source, self._end):
            said = verifier.parsed(body, number)
            try:
                self.contents.take(said, number)
                row = self._row(said)
            except _NONSENSE as error:
                raise Bad(number, _sentence(error)) from None
            if row is not None:
                yield row, said.get("erased")
        if self.contents.as_is:
            raise Bad(1, "it was exported as it is, for the run did not verify")

    def _row(self, said: dict[str, Any]) -> Any:
        kind = said["kind"]
        if kind == "manifest":
            self.manifest = said
            exported_at = datetime.fromisoformat(said["exported_at"])
            if exported_at.tzinfo is None or str(UUID(said["run"])) != said["run"]:
                raise ValueError("the manifest does not say when it was exported, or of which run")
            _require_key("the manifest", said["key"], run=said["run"])
            base64.b64decode(said["data_key"], validate=True)
            self.erasures = told_erasures.records_in(said, self._people)
            self.names |= {one["by"] for one in said["erasures"]} - {None, ""}
        if kind not in verifier.ROWS:
            return None
        if kind == "run":
            _require_key("the run", said["row"]["key"], run=said["row"]["id"])
        model = Run if kind == "run" else TABLES[kind].model
        row: Any = row_of(
            model,
            said["row"],
            encrypted=self.contents.encrypted,
            people=self._people,
            shapes=shapes_of(model),
            erased=self.contents.erased,
        )
        named = {said["row"][field.name] for field in columns_of(model) if is_person(field)}
        self.names |= named - {None, ""}
        for name, ids in self._ids.items():
            if kind == name:
                ids.add(row.id)
            elif kind == "decision" and getattr(row, f"{name}_id") not in {None, *ids}:
                raise ValueError(f"the {name} of this decision is not in the bundle")
        return row


def _require_key(what: str, key: Any, *, run: str) -> None:
    """Raises `ValueError` where no start takes this key: it would stand in addresses and aliases of ours.

    A run that was started without a key has its own id for one.
    """
    if not isinstance(key, str) or not (is_run_key(key) or key == run):
        raise ValueError(f"{what} has a key that no run can have, which is {RULE}")


def _written(reading: _Reading, signed: Signed, by: Any) -> Run:
    batch = _Batch()
    for row, note in reading.rows():
        if isinstance(row, Run):
            data_keys.keep_wrapped_key(row.id, base64.b64decode(reading.manifest["data_key"]))
            told_erasures.keep_records(row, reading.erasures)
            batch.begin(_placed(row, note["columns"] if note else {}), note)
        else:
            batch.add(row, note)
    batch.flush()
    run = batch.run
    told_erasures.seal_records(run, reading.erasures)
    made = BundleImport(
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
    sealed_rows.seal(made, protection_of(run))
    made.save(force_insert=True)
    faults = verify_run(run.id, most=1)
    if faults:
        raise _invalid(0, f"the run does not verify: {faults[0].reason}")
    return Run.objects.select_related("bundle_import").get(id=run.id)


def _placed(run: Run, erased: Collection[str]) -> Run:
    """The run's row as it is kept here: under a key that no start has, its payloads where new ones go, at rest."""
    run.key = f"{run.key[: LONGEST_KEY - 9]}~{str(run.id)[-8:]}"
    run.payloads, run.imported = payloads.chosen(None), True
    if run.status not in {*ENDS, *STOPPED} or run.status == Status.TAMPERED:
        run.status = Status.PAUSED
    _decrypt(run)
    _require_opened_shapes(run, erased, protection_of(run))
    stands = {name: getattr(run, name) for name in ("head", "head_hash", "event_seq", "event_hash", "decisions")}
    sealed = run_row.seal_columns(run, **stands)
    run.seal, run.seal_key = sealed["seal"], sealed["seal_key"]
    sealed_rows.encrypt(run, protection_of(run))
    run.save(force_insert=True)
    # Files are in no bundle; those of its runs may still be here where it came from.
    uploads.note_references(run.id, sealed_columns.read_value(run, "input"))
    return run


def _decrypt(row: Any) -> None:
    """Put the plain bytes into the payload columns of a row, so that it can be sealed."""
    for name in getattr(row, "PAYLOADS", ()):
        if bytes(getattr(row, name)):
            setattr(row, name, sealed_rows.decrypted(row, name))


def _require_opened_shapes(row: Any, erased: Collection[str], protection: Protection) -> None:
    """What the payload columns of an encrypted run say is seen only now, when they are plain."""
    if protection.encrypted:
        named = [name for name in getattr(row, "PAYLOADS", ()) if name not in erased]
        told = {name: said for name in named if (said := sealed_columns.read_bytes(row, name))}
        require_shapes(row, {name: canonical.loads(said) for name, said in told.items()}, shapes_of(type(row)))


class _Batch:
    """Rows of one table that are written together."""

    run: Run

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._notes: list[Note | None] = []
        self._size = 0

    def begin(self, run: Run, note: Note | None) -> None:
        self.run, self._protection = run, protection_of(run)
        told_erasures.note_rows(run, [(run, note)])

    def add(self, row: Any, note: Note | None) -> None:
        if self._rows and type(row) is not type(self._rows[0]):
            self.flush()
        self._prepare(row, note["columns"] if note else {})
        self._rows.append(row)
        self._notes.append(note)
        self._size += sum(len(value) for value in vars(row).values() if isinstance(value, bytes))
        if len(self._rows) >= BATCH_ROWS or self._size > BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """One statement. Raises `KeyConflict` where a write of these rows is one of another run."""
        if not self._rows:
            return
        model = type(self._rows[0])
        _require_own_writes(self.run, model, self._rows)
        model._base_manager.bulk_create(self._rows)
        told_erasures.note_rows(self.run, list(zip(self._rows, self._notes, strict=True)))
        self._rows, self._notes, self._size = [], [], 0

    def _prepare(self, row: Any, erased: Mapping[str, str]) -> None:
        if isinstance(row, RunLine):
            _require_departure(self.run, row)
        if isinstance(row, Checkpoint):
            row.backend = self.run.payloads
        if isinstance(row, Sealed):
            _decrypt(row)
            _require_opened_shapes(row, erased, self._protection)
            sealed_rows.seal_and_encrypt([row], self._protection)
        sizes = [self._put(row, column, erased.get(column)) for column in BYTES.get(type(row), ())]
        if isinstance(row, Checkpoint):
            row.stored_size = sum(sizes)

    def _put(self, row: Any, column: str, erased: str | None) -> int:
        """Keep the bytes of a checkpoint, which have its hash or that of what was `erased`, where such are kept. Gives
        how many there are.
        """
        kept = bytes(getattr(row, column))
        if not kept:
            return 0
        plain = sealed_rows.decrypted(row, column, kept)
        said = sealed_columns.read_bytes(row, column, plain)
        if self._protection.digest(said) != (erased or getattr(row, f"{column}_hash")):
            raise TamperedRow(f"the {column} of {row} has another hash")
        if self._protection.encrypted and not erased:
            require_shapes(row, {column: canonical.loads(said)}, shapes_of(type(row)))
        locked = sealed_rows.encrypted(row, column, plain, self._protection)
        name = payloads.name_of(row.run_id, row.id, column)
        setattr(row, column, payloads.put_payload(row.backend, name, locked))
        return len(locked)


def _require_own_writes(run: Run, model: type[Model], rows: list[Any]) -> None:
    """The id of a write is no key of a table; who asks by it alone must not meet rows of another run."""
    if not hasattr(rows[0], "write"):
        return
    writes = {row.write for row in rows}
    theirs = PendingWrite.objects.filter(write__in=writes).exclude(run=run.id).exists()
    if theirs or model._base_manager.filter(write__in=writes).exclude(run=run.id).exists():
        raise KeyConflict("a write of this bundle is here already, in another run", run=str(run.id))


def _require_departure(run: Run, row: RunLine) -> None:
    """A run that says that it comes from one that is here must name a checkpoint of it, with its hash."""
    if row.departure_run == run.id:
        return
    # Locked, so that what it departs from is not removed before this transaction ends.
    if Run.objects.select_for_update().filter(id=row.departure_run).only("id").first() is None:
        return
    there = Checkpoint.objects.filter(id=row.departure, run=row.departure_run, content_hash=row.departure_hash)
    if not there.exists():
        message = f"it says that it comes from run {row.departure_run}, which knows nothing of that"
        raise KeyConflict(message, run=str(row.departure_run))
