"""A worker: one process group that takes runs. Its row is its heartbeat."""

from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models.fields import pid_space_field


class Worker(models.Model):
    """One cluster. Only `stopped_at` proves that it is gone; host, pid space, pid and
    start say to people which process its sentinel is.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    host = models.CharField(max_length=255)
    pid_space = pid_space_field()
    pid = models.IntegerField()
    process_started = models.BigIntegerField(
        default=0,
        help_text="Start time of the process in clock ticks: tells a reused pid.",
    )
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True, blank=True)
    draining = models.BooleanField(default=False)
    slots = models.SmallIntegerField(default=0)
    busy = models.SmallIntegerField(default=0)
    fingerprints = models.JSONField(
        default=list, help_text="Fingerprints of the graphs that it has registered."
    )
    # NULL, so that a process of the version before can still insert its row.
    sums = models.JSONField(
        null=True,
        blank=True,
        help_text="What it has done since its start; empty where nobody watches.",
    )

    class Meta:
        ordering = ["-heartbeat_at"]
        indexes = [models.Index(fields=["-heartbeat_at"], name="worker_by_heartbeat")]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"
