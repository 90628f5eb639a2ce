"""An uploaded file: bytes in Django's storage, and the row that lets an input refer to them."""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7


class Upload(models.Model):
    """A file that a run's input may name. Inputs carry {file, name, size, sha256}, never a path."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    stored_as = models.CharField(max_length=300, unique=True)
    name = models.CharField(max_length=255)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.size} bytes)"
