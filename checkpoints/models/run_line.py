"""A line: one course of a run. The first line of a run that was started has no row, for
it departed from nowhere.
"""

from django.conf import settings
from django.db import models

from checkpoints.models.fields import Sealed, hash_field
from checkpoints.models.run import Run


class Travel(models.TextChoices):
    """The ways in which a line begins."""

    FORK = "fork", "a new run from a checkpoint"
    REPLAY = "replay", "a new run without an outside"
    REWIND = "rewind", "the same run from an older checkpoint"
    RESUME = "resume", "the same run from its newest checkpoint, patched"


class RunLine(Sealed):
    """The departure of a line, and the nodes that need a person's yes on it. Line 1 of
    a fork departed from another run.
    """

    PAYLOADS = ("patch", "reason")
    IDENTITY = ("run_id", "number")

    id = models.BigAutoField(primary_key=True)
    # No separate index: the constraint below begins with the run.
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="lines", db_index=False
    )
    number = models.IntegerField()
    travel = models.CharField(max_length=10, choices=Travel.choices)
    parent_line = models.IntegerField(
        help_text="The line that it departed from: of its run, or of the origin's."
    )
    departure = models.UUIDField(help_text="The checkpoint that it departed from.")
    departure_run = models.UUIDField(
        help_text="The run of that checkpoint: its own, or the origin."
    )
    departure_seq = models.IntegerField()
    departure_hash = hash_field()
    stops = models.JSONField(
        default=list,
        help_text=(
            "Nodes that do not start without a yes, for what they do has happened "
            "before."
        ),
    )
    patched = models.JSONField(
        default=list, help_text="Names of the channels that its patch changed."
    )
    patch = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: the patch as it was given."
    )
    reason = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: a string."
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "number"]
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="run_line_number")
        ]
        indexes = [
            models.Index(fields=["departure"], name="run_line_departure"),
            models.Index(fields=["departure_run"], name="run_line_departure_run"),
        ]

    def __str__(self) -> str:
        return f"line {self.number} of {self.run_id}"
