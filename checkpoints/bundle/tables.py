"""The tables of a bundle. Other packages add theirs in `AppConfig.ready`."""

from dataclasses import field

from django.db.models import Model

from checkpoints.bundle import row_shapes
from checkpoints.bundle.row_shapes import Shapes
from checkpoints.models import (
    Checkpoint,
    LateResult,
    MemoryLanding,
    MemoryRecord,
    PendingWrite,
    Run,
    RunEvent,
    RunLine,
    RunMetadata,
    TaskFigure,
    TaskResult,
)
from orchestrator.engine.frozen import frozen


@frozen
class BundledTable:
    """The rows of one model: `kind` is the kind of their lines, `by` the field in whose
    order they are written, `size` how many are read at once, `shapes` the form that the
    JSON in their columns must have if it is imported.
    """

    kind: str
    model: type[Model]
    by: str = "id"
    size: int = 100
    shapes: Shapes = field(default_factory=dict)


# Rows with large payloads are read few at a time, so that memory stays flat.
_OWN_TABLES = (
    BundledTable("event", RunEvent, "seq", shapes=row_shapes.EVENT),
    BundledTable("line", RunLine, "number", shapes=row_shapes.LINE),
    BundledTable("checkpoint", Checkpoint, "seq", size=5, shapes=row_shapes.CHECKPOINT),
    BundledTable("write", PendingWrite, size=20, shapes=row_shapes.WRITE),
    BundledTable("result", TaskResult, size=20, shapes=row_shapes.RESULT),
    BundledTable("late_result", LateResult, size=20, shapes=row_shapes.RESULT),
    BundledTable("landing", MemoryLanding),
    BundledTable("memory_record", MemoryRecord, size=20, shapes=row_shapes.MEMORY),
    BundledTable("metadata", RunMetadata, shapes=row_shapes.METADATA),
    BundledTable("figure", TaskFigure),
)
TABLES = {table.kind: table for table in _OWN_TABLES}
"""By kind. Their order in a bundle is that of `verifier.ROWS`."""


def shapes_of(model: type[Model]) -> Shapes:
    """Return the form that the JSON in the columns of a model must have if it is
    imported.
    """
    if model is Run:
        return row_shapes.RUN
    return next(table.shapes for table in TABLES.values() if table.model is model)


def add_table(table: BundledTable) -> None:
    """Add the rows of one more table to bundles."""
    TABLES[table.kind] = table
