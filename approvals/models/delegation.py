"""Delegations of the right to review."""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed


class Delegation(Sealed):
    """A person passes on their right to review for a time: only the right, and to one
    person, who cannot pass it on. Sealed, so that nobody gains a right by a row put
    into the database.
    """

    IDENTITY = ("id",)
    MOMENT = "made_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    delegator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Whose right it is.",
    )
    delegate = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Who decides for them.",
    )
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=1000, blank=True, default="")
    made_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)
    revoked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
    )

    class Meta:
        ordering = ["-made_at", "-id"]

    def __str__(self) -> str:
        return f"{self.delegate} decides for {self.delegator}"
