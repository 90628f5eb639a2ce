"""Comments on requests and on their writes."""

from django.conf import settings
from django.db import models

from approvals.models.append_only_row import AppendOnlyRow
from approvals.models.request import ApprovalRequest
from approvals.models.shapes import COMMENT_SHAPES
from checkpoints.core.ids import uuid7
from checkpoints.models import Run


class RequestComment(AppendOnlyRow):
    """A sentence of a person about a request, or about one write of it. It is no
    decision, is never part of what anybody signs, and changes nothing.

    Append-only: the ORM refuses to change it, its seal names a change, and the line of
    the audit log names a comment that was removed.
    """

    PAYLOADS = ("text",)
    SHAPES = COMMENT_SHAPES
    IDENTITY = ("run_id", "id")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No index for the run alone, because `comment_by_run` begins with it.
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="comments", db_index=False
    )
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.PROTECT,
        related_name="comments",
        db_index=False,
    )
    write = models.UUIDField(
        null=True, blank=True, help_text="Empty where it is about the whole request."
    )
    text = models.BinaryField(help_text="Packed canonical JSON: a string.")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Empty in an imported run whose author has no account here.",
    )
    by_name = models.CharField(max_length=150)
    at = models.DateTimeField(help_text="By the clock of the database.")

    class Meta:
        ordering = ["at", "id"]
        indexes = [
            models.Index(fields=["run", "at", "id"], name="comment_by_run"),
            models.Index(fields=["request", "at", "id"], name="comment_by_request"),
        ]

    def __str__(self) -> str:
        return f"comment of {self.by_name} on {self.request_id}"
