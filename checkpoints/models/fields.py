"""Columns that many rows share. Abstract models and small helpers only.

Numbers are plain `IntegerField`s, even those that are never negative: Django's positive
fields add a check, which PostgreSQL parses again at every write. The 18 checks on the
three rows of a superstep were a sixth of its work for them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from orchestrator.engine.values.identity import Task

HASH = 64
"""Characters of a SHA-256 in hexadecimal."""


def hash_field() -> "models.CharField[str, str]":
    """A SHA-256 in hexadecimal; empty if the row carries none."""
    return models.CharField(max_length=HASH, blank=True, default="")


if TYPE_CHECKING:
    BigAutoField = models.BigAutoField[int, int]
else:
    BigAutoField = models.BigAutoField  # generic in its stubs only


class RowId(BigAutoField):
    """An id that SQLite makes without AUTOINCREMENT, which would write one more page in
    each commit, only to never reuse the id of a newest row that was deleted.
    """

    def db_type_suffix(self, connection: BaseDatabaseWrapper) -> str | None:
        return (
            None
            if connection.vendor == "sqlite"
            else super().db_type_suffix(connection)
        )


def pid_space_field() -> "models.CharField[str, str]":
    """Return the field for where a pid counts: see `checkpoints.queue.processes`."""
    return models.CharField(
        max_length=80,
        blank=True,
        default="",
        help_text="Boot of the host and pid namespace: where the pid counts.",
    )


class Sealed(models.Model):
    """A row that is sealed by the process that writes it: an HMAC-SHA256 over all its
    fields and the id of its key.
    """

    PAYLOADS: ClassVar[tuple[str, ...]] = ()
    """Payload columns: packed canonical JSON, encrypted in an encrypted run."""
    IDENTITY: ClassVar[tuple[str, ...]] = ("id",)
    """The fields that name a row before it is inserted."""
    UNSEALED: ClassVar[tuple[str, ...]] = ()
    """Fields that may change after the row was sealed."""
    SEALED_LATER: ClassVar[tuple[str, ...]] = ()
    """A column with a separate seal, which the row's own seal leaves out, then the
    fields that it covers beside the row's identity. It is filled where the last of
    these is not empty.
    """
    ADDED: ClassVar[tuple[str, ...]] = ()
    """Fields that came when rows were sealed already, and that are empty in those. The
    seal of a row covers them where one of them is not empty.
    """
    MOMENT: ClassVar[str] = "at"
    """The field that says when the row was written."""

    seal = models.BinaryField(null=True, blank=True, editable=False)
    seal_key = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        abstract = True


class OfTask(models.Model):
    """A row of one task: (run, line, node, visit, index). The line is in the key, for a
    rewind meets the task again.
    """

    line = models.IntegerField()
    node = models.CharField(max_length=200)
    visit = models.IntegerField()
    index = models.IntegerField(default=0)

    class Meta:
        abstract = True

    @property
    def task(self) -> str:
        """`node:visit:index`, as everywhere."""
        return f"{self.node}:{self.visit}:{self.index}"


def task_columns(run: UUID, line: int, task: Task) -> dict[str, Any]:
    """Return the columns that say which task a row belongs to."""
    return {
        "run_id": run,
        "line": line,
        "node": task.node,
        "visit": task.visit,
        "index": task.index,
    }


def of_tasks(run: UUID, line: int, tasks: Iterable[Task]) -> models.Q:
    """Return the filter for the rows of these tasks."""
    indexes: dict[tuple[str, int], list[int]] = {}
    for task in tasks:
        indexes.setdefault((task.node, task.visit), []).append(task.index)
    of_these = models.Q(pk__in=[])
    # One condition a visit, not a task: SQLite takes no more than a thousand, and a
    # fan-out may have more tasks.
    for (node, visit), of_visit in indexes.items():
        of_these |= models.Q(
            run_id=run, line=line, node=node, visit=visit, index__in=of_visit
        )
    return of_these
