"""Claims: a person takes a request, so that nobody else signs it meanwhile."""

from django.conf import settings
from django.db import models

from approvals.models.request import ApprovalRequest
from checkpoints.models.fields import Sealed


class RequestClaim(Sealed):
    """The person who has taken a request, since and until when: a row while it lasts. Sealed, so
    that nobody keeps others from signing with a row put into the database.
    """

    IDENTITY = ("request_id",)

    id = models.BigAutoField(primary_key=True)
    request = models.OneToOneField(
        ApprovalRequest, on_delete=models.CASCADE, related_name="claim"
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
    )
    by_name = models.CharField(max_length=150)
    assigned_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        related_name="+",
        help_text="Who handed it to its holder; empty if they took it themselves.",
    )
    assigned_name = models.CharField(max_length=150, blank=True, default="")
    at = models.DateTimeField()
    until = models.DateTimeField(
        null=True, help_text="Empty where it lasts until it is released."
    )

    def __str__(self) -> str:
        return f"{self.request_id} taken by {self.by_name}"
