"""An uploaded file: bytes in Django's storage, the row by which inputs refer to them,
and the runs that do.
"""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7


class Upload(models.Model):
    """A file that a run's input may name. Inputs carry {file, name, size, sha256},
    never a path.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    stored_as = models.CharField(max_length=300, unique=True)
    name = models.CharField(max_length=255)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.size} bytes)"


class UploadReference(models.Model):
    """A record that the input of a run names an upload. Written with the run, so that
    no input must be opened to find out whether a file is still needed.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.UUIDField()
    # No separate index: the constraint below begins with the upload.
    upload = models.ForeignKey(
        Upload, on_delete=models.PROTECT, related_name="references", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["upload", "run"], name="upload_reference_once"
            )
        ]
        indexes = [models.Index(fields=["run"], name="upload_reference_by_run")]

    def __str__(self) -> str:
        return f"run {self.run} names {self.upload_id}"
