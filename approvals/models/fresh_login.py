"""Log-ins with which people confirm an act."""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7


class FreshLogin(models.Model):
    """A log-in at the provider of a company with which a person confirms one act, in
    the session that began it, within minutes.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    session = models.CharField(max_length=64, help_text="SHA-256 of the session's key.")
    nonce = models.CharField(
        max_length=64,
        unique=True,
        help_text="What the provider has answered; an answer counts once.",
    )
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"log-in of {self.user_id}"
