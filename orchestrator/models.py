"""Rows of floor 3: tokens, refused ones, answered requests, and what a person prefers."""

from django.conf import settings
from django.db import models

from checkpoints.models.fields import Sealed


class ApiToken(Sealed):
    """A token acts as its user. Only a keyed digest is kept, so it is shown once, when
    it is made. The row is sealed, so that nobody widens it in the database.
    """

    IDENTITY = ("digest",)
    MOMENT = "created_at"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="countersign_tokens",
    )
    name = models.CharField(max_length=100, blank=True, default="")
    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(
        max_length=12, help_text="The first characters, to tell tokens apart."
    )
    scopes = models.JSONField(
        default=list, help_text="Of: start, read, decide, steer, export, erase."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.hint}… of {self.user}"


class IdempotencyRecord(models.Model):
    """The answer to a POST that carried an Idempotency-Key, written in the transaction
    of the act.

    It belongs to no run, so its answer is encrypted wherever there is a key to do so.
    """

    PAYLOADS = ("answer",)
    IDENTITY = ("user_id", "method", "path", "key")
    UNSEALED = ()
    MOMENT = "created_at"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    method = models.CharField(max_length=10)
    path = models.CharField(max_length=500)
    key = models.CharField(max_length=200)
    body_hash = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Empty while the act is in progress."
    )
    answer = models.BinaryField(default=b"")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            # It makes a second request under the key wait for the transaction of the first.
            models.UniqueConstraint(
                fields=["user", "method", "path", "key"], name="idempotency_record_key"
            )
        ]
        indexes = [models.Index(fields=["created_at"], name="idempotency_record_age")]

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.key}"


class AnswerReference(models.Model):
    """An id that stands in a kept answer or in its address: of a run, a checkpoint, a
    request, a write or a receipt. An erasure finds the answers about a run by it.
    """

    id = models.BigAutoField(primary_key=True)
    record = models.ForeignKey(
        IdempotencyRecord, on_delete=models.CASCADE, related_name="references"
    )
    subject = models.UUIDField()

    class Meta:
        indexes = [models.Index(fields=["subject"], name="answer_reference_subject")]

    def __str__(self) -> str:
        return f"{self.subject} in an answer"


class FailedAuthentication(models.Model):
    """Counts how often an address or a token was refused in the current window. Rows
    out of date are deleted.
    """

    subject = models.CharField(
        max_length=60, primary_key=True, help_text="address:<address> or token:<digest>"
    )
    failures = models.PositiveIntegerField(default=0)
    ends_at = models.DateTimeField(
        help_text="When the window ends, and counting begins anew."
    )

    class Meta:
        indexes = [models.Index(fields=["ends_at"], name="failed_authentication_age")]

    def __str__(self) -> str:
        return f"{self.subject} {self.failures}"


class Preference(models.Model):
    """The console settings of one person."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        primary_key=True,
        related_name="countersign_preference",
    )
    theme = models.CharField(
        max_length=5,
        choices=[(t, t) for t in ("auto", "light", "dark")],
        default="auto",
    )
    shortcuts = models.BooleanField(
        default=True, help_text="Whether single keys do something on the pages."
    )

    def __str__(self) -> str:
        return f"preferences of {self.user}"


class BulkFork(Sealed):
    """Many runs that are forked with one patch, by the job of the same id. It belongs
    to no run, so what is wanted is encrypted wherever there is a key to do so.
    """

    PAYLOADS = ("wanted",)

    id = models.UUIDField(
        primary_key=True, editable=False, help_text="That of its job."
    )
    wanted = models.BinaryField(
        help_text="Packed canonical JSON: {graph, status, patch, allow_effects, reason}."
    )
    encrypted = models.BooleanField(default=False)
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
        return f"bulk fork {self.id}"


class BulkForkResult(models.Model):
    """One run of a bulk fork: what became of it. Written in the transaction of its
    fork, so it is forked once.
    """

    PAYLOADS = ("message",)
    IDENTITY = ("bulk_id", "origin")
    UNSEALED = ()
    MOMENT = "at"

    id = models.BigAutoField(primary_key=True)
    # Both indexes below begin with this column.
    bulk = models.ForeignKey(
        BulkFork, on_delete=models.CASCADE, related_name="results", db_index=False
    )
    origin = models.UUIDField(help_text="The run that is forked.")
    checkpoint = models.UUIDField(
        null=True, blank=True, help_text="From where; empty until it is looked for."
    )
    fork = models.UUIDField(
        null=True, blank=True, help_text="The new run; empty where it was refused."
    )
    code = models.CharField(
        max_length=60, blank=True, default="", help_text="Why it was refused."
    )
    message = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: the refusal in a sentence."
    )
    at = models.DateTimeField(
        null=True, blank=True, help_text="Empty while it waits for its turn."
    )

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["bulk", "origin"], name="bulk_fork_once")
        ]
        indexes = [
            models.Index(fields=["bulk", "id"], name="bulk_fork_in_order"),
            # The job reads on where it stopped, without passing all that is done.
            models.Index(
                fields=["bulk", "id"],
                name="bulk_fork_to_do",
                condition=models.Q(at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"fork of {self.origin}"
