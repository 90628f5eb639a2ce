"""The people who decided something in a request."""

from django.conf import settings
from django.db import models

from approvals.models.request import ApprovalRequest


class RequestSigner(models.Model):
    """A person who decided something in a request, for their lists of signed requests:
    each person once, however many writes they decided.

    The rows are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    # No index for the request alone: `request_signer` begins with it.
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.CASCADE,
        related_name="signers",
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
    behind = models.IntegerField(
        null=True,
        editable=False,
        help_text=(
            "How many of the writes that they decided have a newer revision, which they "
            "have not decided; empty for none."
        ),
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "by"], name="request_signer")
        ]
        # Two, because SQLite looks for no truth value in an index.
        indexes = [
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="signer_open",
                condition=models.Q(is_open=True),
            ),
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="signer_decided",
                condition=models.Q(is_open=False),
            ),
            models.Index(
                fields=["by", "-opened_at", "-request"],
                name="signer_came_back",
                condition=models.Q(is_open=True, behind__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.by_id} in {self.request_id}"
