"""Defines the vocabulary of an examination for the examiners of all floors: a fault,
and the run under examination.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import structlog
from django.db.models import Model, QuerySet

from checkpoints.db.outage import is_outage
from checkpoints.db.pages import pages
from checkpoints.models import Run
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.erased_rows import ErasedRows
from checkpoints.sealing.sealed_rows import Protection
from checkpoints.verification.removed_history import NOTHING_REMOVED, RemovedHistory
from orchestrator.engine.errors import (
    UNREADABLE,
    CountersignError,
    PayloadLost,
    TamperedRow,
    TamperedUpload,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

NOT_VERIFIED = "not_verified"
LIST_DIFFERS = "list_differs"
DEADLINE_UNMET = "deadline_unmet"
NO_TAMPERING = (NOT_VERIFIED, LIST_DIFFERS, DEADLINE_UNMET)
"""The codes of faults of what an examiner failed to examine, of a list that is no
record, and of a deadline whose job was stopped: they mark no run.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """A place where a run differs from what was written.

    `checkpoint` is the id of the checkpoint concerned, empty if there is none; `what`
    names the row; `code` is that of the refusal: `tampered_row`, `tampered_upload` or
    `payload_lost`; or, where the row cannot be examined now, `wrong_key`,
    `payloads_unavailable`, `unknown_backend`, `not_verified`; or, where the record is in
    order, `list_differs` if lists may show it otherwise, and `deadline_unmet` if the job
    of a deadline was stopped.
    """

    run: str
    checkpoint: str
    table: str
    what: str
    reason: str
    code: str = TamperedRow.code_of_class


@dataclass(frozen=True, slots=True)
class Subject:
    """A run as it was when its examination began, with what was removed of it, as its
    log records, and what was erased.
    """

    run: Run
    protection: Protection
    removed: RemovedHistory = NOTHING_REMOVED
    erased: ErasedRows = field(default_factory=ErasedRows.none)

    def is_hashed(self, row: Model, column: str, data: bytes, hash_: str) -> bool:
        """Return whether these bytes of a payload column have this hash.

        If the column was erased, return whether they are its recorded replacement, so
        that erased content does not come back unnoticed.
        """
        expected_hash = hash_
        erasure = self.erased.said_of(row)
        if erasure:
            expected_hash = erasure.contents.get(column, hash_)
        return self.protection.digest(data) == expected_hash

    def fault(self, row: Model, reason: str, *, checkpoint: Any = "") -> Fault:
        """Build a fault of this row."""
        what = sealed_rows.name_of(row)
        return Fault(
            str(self.run.id),
            str(checkpoint or ""),
            row._meta.db_table,
            what,
            f"{what} {reason}",
        )

    def missing_row(
        self, model: type[Model], what: str, *, checkpoint: Any = "", are: str = "is"
    ) -> Fault:
        """Build the fault of a missing row. `what` names it after its table."""
        table = model._meta.db_table
        row = f"{table} {what}"
        return Fault(
            str(self.run.id), str(checkpoint or ""), table, row, f"{row} {are} gone"
        )

    def refused(
        self, row: Model, error: CountersignError, *, checkpoint: Any = ""
    ) -> Fault:
        """Build the fault that a refusal reports."""
        what = sealed_rows.name_of(row)
        reason = error.message
        # Most refusals name the row already.
        if what not in reason:
            reason = f"{what}: {reason}"
        return Fault(
            str(self.run.id),
            str(checkpoint or ""),
            row._meta.db_table,
            what,
            reason,
            error.code,
        )

    def seal_of(self, row: Model) -> Fault | None:
        """Return the fault of a row that differs from what was sealed, or None."""
        try:
            sealed_rows.verify_row(row, self.protection)
        except CountersignError as error:
            return self.refused(row, error)
        return None

    def payload(self, row: Model, column: str) -> bytes:
        """Return the canonical bytes of a payload column; empty for an empty one.
        Raises `TamperedRow`, `WrongKey`: unreadable, or not encrypted like the rows of
        its run.
        """
        stored = bytes(getattr(row, column) or b"")
        # Otherwise plain bytes that were put into an encrypted run would pass for its
        # content.
        sealed_rows.require_protection(row, column, stored, self.protection)
        return sealed_columns.read_bytes(row, column, stored)

    def seals_of(self, rows: "QuerySet[Any]") -> Iterator[Fault]:
        """Yield the faults of the seals of these rows."""
        for page in pages(rows, "pk"):
            for row in page:
                fault = self.seal_of(row)
                if fault is not None:
                    yield fault


TAMPERED = frozenset(
    {TamperedRow.code_of_class, PayloadLost.code_of_class, TamperedUpload.code_of_class}
)
"""Codes of rows that differ from what was written; under the other codes, that cannot
be determined now.
"""

Examiner = Callable[[Subject], Iterator[Fault]]


def without_raising(
    faults: Iterable[T], what: str, *, run: str = ""
) -> Iterator[T | Fault]:
    """Yield these faults and, if their examiner raises, one more that says so: the
    findings of the other examiners must not be lost. Raises only what `not_verified`
    does.

    `what` names the row, or the table, that is examined.
    """
    try:
        yield from faults
    except Exception as error:
        yield not_verified(error, what, run=run)


def not_verified(error: Exception, what: str, *, run: str = "") -> Fault:
    """Return the fault of a row or table whose examination raised this error, and log
    the traceback. Raises the error itself if it is an outage: a later examination may
    succeed.
    """
    if is_outage(error):
        raise error
    log.error("not_verified", what=what, run=run, exc_info=error)
    code = NOT_VERIFIED
    # Their codes distinguish a missing key or backend from a row that was changed.
    if isinstance(error, UNREADABLE):
        code = error.code
    table, _, _ = what.partition(" ")
    kind = type(error).__name__
    return Fault(run, "", table, what, f"{what} could not be verified: {kind}", code)
