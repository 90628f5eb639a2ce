"""Exporting a run to a bundle: it is verified, streamed page by page into a file,
signed, then handed over.

Memory holds a page of rows, never a run. An export leaves a line in the audit log
before the bytes leave.
"""

import base64
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from django.db.models import Model, QuerySet
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.bundle.line_writer import LineWriter
from checkpoints.bundle.row_json import RowReader
from checkpoints.bundle.signing_keys import private_key, public_key
from checkpoints.bundle.tables import TABLES, BundledTable
from checkpoints.bundle.told_erasures import erasures_of
from checkpoints.bundle.verifier import ROWS
from checkpoints.core.arguments import checked_yes_or_no
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.db.pages import pages
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run, RunLine
from checkpoints.payloads import local_files
from checkpoints.rights import require_right_of_verb
from checkpoints.sealing import data_keys
from checkpoints.sealing.erased_rows import ErasedRows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification import verify_run
from checkpoints.verification.removed_history import RemovedStretches, removed_history
from orchestrator.engine.errors import InvalidValue, TamperedRow, WrongStatus
from orchestrator.engine.frozen import frozen

TRIES = 3
FAULTS = 20
"""The most faults that a manifest names."""
UNFINISHED = ".countersign-bundle-"
"""The prefix of the name under which a file is first written."""
A_DAY = 24 * 60 * 60
File = str | PathLike[str] | BinaryIO

LATER = ("metadata", "figure", "comment")
"""The kinds of rows that earlier versions did not have."""


@frozen
class Exported:
    """A bundle that was written: its run, number of lines, hash of the last line before
    the signature, size in bytes, and the faults that its manifest names.
    """

    run: UUID
    lines: int
    last: str
    size: int
    faults: tuple[str, ...] = ()


def export(
    run_id: UUID | str, file: File, *, by: Any = None, as_is: bool = False
) -> Exported:
    """Write the bundle of a run to a path, or to a binary file. `by` None means the
    system.

    A path is replaced as a whole when all is written. Raises `UnknownThing`;
    `TamperedRow` if the run does not verify, unless `as_is` is set; `WrongStatus` if it
    keeps moving, or is being erased; `InvalidValue`, `PayloadTooLarge`, `WrongKey`,
    `OSError`; `Forbidden`, where verbs ask for rights.
    """
    require_right_of_verb(by, "export_run")
    checked_yes_or_no(as_is, "as_is")
    is_writable = hasattr(file, "write")
    if isinstance(file, str | PathLike):
        is_writable = _is_path(file)
    if not is_writable:
        raise InvalidValue("file is a path, or a binary file", path="file")
    with written_whole(file) as out:
        for _ in range(TRIES):
            # An earlier try may have written more than this one will.
            out.seek(0)
            out.truncate()
            run = _read(run_id)
            faults = _faults(run, as_is=as_is)
            exported = _written(run, faults, out)
            # Else the bundle would be of two moments.
            if not _has_moved(run):
                break
        else:
            raise WrongStatus(
                f"run {run.key} goes on while it is exported; wait until it rests",
                status=run.status,
            )
        # Within the block, at whose end the bytes leave: never without this line.
        audit_log.record(
            "run_exported",
            actor=by,
            run=run.id,
            lines=exported.lines,
            last=exported.last,
            as_is=bool(faults),
        )
    return exported


def _is_path(file: str | PathLike[str]) -> bool:
    """Return whether a system can have a file of that name."""
    try:
        return b"\x00" not in os.fsencode(file)
    except ValueError:
        return False


@contextmanager
def written_whole(file: File) -> Iterator[BinaryIO]:
    """Open a file to write to that replaces `file` when all went well, and that only
    its owner can read.
    """
    if isinstance(file, str | PathLike):
        path = Path(file)
        _sweep(path.parent)
        # In the same folder: within one file system a file replaces another at once.
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=UNFINISHED, delete=False
        ) as temporary:
            try:
                yield temporary  # type: ignore[misc]
                # On the disk before it has its name, or a power cut could leave a part
                # of it.
                temporary.flush()
                os.fsync(temporary.fileno())
                Path(temporary.name).replace(path)
                local_files.sync_folder(path.parent)
            except BaseException:
                Path(temporary.name).unlink(missing_ok=True)
                raise
        return
    # The caller's file is not touched before all is written.
    with tempfile.TemporaryFile() as temporary:
        yield temporary
        temporary.seek(0)
        shutil.copyfileobj(temporary, file)


def _sweep(folder: Path) -> None:
    """Remove the unfinished files of exports that broke off more than a day ago."""
    before = time.time() - A_DAY
    for path in folder.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            if path.stat().st_mtime < before:
                path.unlink()


def _read(run_id: UUID | str) -> Run:
    run = Run.objects.filter(id=uuid_of(run_id, "run")).first()
    if run is None:
        raise unknown_thing("run", run_id)
    return run


def _has_moved(run: Run) -> bool:
    """Return whether the run was written to since it was read, or values of it are
    being erased, so that the bundle is of two moments.
    """
    rows = Run.objects.filter(id=run.id)
    now = rows.values_list("event_seq", "head", "epoch", "erasure").first()
    return now != (run.event_seq, run.head, run.epoch, run.erasure)


def _faults(run: Run, *, as_is: bool) -> list[str]:
    """Return the faults of a run that is exported as it is. Raises `TamperedRow` if it
    has some and must verify.
    """
    reasons = [fault.reason for fault in verify_run(run.id, most=FAULTS)]
    if as_is:
        return reasons
    # A run that was written to meanwhile is read again.
    if reasons and not _has_moved(run):
        message = (
            f"run {run.key} does not verify: {reasons[0]}; "
            "it can be exported as it is, and the bundle says so"
        )
        raise TamperedRow(message, run=str(run.id), reasons=reasons)
    return []


def _written(run: Run, faults: Sequence[str], out: BinaryIO) -> Exported:
    """Write the lines of a bundle in the order of the format, and sign them."""
    writer = LineWriter(out)
    reader = RowReader(run)
    writer.write("manifest", **_manifest(run, faults, reader))
    erased = ErasedRows.of_run(run.id)
    writer.write("run", row=reader.json_of(run), **_erasure_note(run, erased))
    counts = {**dict.fromkeys(ROWS, 0), "run": 1}
    for kind in ROWS[1:]:
        for row, beside in _rows(run, TABLES[kind]):
            columns = reader.json_of(row)
            note = _erasure_note(row, erased)
            writer.write(kind, row=columns, **beside, **note)
            counts[kind] += 1
    for kind in ROWS[1:]:
        for seals in _seals(run, TABLES[kind]):
            writer.write("seals", of=kind, seals=seals)

    # A verifier of an earlier version does not know these kinds, and accepts a bundle
    # without them.
    for kind in LATER:
        if not counts[kind]:
            del counts[kind]
    writer.write("counts", counts=counts)
    last = writer.last
    writer.sign(private_key(), public_key())
    return Exported(run.id, writer.lines, last, out.tell(), tuple(faults))


def _erasure_note(row: Model, erased: ErasedRows) -> dict[str, Any]:
    """Return the note beside a row from which something was erased: the record, and the
    hashes of its columns now.
    """
    erased_row = erased.said_of(row)
    if not erased_row or not erased_row.contents:
        return {}
    note = {"record": str(erased_row.record_id), "columns": erased_row.contents}
    return {"erased": note}


def _manifest(run: Run, faults: Sequence[str], reader: RowReader) -> dict[str, Any]:
    removed = removed_history(run.id, protection_of(run))
    parts = {"events": removed.events, "checkpoints": removed.checkpoints}
    return {
        "format": "countersign-bundle-1",
        "run": str(run.id),
        "key": run.key,
        "graph": run.graph,
        "version": run.version,
        "encrypted": run.encrypted,
        "as_is": bool(faults),
        "faults": list(faults),
        "exported_at": timezone.now().isoformat(),
        "removed": {name: _stretches(part) for name, part in parts.items()},
        "origins": _origins(run),
        "erasures": erasures_of(run, reader),
        # Wrapped by the keyring: it opens the rows only where that key is.
        "data_key": base64.b64encode(data_keys.wrapped_key_of(run.id)).decode(),
    }


def _stretches(part: RemovedStretches) -> list[list[Any]]:
    stretches = []
    for stretch in part.all:
        stretches.append([stretch.first, stretch.last, stretch.before, stretch.after])
    return stretches


def _origins(run: Run) -> list[dict[str, Any]]:
    """Return the other runs that this one comes from: the origin of a fork, and the
    parent.
    """
    origins: list[dict[str, Any]] = []
    rows = RunLine.objects.filter(run=run.id).exclude(departure_run=run.id)
    for row in rows:
        origin = {
            "how": row.travel,
            "run": str(row.departure_run),
            "checkpoint": str(row.departure),
            "hash": row.departure_hash,
        }
        origins.append(origin)
    if run.parent_run:
        parent = str(run.parent_run)
        origins.append({"how": "parent", "run": parent, "task": run.parent_task})
    return origins


def _rows(run: Run, table: BundledTable) -> Iterator[tuple[Model, Mapping[str, Any]]]:
    """Yield each row with the keys that its line has beside the row."""
    parents = _Parents(run)
    for page in pages(_rows_of_run(run, table), table.by, size=table.size):
        for row in page:
            yield row, parents.beside(row)


def _rows_of_run(run: Run, table: BundledTable) -> "QuerySet[Any]":
    return table.model._base_manager.filter(run=run.id)


class _Parents:
    """The keys that lines have beside rows: with a checkpoint the hash of its parent,
    with a write the binding of its base.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last_hashes: dict[UUID | None, str] = {None: ""}

    def beside(self, row: Model) -> dict[str, Any]:
        # The base of an encrypted run is secret, and its keyed hash not recomputed.
        if isinstance(row, PendingWrite) and not self._run.encrypted:
            return {"binding": pending_writes.base_of(row).binding().decode()}
        if isinstance(row, Checkpoint):
            return {"parent_hash": self._parent_hash(row)}
        return {}

    def _parent_hash(self, row: Checkpoint) -> str:
        hash_ = self._last_hashes.get(row.parent)
        if hash_ is None and row.parent is not None:
            hash_ = self._hash_elsewhere(row, row.parent)
        # The parent is nearly always the row before, so only that one is remembered.
        self._last_hashes = {None: "", row.id: row.content_hash}
        return hash_ or ""

    def _hash_elsewhere(self, row: Checkpoint, parent: UUID) -> str:
        """Return the hash of a parent that is not the row before: it is another row, or
        only the line that departed from it has its hash, or it was removed.
        """
        rows = Checkpoint.objects.filter(id=parent)
        hash_ = rows.values_list("content_hash", flat=True).first()
        if hash_:
            return hash_
        departures = RunLine.objects.filter(run=self._run.id, departure=parent)
        hash_ = departures.values_list("departure_hash", flat=True).first()
        return hash_ or self._removed_hash(row)

    def _removed_hash(self, row: Checkpoint) -> str:
        """Return the hash of a parent that was removed."""
        history = removed_history(self._run.id, protection_of(self._run))
        for stretch in history.checkpoints.all:
            if stretch.last == row.seq - 1:
                return stretch.after
        return ""


def _seals(run: Run, table: BundledTable) -> Iterator[list[list[str]]]:
    """Yield [identity, key id, seal in hex] of each row, a page at a time. Only the
    installation that sealed can verify them.
    """
    identity = getattr(table.model, "IDENTITY", None)
    if identity is None or not hasattr(table.model, "seal"):
        return
    columns = tuple(dict.fromkeys((table.by, *identity, "seal", "seal_key")))
    for page in pages(_rows_of_run(run, table).only(*columns), table.by):
        seals = []
        for row in page:
            row_identity = " ".join(str(getattr(row, name)) for name in identity)
            seals.append([row_identity, row.seal_key, bytes(row.seal or b"").hex()])
        yield seals
