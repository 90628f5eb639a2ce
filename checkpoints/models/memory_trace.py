"""Memory: the traces that the installation remembers, what landed in them, and what
tasks read of them.
"""

from django.db import models

from checkpoints.models.fields import OfTask, Sealed
from checkpoints.models.run import Run
from orchestrator.engine.graphs.trace import LONGEST_KEY, LONGEST_NAMESPACE


class MemoryTrace(Sealed):
    """One remembered thing. A forgotten one stays, empty, with its version, so that an
    older write is recognised.
    """

    PAYLOADS = ("content",)
    IDENTITY = ("namespace", "key", "version")
    # The words only find a trace; what a search gives is the sealed content.
    UNSEALED = ("text",)

    id = models.BigAutoField(primary_key=True)
    namespace = models.CharField(max_length=LONGEST_NAMESPACE)
    key = models.CharField(max_length=LONGEST_KEY)
    content = models.BinaryField(
        default=b"", help_text="Packed canonical JSON; empty where it was forgotten."
    )
    strength = models.FloatField(default=1.0)
    version = models.BigIntegerField(
        default=1, help_text="Counts what was done to this key, from 1."
    )
    deleted = models.BooleanField(default=False)
    encrypted = models.BooleanField(default=False)
    run = models.UUIDField(
        null=True,
        blank=True,
        help_text="The run whose commit wrote it; empty for a person.",
    )
    node = models.CharField(max_length=200, blank=True, default="")
    superstep = models.IntegerField(null=True, blank=True)
    at = models.DateTimeField()
    text = models.TextField(
        blank=True,
        default="",
        help_text="The words that a search compares; none if encrypted.",
    )

    class Meta:
        ordering = ["namespace", "key"]
        constraints = [
            models.UniqueConstraint(
                fields=["namespace", "key"], name="memory_trace_key"
            )
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.key}"


class MemoryLanding(OfTask):
    """A change of memory that landed with a commit. One row for each change: the same
    one cannot land again.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="landings", db_constraint=False
    )
    n = models.IntegerField(help_text="Which change of its task, from 0.")
    namespace = models.CharField(max_length=LONGEST_NAMESPACE)
    key = models.CharField(max_length=LONGEST_KEY)
    version = models.BigIntegerField(help_text="The version that it made.")
    deleted = models.BooleanField(default=False)
    change = models.CharField(
        max_length=8,
        blank=True,
        default="",
        help_text=(
            "added, updated or removed; nothing where it found nothing to remove."
        ),
    )
    seq = models.IntegerField(help_text="The checkpoint with which it landed.")
    superstep = models.IntegerField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "line", "node", "visit", "index", "n"],
                name="memory_landing_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.namespace}/{self.key} v{self.version}"


class MemoryRecord(OfTask, Sealed):
    """The result of one call of a task to memory; or (`kind` journal) all changes that
    the task wishes.
    """

    PAYLOADS = ("asked", "found")
    IDENTITY = ("run_id", "line", "node", "visit", "index", "n")

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        Run,
        on_delete=models.PROTECT,
        related_name="memory_records",
        db_constraint=False,
    )
    n = models.IntegerField(help_text="Which call of its task, from 0.")
    kind = models.CharField(max_length=10, help_text="get, search, or journal")
    mode = models.CharField(max_length=10, default="snapshot")
    asked = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: the call."
    )
    found = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: the answer."
    )
    unrecorded = models.BooleanField(
        default=False,
        help_text=(
            "Read as memory was then, though the task had records of an earlier time."
        ),
    )
    superstep = models.IntegerField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["run_id", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "line", "node", "visit", "index", "n"],
                name="memory_record_call",
            )
        ]

    def __str__(self) -> str:
        return f"{self.task} {self.kind} {self.n}"
