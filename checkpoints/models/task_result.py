"""The journal of write and external tasks: an intent before, a result after; and
evidence that came too late.
"""

from django.conf import settings
from django.db import models

from checkpoints.models.fields import OfTask, Sealed, hash_field, pid_space_field
from checkpoints.models.run import Run


class Outcome(models.TextChoices):
    """The outcomes of an attempt, as far as they are known."""

    OPEN = "open", "intent written, no result yet"
    DONE = "done", "happened, with this output"
    NOT_DONE = "not_done", "did not happen"
    FAILED = "failed", "failed; idempotent or atomic, so it may run again"
    UNKNOWN = "unknown", "a person must say"


class TaskResult(OfTask, Sealed):
    """One attempt of one journaled task."""

    PAYLOADS = ("output", "error", "settled_reason")
    IDENTITY = ("run_id", "line", "node", "visit", "index", "attempt")
    # The checkpoint that lists a result is sealed itself, and says which tasks it
    # lists.
    UNSEALED = ("seq",)
    MOMENT = "intent_at"

    id = models.BigAutoField(primary_key=True)
    # No separate index: the first constraint below begins with the run. No check by the
    # database, which would be a query for each leaf of a fan-out: rows are inserted
    # under the run's lock or with the run, and go with it.
    run = models.ForeignKey(
        Run,
        on_delete=models.PROTECT,
        related_name="task_results",
        db_index=False,
        db_constraint=False,
    )
    attempt = models.IntegerField()
    effect = models.CharField(max_length=10)
    epoch = models.BigIntegerField()
    worker = models.UUIDField(null=True, blank=True)
    host = models.CharField(max_length=255, blank=True, default="")
    pid_space = pid_space_field()
    pid = models.IntegerField(default=0)
    process_started = models.BigIntegerField(
        default=0, help_text="Clock ticks: tells a reused pid."
    )
    superstep = models.IntegerField(help_text="The superstep in whose course it ran.")
    input_hash = hash_field()
    intent_at = models.DateTimeField()
    over_at = models.DateTimeField(
        help_text="After lease and timeout: past this only a frozen process still acts."
    )
    thread_ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(
        max_length=10, choices=Outcome.choices, default=Outcome.OPEN
    )
    output = models.BinaryField(
        default=b"", help_text="Packed canonical JSON of what the node returned."
    )
    error = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: type, message, traceback."
    )
    result_at = models.DateTimeField(null=True, blank=True)
    took_ms = models.IntegerField(default=0)
    seq = models.IntegerField(
        null=True, blank=True, help_text="The first checkpoint that lists it."
    )
    settled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    settled_reason = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: a string."
    )

    class Meta:
        ordering = ["run_id", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "line", "node", "visit", "index", "attempt"],
                name="task_result_attempt",
            ),
            # Refused by the database itself, whatever else goes wrong: two results of a
            # task.
            models.UniqueConstraint(
                fields=["run", "line", "node", "visit", "index"],
                condition=models.Q(outcome="done"),
                name="task_result_once",
            ),
        ]
        # Each of these holds few rows at any time: an update writes to all indices that
        # its row is in. The superstep in hand, however long the line is; and what
        # people settled.
        indexes = [
            models.Index(
                fields=["run", "line"],
                name="task_result_in_hand",
                condition=models.Q(seq__isnull=True),
            ),
            models.Index(
                fields=["settled_by"],
                name="task_result_settled",
                condition=models.Q(settled_by__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.task} attempt {self.attempt}: {self.outcome}"


class LateResult(OfTask, Sealed):
    """A result whose attempt was no longer open: evidence for whoever settles, never
    applied by itself.
    """

    PAYLOADS = ("output", "error")
    # With its time: one attempt may leave several late results.
    IDENTITY = ("run_id", "line", "node", "visit", "index", "attempt", "at")

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="late_results")
    attempt = models.IntegerField()
    epoch = models.BigIntegerField()
    output = models.BinaryField(default=b"")
    error = models.BinaryField(default=b"")
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "id"]

    def __str__(self) -> str:
        return f"late {self.task} attempt {self.attempt}"
