"""The first time that a person saw a revision of a write."""

from django.conf import settings
from django.db import models


class Sighting(models.Model):
    """The first time that a person had a revision of a write on the screen, so that a
    gate can ask for it, and figures can count how soon they signed. It gives no right.
    """

    id = models.BigAutoField(primary_key=True)
    # No key of the run's row, so that nobody waits here for whoever has locked it.
    run = models.UUIDField(db_index=True)
    request = models.UUIDField()
    write = models.UUIDField()
    revision = models.IntegerField()
    # No index for the person alone: `sighting_of_revision` begins with them.
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    at = models.DateTimeField(help_text="By the clock of the database.")
    opened_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When nothing of it was folded any more; empty if something is.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["by", "write", "revision"], name="sighting_of_revision"
            )
        ]

    def __str__(self) -> str:
        return f"{self.by_id} saw {self.write} r{self.revision}"
