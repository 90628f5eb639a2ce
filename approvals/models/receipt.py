"""The receipts of signings."""

from django.conf import settings
from django.db import models

from approvals.models.shapes import RECEIPT
from checkpoints.core.ids import uuid7
from checkpoints.models import Run
from checkpoints.models.fields import Sealed


class Receipt(Sealed):
    """The result of one signing: for each write whether it counted, and if not, why.
    Its meaning never changes.
    """

    SHAPES = RECEIPT
    IDENTITY = ("run_id", "id")
    ADDED = ("assertion",)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="receipts")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    at = models.DateTimeField()
    # NULL, not empty: a unique constraint counts empty texts as equal.
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001
    body_hash = models.CharField(
        max_length=64,
        help_text=(
            "Hash of what was posted: the same key with another body is a conflict."
        ),
    )
    lines = models.JSONField(
        help_text=(
            "[{write, revision, hash, verdict, result, why, ...}] in the order signed."
        )
    )
    assertion = models.JSONField(
        null=True,
        blank=True,
        help_text=(
            "{document, credential, fingerprint, public_key, client_data, ...}: what a "
            "passkey signed; empty where none did."
        ),
    )

    class Meta:
        ordering = ["-at"]
        constraints = [
            models.UniqueConstraint(
                fields=["by", "idempotency_key"], name="receipt_idempotency_key"
            )
        ]

    def __str__(self) -> str:
        return f"receipt {self.id}"
