"""A job: work that belongs to the installation and not to the course of one run. Its
row is its place in the queue.
"""

from django.db import models
from django.db.models import Q

from checkpoints.core.ids import uuid7


class JobStatus(models.TextChoices):
    """The statuses of a job."""

    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Cancelled"


LIVE = (JobStatus.QUEUED, JobStatus.RUNNING)


class Job(models.Model):
    """A deadline, a sweep, a rotation of keys, a verification. Only
    `checkpoints.queue.jobs` changes it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(max_length=60)
    # NULL, not empty: a unique constraint counts empty texts as equal.
    name = models.CharField(  # noqa: DJ001
        max_length=200,
        null=True,
        blank=True,
        help_text="Of the jobs with one name only one is queued or running.",
    )
    facts = models.JSONField(
        default=dict,
        blank=True,
        help_text="Ids and names that its kind reads, never a value.",
    )
    run = models.UUIDField(null=True, blank=True)
    status = models.CharField(
        max_length=10, choices=JobStatus.choices, default=JobStatus.QUEUED
    )
    priority = models.SmallIntegerField(default=0, help_text="Higher goes first.")
    due_at = models.DateTimeField()

    epoch = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    leased_by = models.UUIDField(null=True, blank=True)
    attempts = models.IntegerField(
        default=0, help_text="Begun since a slice of it last ended well."
    )
    progress = models.JSONField(
        default=dict, blank=True, help_text="{done, total, note, place}"
    )
    facts_seal = models.CharField(
        max_length=120,
        blank=True,
        default="",
        editable=False,
        help_text="Of its facts: key id and HMAC.",
    )
    place_seal = models.CharField(
        max_length=120,
        blank=True,
        default="",
        editable=False,
        help_text="Of its place: key id and HMAC.",
    )
    error_code = models.CharField(max_length=60, blank=True, default="")
    error = models.TextField(blank=True, default="", help_text="What went wrong last.")

    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"],
                condition=Q(status__in=[status.value for status in LIVE]),
                name="job_live_name",
            ),
        ]
        indexes = [
            models.Index(fields=["run"], name="job_by_run"),
            # Live jobs too: the page of workers lists them first, in this order.
            models.Index(fields=["-ended_at"], name="job_ended"),
            # What the queue looks at: few rows at any time, however many jobs are done.
            models.Index(
                fields=["-priority", "due_at"],
                name="job_claimable",
                condition=Q(status__in=[status.value for status in LIVE]),
            ),
            # Only the due ones among these, however many deadlines lie far ahead.
            models.Index(
                fields=["status", "due_at"],
                name="job_due",
                condition=Q(status__in=[status.value for status in LIVE]),
            ),
            # SQLite does not know how few are running, and chooses this one.
            models.Index(
                fields=["lease_until"],
                name="job_leased",
                condition=Q(status=JobStatus.RUNNING.value),
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.kind
