"""Legal holds on runs and pins on checkpoints, with which people protect them from
removal. Only `checkpoints.retention.holds` writes these rows, each with a line in the
audit log. A row that was released stays as a record of who kept what, and when.
"""

from typing import ClassVar

from django.conf import settings
from django.db import models

from checkpoints.models.fields import Sealed

LONGEST_REASON = 1000
"""Characters."""


class Lasting(Sealed):
    """A row that records who keeps something of a run, since when, and who ended that.
    It lasts while `released_at` is None.
    """

    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    at = models.DateTimeField()
    released_at = models.DateTimeField(null=True, blank=True)
    released_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )

    class Meta:
        abstract = True
        ordering: ClassVar = ["-at", "-id"]


class LegalHold(Lasting):
    """A hold on a run: nothing of it is removed or erased while the hold lasts."""

    id = models.BigAutoField(primary_key=True)
    # No foreign key: a released hold stays as a record, though its run may be removed.
    run = models.UUIDField()
    reason = models.CharField(
        max_length=LONGEST_REASON, help_text="Readable to everybody who may see holds."
    )

    class Meta(Lasting.Meta):
        indexes = [
            models.Index(
                fields=["run"],
                name="legal_hold_lasting",
                condition=models.Q(released_at=None),
            )
        ]

    def __str__(self) -> str:
        return f"hold on {getattr(self, 'run_key', None) or self.run}"


class Pin(Lasting):
    """A checkpoint that retention leaves alone while the pin lasts."""

    id = models.BigAutoField(primary_key=True)
    checkpoint = models.UUIDField()
    run = models.UUIDField()
    reason = models.CharField(max_length=LONGEST_REASON, blank=True, default="")

    class Meta(Lasting.Meta):
        constraints = [
            models.UniqueConstraint(
                fields=["checkpoint"],
                condition=models.Q(released_at=None),
                name="pin_lasting_once",
            )
        ]
        indexes = [
            models.Index(
                fields=["run"],
                name="pin_lasting_by_run",
                condition=models.Q(released_at=None),
            )
        ]

    def __str__(self) -> str:
        return f"pin on {self.point}"

    @property
    def point(self) -> str:
        """Return the alias of the checkpoint where the row was read with `run_key` and
        `seq`, else its id.
        """
        key = getattr(self, "run_key", None)
        seq = getattr(self, "seq", None)
        if key and seq is not None:
            return f"{key}:at-{seq}"
        return str(self.checkpoint)
