"""The words of an examination: a fault, the run that is examined, rows page by page. Examiners of all floors use it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Model, QuerySet

from checkpoints.db.pages import pages
from checkpoints.models import Run
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.erased_rows import ErasedRows
from checkpoints.sealing.sealed_rows import Protection
from checkpoints.verification.removed_history import NOTHING_REMOVED, RemovedHistory
from orchestrator.engine.errors import CountersignError, PayloadLost, TamperedRow, TamperedUpload


@dataclass(frozen=True, slots=True)
class Fault:
    """One place where a run is not as it was written.

    `checkpoint` is the id of the checkpoint concerned, empty where there is none; `what` names the row; `code` is
    that of the refusal: `tampered_row`, `tampered_upload` or `payload_lost`; or, where nothing can be said of the row
    now, `wrong_key`, `payloads_unavailable`, `unknown_backend`.
    """

    run: str
    checkpoint: str
    table: str
    what: str
    reason: str
    code: str = TamperedRow.code_of_class


@dataclass(frozen=True, slots=True)
class Subject:
    """A run as it was when its examination began, what its log then said was removed of it, and what was erased."""

    run: Run
    protection: Protection
    removed: RemovedHistory = NOTHING_REMOVED
    erased: ErasedRows = field(default_factory=ErasedRows.none)

    def is_hashed(self, row: Model, column: str, data: bytes, hash_: str) -> bool:
        """Whether these bytes of a payload column have this hash; where it was erased, whether they stand in its place:
        what was erased does not come back unnoticed.
        """
        said = self.erased.said_of(row)
        wanted = said.contents.get(column, hash_) if said else hash_
        return self.protection.digest(data) == wanted

    def fault(self, row: Model, reason: str, *, checkpoint: Any = "") -> Fault:
        """A fault of this row."""
        what = sealed_rows.name_of(row)
        return Fault(str(self.run.id), str(checkpoint or ""), row._meta.db_table, what, f"{what} {reason}")

    def gone(self, model: type[Model], what: str, *, checkpoint: Any = "", are: str = "is") -> Fault:
        """A row that must be there is not. `what` names it after its table."""
        table = model._meta.db_table
        row = f"{table} {what}"
        return Fault(str(self.run.id), str(checkpoint or ""), table, row, f"{row} {are} gone")

    def refused(self, row: Model, error: CountersignError, *, checkpoint: Any = "") -> Fault:
        """The fault that a refusal names."""
        what = sealed_rows.name_of(row)
        reason = error.message if what in error.message else f"{what}: {error.message}"
        return Fault(str(self.run.id), str(checkpoint or ""), row._meta.db_table, what, reason, error.code)

    def seal_of(self, row: Model, *, checkpoint: Any = "") -> Fault | None:
        """The fault of a row that is not as it was sealed; None where it is."""
        try:
            sealed_rows.verify_row(row, self.protection)
        except CountersignError as error:
            return self.refused(row, error, checkpoint=checkpoint)
        return None

    def payload(self, row: Model, column: str) -> bytes:
        """The canonical bytes of a payload column; empty for an empty one. Raises `TamperedRow`, `WrongKey`:
        unreadable, or not encrypted as the rows of its run are.
        """
        stored = bytes(getattr(row, column) or b"")
        sealed_rows.require_protection(row, column, stored, self.protection)
        return sealed_columns.read_bytes(row, column, stored)

    def seals_of(self, rows: "QuerySet[Any]", by: str = "pk") -> Iterator[Fault]:
        """The faults of the seals of these rows."""
        for page in pages(rows, by):
            yield from filter(None, map(self.seal_of, page))


TAMPERED = frozenset({TamperedRow.code_of_class, PayloadLost.code_of_class, TamperedUpload.code_of_class})
"""Codes that say that a row is not as it was written; the others say that this cannot be told now."""

Examiner = Callable[[Subject], Iterator[Fault]]
