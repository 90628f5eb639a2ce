"""Owns what erasure records say of rows whose payloads were erased. The hashes of such
a row are those of what it held, so the records say what it holds instead.

Code that compares bytes with a hash comes here only where they differ.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet

from checkpoints.models import ErasedRow
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import CountersignError


class ErasedRows:
    """The statements of valid records about some rows. Read at first use, in one query."""

    def __init__(self, rows: Callable[[], "QuerySet[ErasedRow]"]) -> None:
        self._rows = rows

    @classmethod
    def of_run(cls, run: UUID) -> "ErasedRows":
        """Return what is said of all rows of a run."""
        return cls(lambda: ErasedRow.objects.filter(run=run))

    @classmethod
    def none(cls) -> "ErasedRows":
        """Return what is said if nothing was erased, without a query."""
        return cls(ErasedRow.objects.none)

    @classmethod
    def of_rows(cls, rows: Sequence[Model]) -> "ErasedRows":
        """Return what is said of these rows of one table."""

        def erased_rows() -> "QuerySet[ErasedRow]":
            table = rows[0]._meta.db_table
            keys = [str(row.pk) for row in rows]
            return ErasedRow.objects.filter(table=table, row__in=keys)

        return cls(erased_rows)

    @cached_property
    def _newest(self) -> dict[tuple[str, str], ErasedRow]:
        """Return the newest record of each row: a later erasure replaces an earlier
        one.
        """
        newest = {}
        # Later erasures have greater ids, so the newest record of a row comes last.
        for erased_row in self._rows().order_by("id"):
            if is_sound(erased_row):
                newest[erased_row.table, erased_row.row] = erased_row
        return newest

    def said_of(self, row: Model) -> ErasedRow | None:
        """Return what the newest record says of a row; None if nothing was erased of
        it.
        """
        return self._newest.get((row._meta.db_table, str(row.pk)))

    def covers(
        self, row: Any, column: str, data: bytes, protection: Protection
    ) -> bool:
        """Return whether a record says that these canonical bytes replaced what was
        erased.
        """
        erased_row = self.said_of(row)
        if erased_row is None:
            return False
        # A column that the record does not name was not erased, and has no hash here.
        return bool(erased_row.contents.get(column) == protection.digest(data))

    def all_said(self) -> Iterable[ErasedRow]:
        """Return the newest record of each row."""
        return self._newest.values()


def is_sound(row: ErasedRow) -> bool:
    """Return whether a record matches its seal. A forged one says nothing."""
    try:
        sealed_rows.verify_row(row, PLAIN)
    except CountersignError:
        return False
    return True


def is_erased(row: Model, column: str, data: bytes, protection: Protection) -> bool:
    """Return `ErasedRows.covers` for one row. One query."""
    return ErasedRows.of_rows([row]).covers(row, column, data, protection)
