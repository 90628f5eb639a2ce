"""Doors for signed messages of other services, and these messages."""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed, hash_field


class Door(Sealed):
    """An address at which another service delivers signed news to runs of one graph. An
    account signs it as the answer to what the gate of a node asks. The row is sealed,
    so that nobody leads the news elsewhere in the database, and the secret is encrypted
    wherever there is a key to do so.
    """

    PAYLOADS = ("secret",)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    slug = models.CharField(max_length=60, unique=True)
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    secret = models.BinaryField(help_text="Packed canonical JSON: a string.")
    encrypted = models.BooleanField(default=False)
    graph = models.CharField(max_length=200)
    node = models.CharField(max_length=200, help_text="The node whose gate asks.")
    key_pointer = models.CharField(
        max_length=200, help_text="JSON Pointer to the key of the run in a body."
    )
    answer_pointer = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="JSON Pointer to the answer; empty for the whole body.",
    )
    until = models.DateTimeField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
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
        permissions = [("manage_doors", "Can manage doors")]

    def __str__(self) -> str:
        return f"door {self.slug}"


class MessageStatus(models.TextChoices):
    """The statuses of a message at a door."""

    KEPT = "kept", "waits for its question"
    DELIVERED = "delivered", "signed as an answer"
    REFUSED = "refused", "not delivered"


class DoorMessage(Sealed):
    """One message at a door, under the id that its sender gave it, which takes effect
    once. Its body is encrypted wherever there is a key to do so, and dropped once it
    was delivered: the decision holds the answer then.
    """

    PAYLOADS = ("body",)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The constraint below begins with it.
    door = models.ForeignKey(
        Door, on_delete=models.PROTECT, related_name="messages", db_index=False
    )
    message_id = models.CharField(max_length=200)
    graph = models.CharField(max_length=200)
    key = models.CharField(max_length=200, help_text="The key of the run.")
    body = models.BinaryField(
        default=b"", help_text="Packed canonical JSON; empty once it was delivered."
    )
    encrypted = models.BooleanField(default=False)
    body_hash = hash_field()
    status = models.CharField(
        max_length=10, choices=MessageStatus.choices, default=MessageStatus.KEPT
    )
    code = models.CharField(
        max_length=60, blank=True, default="", help_text="Why it was refused."
    )
    at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["door", "message_id"], name="door_message_once"
            )
        ]
        indexes = [
            models.Index(fields=["key", "graph"], name="door_message_of_run"),
            models.Index(fields=["at"], name="door_message_age"),
            # Filter and search of the admin's list.
            models.Index(fields=["status", "-at", "-id"], name="door_message_status"),
            models.Index(fields=["message_id"], name="door_message_id"),
        ]

    def __str__(self) -> str:
        return f"message {self.message_id} at {self.door_id}"
