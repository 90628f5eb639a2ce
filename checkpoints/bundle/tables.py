"""Which tables a bundle has rows of. What other floors know of a run they add themselves when they are ready."""

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
)  # fmt: skip
from orchestrator.engine.frozen import frozen


@frozen
class BundledTable:
    """The rows of one model: `kind` is what their lines say they are, `by` the field in whose order they are written,
    `size` how many are read at once, `shapes` which form the JSON in their columns must have where it comes in.
    """

    kind: str
    model: type[Model]
    by: str = "id"
    size: int = 100
    shapes: Shapes = field(default_factory=dict)


TABLES: dict[str, BundledTable] = {
    table.kind: table
    for table in (
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
}
"""By kind. Their order in a bundle is that of `verifier.ROWS`."""


def shapes_of(model: type[Model]) -> Shapes:
    """Which form the JSON in the columns of a model must have where it comes in."""
    return row_shapes.RUN if model is Run else next(one.shapes for one in TABLES.values() if one.model is model)


def add_table(table: BundledTable) -> None:
    """Let bundles have the rows of one more table."""
    TABLES[table.kind] = table
