"""Notices by mail, and what people have chosen about them."""

from typing import Any

from django.conf import settings
from django.db import models

from approvals.models.notice import DeliveryStatus, Notice


class MailPreference(models.Model):
    """The choice of a person about notices by mail. A person without a row gets
    digests at all hours.
    """

    AT_ONCE = "at_once"
    DIGEST = "digest"
    NONE = "none"
    MODES = (
        (AT_ONCE, "each at once"),
        (DIGEST, "gathered, at most every ten minutes"),
        (NONE, "none"),
    )

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="countersign_mail",
    )
    mode = models.CharField(max_length=10, choices=MODES, default=DIGEST)
    quiet_from = models.TimeField(null=True, blank=True)
    quiet_until = models.TimeField(
        null=True, blank=True, help_text="Before its beginning: on the next day."
    )
    time_zone = models.CharField(
        max_length=64, default="UTC", help_text="A name of the tz database."
    )
    muted = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="[kind of notices that the console does not list for them].",
    )

    def __str__(self) -> str:
        return f"mail of {self.user}"

    @classmethod
    def of(cls, person: Any) -> "MailPreference":
        """Return the choice of a person, or an unsaved one for a person without."""
        row = cls.objects.filter(user=person.pk).first()
        return row or cls(user_id=person.pk)


class NoticeMail(models.Model):
    """One notice on its way to one person. `batch` is the id of the message in which it
    goes, fixed before that is sent.
    """

    id = models.BigAutoField(primary_key=True)
    # The constraint below begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="mails")
    status = models.CharField(
        max_length=10, choices=DeliveryStatus.choices, default=DeliveryStatus.WAITING
    )
    batch = models.UUIDField(null=True, blank=True, db_index=True)
    attempts = models.IntegerField(default=0)
    made_at = models.DateTimeField()
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "notice"], name="notice_mail_once")
        ]
        indexes = [
            models.Index(
                fields=["user", "due_at"],
                name="notice_mail_due",
                condition=models.Q(status="waiting"),
            ),
            models.Index(fields=["user", "sent_at"], name="notice_mail_sent"),
        ]

    def __str__(self) -> str:
        return f"mail about {self.notice_id} to {self.user_id}"
