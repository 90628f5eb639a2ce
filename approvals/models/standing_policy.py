"""Standing policies, with which a gate signs within limits."""

from django.conf import settings
from django.db import models

from approvals.models.verdicts import BY_STANDING
from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed


class StandingPolicy(Sealed):
    """A policy with which a person allows a gate to sign by itself what is within their
    limits, until a day and a number of times. It signs in its own name, by their right.
    Sealed, so that no row put into the database signs anything.
    """

    IDENTITY = ("id",)
    MOMENT = "made_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    number = models.PositiveIntegerField(
        help_text="Of the policies of its maker, from 1."
    )
    # No index for the maker alone: `standing_policy_number` begins with them.
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        help_text="Who made it, and whose right it uses.",
    )
    graph = models.CharField(max_length=200)
    gate = models.CharField(max_length=200, help_text="The node of the gate.")
    limits = models.JSONField(
        help_text="{channel: {path in the proposed value: the highest number, as text}}"
    )
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    most_uses = models.PositiveIntegerField(help_text="How many writes it may sign.")
    uses = models.PositiveIntegerField(
        default=0, help_text="How many writes it has signed."
    )
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
        constraints = [
            models.UniqueConstraint(
                fields=["by", "number"], name="standing_policy_number"
            )
        ]
        indexes = [
            # Those that may sign at a gate; the others only grow in number.
            models.Index(
                fields=["graph", "gate", "made_at"],
                name="standing_policy_of_gate",
                condition=models.Q(revoked_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.by}"

    @property
    def name(self) -> str:
        return f"{BY_STANDING} {self.number}"
