"""An event: a numbered line of a run's log, in the past tense."""

from django.db import models

from checkpoints.models.bytewise import Bytewise
from checkpoints.models.fields import RowId, Sealed, hash_field
from checkpoints.models.run import Run


class RunEvent(Sealed):
    """One line. Written by `checkpoints.event_log` only, numbered without gaps, each
    chained to the one before.
    """

    PAYLOADS = ("payload",)
    IDENTITY = ("run_id", "seq")

    id = RowId(primary_key=True)
    # No constraint in the database, and no index: see Checkpoint.run.
    run = models.ForeignKey(
        Run,
        on_delete=models.PROTECT,
        related_name="events",
        db_constraint=False,
        db_index=False,
    )
    seq = models.BigIntegerField()
    type = models.CharField(max_length=40)
    at = models.DateTimeField()
    node = models.CharField(max_length=200, blank=True, default="")
    task = models.CharField(max_length=240, blank=True, default="")
    actor = models.CharField(
        max_length=150,
        blank=True,
        default="",
        help_text="A user's name, or empty for the system.",
    )
    payload = models.BinaryField(default=b"", help_text="Packed canonical JSON.")
    hash = hash_field()

    class Meta:
        ordering = ["run_id", "seq"]
        # Each covers few lines, so other runs pay nothing for them. The names of types
        # are those of `checkpoints.threads.names`.
        indexes = [
            models.Index(
                fields=["run", "node", "seq"],
                condition=models.Q(type="thread_saved"),
                name="run_event_saved",
            ),
            models.Index(
                fields=["run", "node", "task", "seq"],
                condition=models.Q(type="thread_saved"),
                name="run_event_saved_by_id",
            ),
            models.Index(
                models.F("run"),
                models.F("node"),
                Bytewise("task").desc(),
                models.F("seq").desc(),
                condition=models.Q(type="thread_saved"),
                name="run_event_saved_latest",
            ),
            models.Index(
                fields=["run", "node", "task", "seq"],
                condition=models.Q(type="thread_written"),
                name="run_event_written",
            ),
            models.Index(
                fields=["task"],
                condition=models.Q(type="thread_copied"),
                name="run_event_copied",
            ),
            # The name of the type is that of `checkpoints.core.outcome_lines`.
            models.Index(
                fields=["run", "seq"],
                condition=models.Q(type="outcome_reported"),
                name="run_event_reported",
            ),
            models.Index(
                fields=["task", "run"],
                condition=models.Q(type="thread_ran"),
                name="run_event_ran",
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="run_event_seq")
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.seq} {self.type}"
