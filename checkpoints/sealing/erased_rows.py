"""Rows whose payloads were erased: their hashes are those of what they held, so erasure records say what stands there.

Whoever compares bytes with a hash and finds another asks here. Nothing is asked of rows that are as they were hashed.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet

from checkpoints.models import ErasedRow
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import CountersignError


class ErasedRows:
    """What valid records say of some rows; read when it is first asked for, in one query."""

    def __init__(self, rows: "QuerySet[ErasedRow]") -> None:
        self._found = rows

    @classmethod
    def of_run(cls, run: UUID) -> "ErasedRows":
        """What is said of all rows of a run."""
        return cls(ErasedRow.objects.filter(run=run))

    @classmethod
    def none(cls) -> "ErasedRows":
        """Nothing, without a query."""
        return cls(ErasedRow.objects.none())

    @classmethod
    def of_rows(cls, rows: Sequence[Model]) -> "ErasedRows":
        """What is said of these rows of one table."""
        table = rows[0]._meta.db_table
        return cls(ErasedRow.objects.filter(table=table, row__in=[str(row.pk) for row in rows]))

    @cached_property
    def _newest(self) -> dict[tuple[str, str], ErasedRow]:
        """A later erasure of the same row replaces an earlier one."""
        return {(row.table, row.row): row for row in self._found.order_by("id") if is_sound(row)}

    def said_of(self, row: Model) -> ErasedRow | None:
        """What the newest record says of a row; None where nothing was erased of it."""
        return self._newest.get((row._meta.db_table, str(row.pk)))

    def covers(self, row: Any, column: str, data: bytes, protection: Protection) -> bool:
        """Whether a record says that these canonical bytes stand in the place of what was erased."""
        said = self.said_of(row)
        return said is not None and said.contents.get(column) == protection.digest(data)

    def all_said(self) -> Iterable[ErasedRow]:
        """The newest of each row."""
        return self._newest.values()


def is_sound(row: ErasedRow) -> bool:
    """Whether a row is as it was sealed: a forged one says nothing."""
    try:
        sealed_rows.verify_row(row, PLAIN)
    except CountersignError:
        return False
    return True


def is_erased(row: Model, column: str, data: bytes, protection: Protection) -> bool:
    """`ErasedRows.covers` for one row. One query."""
    return ErasedRows.of_rows([row]).covers(row, column, data, protection)
