"""Webhooks, and the deliveries of notices to them."""

from urllib.parse import urlsplit

from django.conf import settings
from django.db import models

from approvals.models.notice import DeliveryStatus, Notice
from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed


class Envelope(models.TextChoices):
    """The forms of a message."""

    STANDARD = "standard", "Standard Webhooks"
    CLOUDEVENTS = "cloudevents", "CloudEvents 1.0"


class Webhook(Sealed):
    """An address to which notices are sent, and the secret that signs them. The row is
    sealed, so that nobody leads them elsewhere in the database, and the secret is
    encrypted wherever there is a key to do so.

    With a run it is the callback of that approval, and hears of nothing else.
    """

    PAYLOADS = ("secret",)
    ADDED = ("envelope", "run", "receiver")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    url = models.CharField(max_length=500)
    events = models.JSONField(
        default=list, blank=True, help_text="[event]; empty for all."
    )
    graphs = models.JSONField(
        default=list, blank=True, help_text="[name]; empty for all."
    )
    envelope = models.CharField(
        max_length=20,
        choices=Envelope.choices,
        default=Envelope.STANDARD,
        db_default=Envelope.STANDARD,
    )
    run = models.UUIDField(
        null=True,
        blank=True,
        unique=True,
        help_text="The approval whose callback it is; empty for all others.",
    )
    receiver = models.CharField(
        max_length=253,
        blank=True,
        default="",
        db_default="",
        help_text="The host of a callback, to which one job sends.",
    )
    secret = models.BinaryField(help_text="Packed canonical JSON: a string.")
    encrypted = models.BooleanField(default=False)
    active = models.BooleanField(default=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at", "-id"]
        permissions = [("manage_webhooks", "Can manage webhooks")]

    def __str__(self) -> str:
        return f"webhook {self.id} to {self.host}"

    @property
    def host(self) -> str:
        """The host of the address, whose path may be secret; empty if it cannot be read."""
        try:
            return urlsplit(self.url).hostname or ""
        except ValueError:
            return ""


class WebhookDelivery(models.Model):
    """One notice on its way to one webhook. Its id is that of the message, the same at
    each attempt, so that a receiver can drop what it has.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The constraint below begins with it.
    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False
    )
    notice = models.ForeignKey(
        Notice, on_delete=models.CASCADE, related_name="deliveries"
    )
    status = models.CharField(
        max_length=10, choices=DeliveryStatus.choices, default=DeliveryStatus.WAITING
    )
    attempts = models.IntegerField(default=0)
    due_at = models.DateTimeField()
    made_at = models.DateTimeField()
    first_at = models.DateTimeField(
        null=True, blank=True, help_text="Of the first attempt since it was due."
    )
    last_at = models.DateTimeField(null=True, blank=True)
    code = models.IntegerField(
        null=True, blank=True, help_text="The status that the receiver answered last."
    )
    error = models.CharField(
        max_length=200, blank=True, default="", help_text="Why it failed, in our words."
    )

    class Meta:
        ordering = ["-made_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["webhook", "notice"], name="webhook_delivery_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["webhook", "due_at"],
                name="webhook_delivery_due",
                condition=models.Q(status="waiting"),
            ),
            models.Index(
                fields=["webhook", "-made_at", "-id"], name="webhook_delivery_newest"
            ),
        ]

    def __str__(self) -> str:
        return f"delivery {self.id}"
