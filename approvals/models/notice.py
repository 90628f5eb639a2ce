"""Notices of what happened, and the statuses of their deliveries."""

from django.db import models


class Notice(models.Model):
    """Something that happened to a request, or to a run in which people decided. It
    holds ids and words alone: what it is about is read when it is sent.

    The rows are made by triggers, in the transaction of what happened: see
    `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    event = models.CharField(max_length=30)
    # Without keys to other tables, because history may be removed while it waits.
    run = models.UUIDField(null=True, blank=True, help_text="Empty for a test.")
    request = models.UUIDField(null=True, blank=True)
    outcome = models.CharField(
        max_length=20,
        blank=True,
        default="",
        help_text="The outcome of the request, or the status of the run.",
    )
    tier = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Which tier of the request acted, from 0."
    )
    comment = models.UUIDField(
        null=True, blank=True, help_text="The comment that it is about."
    )
    at = models.DateTimeField()
    passed_on_at = models.DateTimeField(
        null=True, blank=True, help_text="When deliveries were made of it."
    )

    class Meta:
        ordering = ["-id"]
        indexes = [
            # The few that wait, however many there were.
            models.Index(
                fields=["id"],
                name="notice_waiting",
                condition=models.Q(passed_on_at__isnull=True),
            ),
            # Set by a trigger if a request that came back is waiting already.
            models.Index(
                fields=["request", "event"],
                name="notice_waiting_of_request",
                condition=models.Q(passed_on_at__isnull=True),
            ),
            models.Index(fields=["at"], name="notice_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.request or self.run or ''}"


class DeliveryStatus(models.TextChoices):
    """The statuses of a delivery."""

    WAITING = "waiting", "waits for its next attempt"
    DELIVERED = "delivered", "the receiver has accepted it"
    GIVEN_UP = "given_up", "not accepted within a day"
