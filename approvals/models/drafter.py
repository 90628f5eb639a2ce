"""The people who have drafts in a request."""

from django.conf import settings
from django.db import models

from approvals.models.request import ApprovalRequest


class RequestDrafter(models.Model):
    """A person who has drafts in a request, for their folder of drafts: once, however
    many writes they drafted.

    The rows are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    # No index for the request alone: `request_drafter` begins with it.
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.CASCADE,
        related_name="drafters",
        db_index=False,
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    run = models.UUIDField()
    opened_at = models.DateTimeField()
    is_open = models.BooleanField()
    # The row stays without drafts, so that saving and removing wait for each other.
    drafts = models.IntegerField(
        help_text="For how many writes of the request there are drafts of theirs."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="request_drafter")
        ]
        indexes = [
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="drafter_open",
                condition=models.Q(is_open=True, drafts__gt=0),
            )
        ]

    def __str__(self) -> str:
        return f"{self.by_id} in {self.request_id}"
