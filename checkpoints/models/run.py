"""A run: one journey through a graph. Its row is also its place in the queue."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.models.fields import Sealed, hash_field

TIES = ("parent_run", "parent_line", "parent_task", "origin_checkpoint")
"""The columns that tie a run to others from its start on."""


class Run(Sealed):
    """One journey. The status, lease, wake and head columns are changed by `leases`,
    `wakes` and `ledger` only.
    """

    PAYLOADS = ("input", "error", "progress")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    key = models.CharField(max_length=200)
    graph = models.CharField(max_length=200)
    version = models.CharField(max_length=50)
    fingerprint = hash_field()
    label = models.CharField(max_length=LONGEST_LABEL, blank=True, default="")
    facts = models.JSONField(default=dict, blank=True)
    encrypted = models.BooleanField(default=False)
    hash_key = models.CharField(
        max_length=40,
        blank=True,
        default="",
        help_text="Id of the key that makes its hashes; empty for plain SHA-256.",
    )
    payloads = models.CharField(
        max_length=60,
        default="database",
        help_text="The backend that keeps its payloads, by its name in the settings.",
    )

    status = models.CharField(
        max_length=12,
        choices=[(s.value, s.value) for s in Status],
        default=Status.QUEUED,
    )
    line = models.IntegerField(default=1)
    superstep = models.IntegerField(default=0)
    head = models.UUIDField(
        null=True, blank=True, help_text="The newest checkpoint of the current line."
    )
    head_seq = models.IntegerField(default=0)
    head_hash = hash_field()
    event_seq = models.BigIntegerField(default=0)
    event_hash = hash_field()
    decisions = models.IntegerField(default=0)
    durable = models.BooleanField(default=True)
    imported = models.BooleanField(
        default=False,
        help_text="It came in as a bundle: read-only, to be looked at and forked.",
    )

    epoch = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    leased_by = models.UUIDField(null=True, blank=True)
    wakes = models.BigIntegerField(default=0)
    due_at = models.DateTimeField(null=True, blank=True)
    priority = models.SmallIntegerField(default=0, help_text="Higher goes first.")
    claims_since_progress = models.IntegerField(default=0)
    cancel_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text=(
            "Somebody asked to cancel it; whoever has it in hand looks at each commit."
        ),
    )

    input = models.BinaryField(default=b"")
    input_hash = hash_field()
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    on_behalf_of = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    parent_run = models.UUIDField(null=True, blank=True)
    parent_line = models.IntegerField(
        default=0,
        help_text=(
            "The line of the parent on which its task started this run; 0 where it has"
            " no parent."
        ),
    )
    parent_task = models.CharField(max_length=240, blank=True, default="")
    origin_checkpoint = models.UUIDField(null=True, blank=True)

    at_node = models.CharField(max_length=400, blank=True, default="")
    pending = models.TextField(
        blank=True,
        default="",
        help_text="What of its graph it needs to go on: edges, nodes, gates, channels.",
    )
    tape = models.TextField(
        blank=True, default="", help_text="One short word a superstep, for lists."
    )
    error = models.BinaryField(
        default=b"",
        help_text="Why it stopped: packed canonical JSON, empty where it did not.",
    )
    error_code = models.CharField(max_length=60, blank=True, default="")
    progress = models.BinaryField(
        default=b"",
        help_text=(
            "What the node in hand reports, {task, done, total, note}: packed "
            "canonical JSON."
        ),
    )

    erasure = models.UUIDField(
        null=True, blank=True, help_text="The newest record of what was erased of it."
    )

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        permissions = [
            ("start_run", "Can start runs"),
            ("steer_run", "Can resume, fork, replay, rewind and cancel runs"),
            ("settle_task", "Can settle unknown outcomes"),
            ("export_run", "Can export runs"),
            ("import_run", "Can import runs"),
            ("manage_retention", "Can manage retention"),
        ]
        # `unique=True` would add an index for LIKE, which no query has.
        constraints = [models.UniqueConstraint(fields=["key"], name="run_key")]
        # Each change of status writes to all of them, so those that most runs have no
        # value for leave them out.
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="run_newest"),
            models.Index(fields=["status", "-created_at", "-id"], name="run_by_status"),
            models.Index(fields=["graph", "-created_at"], name="run_by_graph"),
            models.Index(
                fields=["graph", "status", "-created_at", "-id"],
                name="run_by_graph_and_status",
            ),
            *(
                models.Index(
                    fields=[field],
                    name=f"run_by_{field}",
                    condition=models.Q(**{f"{field}__isnull": False}),
                )
                for field in ("on_behalf_of", "parent_run")
            ),
            models.Index(
                # In the order of the list, for whoever sees only what they started.
                fields=["started_by", "-created_at", "-id"],
                name="run_by_starter",
                condition=models.Q(started_by__isnull=False),
            ),
            # Forks and runs that went back, some of them not started: few of the many
            # that are paused.
            models.Index(
                # The status is the same in all; SQLite needs it to choose this index.
                fields=["status", "-created_at", "-id"],
                name="run_paused_departures",
                condition=models.Q(status=Status.PAUSED.value)
                & (models.Q(origin_checkpoint__isnull=False) | models.Q(line__gt=1)),
            ),
            # What the queue looks at: the queued and waiting runs of one kind side by
            # side, by due time. See `checkpoints.queue.due_runs`.
            models.Index(
                fields=["graph", "fingerprint", "priority", "due_at", "created_at"],
                name="run_ready",
                condition=models.Q(
                    status__in=[Status.QUEUED.value, Status.WAITING.value]
                ),
            ),
            # The same runs of all kinds, for how long the queue has waited.
            models.Index(
                fields=["status", "due_at"],
                name="run_due",
                condition=models.Q(
                    status__in=[Status.QUEUED.value, Status.WAITING.value]
                ),
            ),
        ]

    def __str__(self) -> str:
        return self.label or self.key


class RunKey(models.Model):
    """The data key of one run. Erasing the run destroys it (`wrapped` becomes empty).
    Removing the run deletes it, unless the run was archived: its bundle needs the key
    to be opened.
    """

    PAYLOADS: ClassVar[tuple[str, ...]] = ("wrapped",)
    IDENTITY: ClassVar[tuple[str, ...]] = ("id",)
    UNSEALED: ClassVar[tuple[str, ...]] = ()
    MOMENT: ClassVar[str] = "at"

    id = models.UUIDField(
        primary_key=True, default=uuid7, editable=False, help_text="That of the run."
    )
    wrapped = models.BinaryField(
        default=b"", help_text="32 bytes, encrypted under a key of the settings."
    )
    retired = models.BooleanField(
        default=False, help_text="It only opens: its run is being erased."
    )
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"key of run {self.id}"
