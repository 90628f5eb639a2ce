"""Which tables a bundle has rows of. What other floors know of a run they add themselves when they are ready."""

from django.db.models import Model

from checkpoints.models import (
    Checkpoint,
    LateResult,
    MemoryLanding,
    MemoryRecord,
    PendingWrite,
    RunEvent,
    RunLine,
    TaskResult,
)  # fmt: skip
from orchestrator.engine.frozen import frozen


@frozen
class BundledTable:
    """The rows of one model: `kind` is what their lines say they are, `by` the field in whose order they are written,
    `size` how many are read at once.
    """

    kind: str
    model: type[Model]
    by: str = "id"
    size: int = 100


TABLES: dict[str, BundledTable] = {
    table.kind: table
    for table in (
        BundledTable("event", RunEvent, "seq"),
        BundledTable("line", RunLine, "number"),
        BundledTable("checkpoint", Checkpoint, "seq", size=5),
        BundledTable("write", PendingWrite, size=20),
        BundledTable("result", TaskResult, size=20),
        BundledTable("late_result", LateResult, size=20),
        BundledTable("landing", MemoryLanding),
        BundledTable("memory_record", MemoryRecord, size=20),
    )
}
"""By kind. Their order in a bundle is that of `verifier.ROWS`."""


def add_table(table: BundledTable) -> None:
    """Let bundles have the rows of one more table."""
    TABLES[table.kind] = table
