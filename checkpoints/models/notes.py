"""Notes of people and nodes beside a run: metadata, searched by its text, and figures,
which are added up.
"""

from django.db import models

from checkpoints.models.fields import OfTask, RowId, Sealed
from checkpoints.models.run import Run
from orchestrator.engine.step.notes import LONGEST_TEXT

OF_RUN = -1
"""The `seq` of what was given when the run was started; else it is that of a
checkpoint.
"""
LONGEST_NAME = 60


class RunMetadata(Sealed):
    """One name and its value, of a run or of one of its checkpoints. A line of the log
    has the hash of all together.
    """

    PAYLOADS = ("value",)
    IDENTITY = ("run_id", "seq", "name")

    id = RowId(primary_key=True)
    # No constraint in the database, and no index: see Checkpoint.run.
    run = models.ForeignKey(
        Run,
        on_delete=models.PROTECT,
        related_name="metadata",
        db_constraint=False,
        db_index=False,
    )
    seq = models.IntegerField(
        default=OF_RUN, help_text="Of the checkpoint; -1 for the run itself."
    )
    name = models.CharField(max_length=LONGEST_NAME)
    value = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: a text, a number, true or false."
    )
    text = models.CharField(
        max_length=LONGEST_TEXT,
        blank=True,
        default="",
        help_text=(
            "What filters compare; empty in an encrypted run, unless its graph "
            "declares the name as indexed."
        ),
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "seq", "name"]
        verbose_name_plural = "run metadata"
        constraints = [
            models.UniqueConstraint(
                fields=["run", "seq", "name"], name="run_metadata_name"
            )
        ]
        # A filter reads only the rows of its name and text.
        indexes = [
            models.Index(
                fields=["name", "text", "seq", "run"], name="run_metadata_found"
            )
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.name}"


class TaskFigure(OfTask, Sealed):
    """A number that a task noted, counted with the first checkpoint that lists its
    result.
    """

    IDENTITY = ("run_id", "seq", "line", "node", "visit", "index", "name")

    id = RowId(primary_key=True)
    # No constraint in the database, and no index: see Checkpoint.run.
    run = models.ForeignKey(
        Run,
        on_delete=models.PROTECT,
        related_name="figures",
        db_constraint=False,
        db_index=False,
    )
    seq = models.IntegerField(help_text="Of the checkpoint.")
    graph = models.CharField(max_length=200)
    day = models.CharField(
        max_length=10, help_text="The day of its commit in UTC, as 2026-11-24."
    )
    name = models.CharField(max_length=LONGEST_NAME)
    millionths = models.BigIntegerField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "seq", "line", "node", "visit", "index", "name"],
                name="task_figure_once",
            )
        ]
        # A sum reads the entries of its days and graph and no others, and no row.
        indexes = [
            models.Index(
                fields=["day", "graph", "name", "run", "millionths"],
                name="task_figure_days",
            )
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.name}"
