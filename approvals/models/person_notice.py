"""Notices as people read them in the console."""

from django.conf import settings
from django.db import models


class PersonNotice(models.Model):
    """One notice as one person reads it in the console: ids and words, a copy of the
    notice, which is removed earlier. What it is about is read when it is shown, and the
    right to see that is judged then.
    """

    id = models.BigAutoField(primary_key=True)
    # The constraint below begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    # Without a key, because the notice is removed earlier.
    notice = models.BigIntegerField(help_text="The number of the notice.")
    event = models.CharField(max_length=30)
    run = models.UUIDField()
    request = models.UUIDField(null=True, blank=True)
    outcome = models.CharField(max_length=20, blank=True, default="")
    at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-notice"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "notice"], name="person_notice_once"
            )
        ]
        indexes = [
            # The few that nobody has read, however many there were.
            models.Index(
                fields=["user"],
                name="person_notice_unread",
                condition=models.Q(read_at__isnull=True),
            ),
            models.Index(fields=["at"], name="person_notice_age"),
        ]

    def __str__(self) -> str:
        return f"{self.event} for {self.user_id}"
