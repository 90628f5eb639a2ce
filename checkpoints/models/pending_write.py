"""A pending write: kept but not yet applied, because a gate holds it. One row for
each revision; a row never changes.
"""

from typing import Any

from django.conf import settings
from django.db import models

from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.models.fields import OfTask, Sealed
from checkpoints.models.run import Run


class RevisionReason(models.TextChoices):
    """Why a revision was made."""

    PROPOSAL = "proposal"
    EDIT = "edit"
    REBASE = "rebase"
    TEXTS = "texts"


class PendingWrite(OfTask, Sealed):
    """One revision of one held write. An edit and a re-base that meet collide on
    (write, revision).
    """

    PAYLOADS = ("value", "base", "shown")
    IDENTITY = ("run_id", "write", "revision")
    MOMENT = "staged_at"

    id = models.BigAutoField(primary_key=True)
    write = models.UUIDField(
        help_text="The id of the write: the same for all its revisions."
    )
    revision = models.IntegerField()
    # No separate index: the one below begins with the run.
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="pending_writes", db_index=False
    )
    position = models.IntegerField()
    channel = models.CharField(max_length=200)
    label = models.CharField(max_length=LONGEST_LABEL, blank=True, default="")
    value = models.BinaryField(help_text="Packed canonical JSON.")
    base = models.BinaryField(
        help_text=(
            "Packed canonical JSON: {channel, shows}, the values when this revision "
            "was made."
        )
    )
    bound_hash = models.CharField(
        max_length=64,
        help_text="Hash of the part of the base that the decision is bound to.",
    )
    shown = models.BinaryField(
        help_text="Packed canonical JSON: what people are shown beside the value."
    )
    policy_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64, help_text="What a signature is bound to.")
    size = models.IntegerField(default=0, help_text="Bytes of the canonical value.")
    reason = models.CharField(
        max_length=10, choices=RevisionReason.choices, default=RevisionReason.PROPOSAL
    )
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    superstep = models.IntegerField()
    staged_at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "line", "node", "visit", "index", "position", "revision"]
        constraints = [
            models.UniqueConstraint(
                fields=["write", "revision"], name="pending_write_revision"
            )
        ]
        indexes = [models.Index(fields=["run", "line"], name="pending_write_by_run")]

    def __str__(self) -> str:
        return f"{self.task}/{self.position} r{self.revision}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only: a person may have signed this revision."""
        if self.pk is not None:
            raise TypeError(
                "a revision of a pending write never changes; write the next revision"
            )
        super().save(*args, **kwargs)
