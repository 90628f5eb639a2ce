"""A run written to a bundle: it is verified, streamed page by page into a file of its own, signed, then handed over.

Memory holds a page of rows, never a run. Whoever exports leaves a line in the audit log before the bytes leave.
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

from checkpoints import audit_log
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
"""Faults that a manifest names at most."""
UNFINISHED = ".countersign-bundle-"
"""How the name begins under which a file is first written."""
A_DAY = 24 * 60 * 60
File = str | PathLike[str] | BinaryIO

LATER = ("metadata", "figure")
"""Kinds of rows that earlier versions did not know."""


@frozen
class Exported:
    """A bundle that was written: its run, number of lines, hash of the last line before the signature, size in bytes,
    and the faults that its manifest names.
    """

    run: UUID
    lines: int
    last: str
    size: int
    faults: tuple[str, ...] = ()


def export(run_id: UUID | str, file: File, *, by: Any = None, as_is: bool = False) -> Exported:
    """Write the bundle of a run to a path, or to a binary file. `by` None means the system.

    A path is replaced as a whole when all is written. Raises `UnknownThing`; `TamperedRow` where the run does not
    verify, unless `as_is` is said; `WrongStatus` where it goes on all the while, or is being erased; `InvalidValue`,
    `PayloadTooLarge`, `WrongKey`, `OSError`; `Forbidden`, where verbs ask for rights.
    """
    require_right_of_verb(by, "export_run")
    checked_yes_or_no(as_is, "as_is")
    if not (_is_path(file) if isinstance(file, str | PathLike) else hasattr(file, "write")):
        raise InvalidValue("file is a path, or a binary file", path="file")
    with written_whole(file) as out:
        for _ in range(TRIES):
            out.seek(0)
            out.truncate()
            run = _read(run_id)
            faults = _faults(run, as_is=as_is)
            exported = _written(run, faults, out)
            if not _moved(run):
                break
        else:
            raise WrongStatus(f"run {run.key} goes on while it is exported; wait until it rests", status=run.status)
        audit_log.record(
            "run_exported", actor=by, run=run.id, lines=exported.lines, last=exported.last, as_is=bool(faults)
        )
    return exported


def _is_path(file: str | PathLike[str]) -> bool:
    """Whether a system can have a file of that name."""
    try:
        return b"\x00" not in os.fsencode(file)
    except ValueError:
        return False


@contextmanager
def written_whole(file: File) -> Iterator[BinaryIO]:
    """A file to write to that comes into the place of `file` when all went well, for nobody but its owner to read."""
    if isinstance(file, str | PathLike):
        path = Path(file)
        _sweep(path.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=UNFINISHED, delete=False) as temporary:
            try:
                yield temporary  # type: ignore[misc]
                temporary.flush()
                os.fsync(temporary.fileno())
                Path(temporary.name).replace(path)
                local_files.sync_folder(path.parent)
            except BaseException:
                Path(temporary.name).unlink(missing_ok=True)
                raise
        return
    with tempfile.TemporaryFile() as temporary:
        yield temporary
        temporary.seek(0)
        shutil.copyfileobj(temporary, file)


def _sweep(folder: Path) -> None:
    """Remove what exports to this folder left there that broke off more than a day ago."""
    before = time.time() - A_DAY
    for left in folder.glob(f"{UNFINISHED}*"):
        with suppress(OSError):
            if left.stat().st_mtime < before:
                left.unlink()


def _read(run_id: UUID | str) -> Run:
    run = Run.objects.filter(id=uuid_of(run_id, "run")).first()
    if run is None:
        raise unknown_thing("run", run_id)
    return run


def _moved(run: Run) -> bool:
    """Whether somebody has written to the run since it was read, or erases values of it, so that what was written is of
    two moments.
    """
    now = Run.objects.filter(id=run.id).values_list("event_seq", "head", "epoch", "erasure").first()
    return now != (run.event_seq, run.head, run.epoch, run.erasure)


def _faults(run: Run, *, as_is: bool) -> list[str]:
    found = [fault.reason for fault in verify_run(run.id, most=FAULTS)]
    if found and not (as_is or _moved(run)):
        message = f"run {run.key} does not verify: {found[0]}; it can be exported as it is, and the bundle says so"
        raise TamperedRow(message, run=str(run.id), reasons=found)
    return found if as_is else []


def _written(run: Run, faults: Sequence[str], out: BinaryIO) -> Exported:
    writer, reader = LineWriter(out), RowReader(run)
    writer.write("manifest", **_manifest(run, faults, reader))
    erased = ErasedRows.of_run(run.id)
    writer.write("run", row=reader.json_of(run), **_beside(run, erased))
    counts = {**dict.fromkeys(ROWS, 0), "run": 1}
    for kind in ROWS[1:]:
        for row, more in _rows(run, TABLES[kind]):
            writer.write(kind, row=reader.json_of(row), **more, **_beside(row, erased))
            counts[kind] += 1
    for kind in ROWS[1:]:
        for seals in _seals(run, TABLES[kind]):
            writer.write("seals", of=kind, seals=seals)
    # A verifier of an earlier version knows nothing of these, and takes in a bundle that has none.
    writer.write("counts", counts={kind: n for kind, n in counts.items() if n or kind not in LATER})
    last = writer.last
    writer.sign(private_key(), public_key())
    return Exported(run.id, writer.lines, last, out.tell(), tuple(faults))


def _beside(row: Model, erased: ErasedRows) -> dict[str, Any]:
    """What the line of a row of which something was erased says of that: the record, and hashes of what stands now."""
    said = erased.said_of(row)
    return {"erased": {"record": str(said.record_id), "columns": said.contents}} if said and said.contents else {}


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
        "data_key": base64.b64encode(data_keys.wrapped_key_of(run.id)).decode(),
    }


def _stretches(part: RemovedStretches) -> list[list[Any]]:
    return [[one.first, one.last, one.before, one.after] for one in part.all]


def _origins(run: Run) -> list[dict[str, Any]]:
    """Which other runs this one comes from: the origin of a fork, and the parent."""
    rows = RunLine.objects.filter(run=run.id).exclude(departure_run=run.id)
    found = [
        {"how": row.travel, "run": str(row.departure_run), "checkpoint": str(row.departure), "hash": row.departure_hash}
        for row in rows
    ]
    return found + ([{"how": "parent", "run": str(run.parent_run), "task": run.parent_task}] if run.parent_run else [])


def _rows(run: Run, table: BundledTable) -> Iterator[tuple[Model, Mapping[str, Any]]]:
    """Each row with what its line says beside the row."""
    chain = _Parents(run)
    for page in pages(_of(run, table), table.by, size=table.size):
        for row in page:
            yield row, chain.beside(row)


def _of(run: Run, table: BundledTable) -> "QuerySet[Any]":
    return table.model._base_manager.filter(run=run.id)


class _Parents:
    """What lines say beside rows: of a checkpoint the hash of its parent, of a write what its base binds."""

    def __init__(self, run: Run) -> None:
        self._run, self._known = run, dict[UUID | None, str]({None: ""})

    def beside(self, row: Model) -> dict[str, Any]:
        if isinstance(row, PendingWrite) and not self._run.encrypted:
            return {"binding": pending_writes.base_of(row).binding().decode()}
        return {"parent_hash": self._parent_hash(row)} if isinstance(row, Checkpoint) else {}

    def _parent_hash(self, row: Checkpoint) -> str:
        hash_ = self._known.get(row.parent)
        if hash_ is None and row.parent is not None:
            found = Checkpoint.objects.filter(id=row.parent).values_list("content_hash", flat=True).first()
            departures = RunLine.objects.filter(run=self._run.id, departure=row.parent)
            hash_ = found or departures.values_list("departure_hash", flat=True).first() or self._removed(row)
        self._known = {None: "", row.id: row.content_hash}
        return hash_ or ""

    def _removed(self, row: Checkpoint) -> str:
        """The hash of a parent that was removed."""
        gone = removed_history(self._run.id, protection_of(self._run)).checkpoints
        return next((one.after for one in gone.all if one.last == row.seq - 1), "")


def _seals(run: Run, table: BundledTable) -> Iterator[list[list[str]]]:
    """[identity, key id, seal in hex] of each row, a page a line. Only the installation that sealed can verify them."""
    identity = getattr(table.model, "IDENTITY", None)
    if identity is None or not hasattr(table.model, "seal"):
        return
    columns = tuple(dict.fromkeys((table.by, *identity, "seal", "seal_key")))
    for page in pages(_of(run, table).only(*columns), table.by):
        names = [" ".join(str(getattr(row, name)) for name in identity) for row in page]
        yield [[name, row.seal_key, bytes(row.seal or b"").hex()] for name, row in zip(names, page, strict=True)]
