"""Drafts: choices that are not signed yet."""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models import Run
from checkpoints.models.fields import Sealed


class Draft(Sealed):
    """A person's choice for one write that is not signed yet. Nobody else sees it;
    signing and settling remove it.
    """

    PAYLOADS = ("choice",)
    IDENTITY = ("run_id", "by_id", "write")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="drafts")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    # Settling a write removes everybody's drafts of it.
    write = models.UUIDField(db_index=True)
    revision = models.PositiveIntegerField(
        help_text="The revision that was on the screen."
    )
    seen_hash = models.CharField(
        max_length=64, help_text="Its hash: of another one the draft is stale."
    )
    choice = models.BinaryField(
        help_text="Packed canonical JSON: {verdict, reason, fields as they were typed}."
    )
    number = models.PositiveBigIntegerField(
        help_text="Of the save, from 1: an older one never replaces a newer one."
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["write"]
        constraints = [
            models.UniqueConstraint(fields=["by", "write"], name="draft_by_write")
        ]
        # A person's drafts in a run.
        indexes = [models.Index(fields=["by", "run"], name="draft_by_person")]

    def __str__(self) -> str:
        return f"draft for {self.write} r{self.revision}"
