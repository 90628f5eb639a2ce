"""A line of the installation's audit log: refusals and other acts that belong to no run's own log."""

from django.conf import settings
from django.db import models

from checkpoints.models.fields import Sealed, hash_field


class AuditLine(Sealed):
    """Append-only. Chained in batches by a job, so number and hash are empty until then."""

    UNSEALED = ("number", "hash")

    id = models.BigAutoField(primary_key=True)
    number = models.BigIntegerField(null=True, blank=True, unique=True)
    at = models.DateTimeField()
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    actor_name = models.CharField(max_length=150, blank=True, default="")
    kind = models.CharField(max_length=60)
    run = models.UUIDField(null=True, blank=True)
    request = models.UUIDField(null=True, blank=True)
    facts = models.JSONField(
        default=dict, blank=True, help_text="Ids and names; never a value that a person decides on."
    )
    hash = hash_field()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["run", "-id"], name="audit_line_by_run"),
            models.Index(fields=["kind", "-id"], name="audit_line_by_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor_name or 'system'} {self.kind}"
