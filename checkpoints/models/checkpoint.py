"""A checkpoint: what is kept at a superstep boundary. A row in the timeline never
changes.
"""

from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed, hash_field
from checkpoints.models.run import Run


class Source(models.TextChoices):
    """Why a checkpoint was made."""

    INPUT = "input"
    SUPERSTEP = "superstep"
    SETTLEMENT = "settlement"
    FAILURE = "failure"
    FORK = "fork"
    REPLAY = "replay"
    REWIND = "rewind"
    MANUAL = "manual"
    VERSION = "version"


BEGINNINGS = (Source.FORK, Source.REPLAY, Source.REWIND)
"""Why there is a first checkpoint of a line that departed from another."""

BETWEEN = (Source.VERSION, Source.SETTLEMENT)
"""Checkpoints that there may be between the start of a superstep that was cut off and
its end.
"""


UNLISTED = (Source.FORK, Source.REPLAY, Source.MANUAL, Source.VERSION)
"""The sources of checkpoints that may change a channel without recording which
checkpoint set it last: the beginning of a fork that a store made, and a version with
new channels.
"""


class Checkpoint(Sealed):
    """One row of a run's timeline, or (`kept=False`) the recovery point that the next
    commit replaces.
    """

    # Its hashes stand for the bytes, wherever a backend keeps them; they are encrypted
    # before a backend gets them. The seq where a load begins (`anchor`) needs no seal:
    # it begins with a proven snapshot, and what follows is chained.
    UNSEALED = (
        "change",
        "snapshot",
        "stored_size",
        "anchor",
        "snapshot_hash",
        "snapshot_seal",
    )
    # An old row may be given a snapshot. Its own seal stays then, for records of
    # erasures name it, and it proves the rest by the key of the time it was written.
    SEALED_LATER = ("snapshot_seal", "content_hash", "snapshot_hash")
    IDENTITY = ("run_id", "id")
    MOMENT = "created_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No constraint in the database: the fenced commit has just locked this very run
    # row, and the check costs a statement a step. No separate index: the one on (run,
    # seq) serves.
    run = models.ForeignKey(
        Run,
        on_delete=models.PROTECT,
        related_name="checkpoints",
        db_constraint=False,
        db_index=False,
    )
    seq = models.IntegerField()
    superstep = models.IntegerField()
    line = models.IntegerField()
    source = models.CharField(max_length=12, choices=Source.choices)
    parent = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField()
    kept = models.BooleanField(default=True)
    committed = models.BooleanField(default=True)
    format = models.SmallIntegerField(default=1)
    graph = models.CharField(max_length=200)
    version = models.CharField(max_length=50)
    fingerprint = hash_field()

    anchor = models.IntegerField(
        default=0,
        help_text=(
            "Seq of the newest row of the line, up to this one, that holds a snapshot."
        ),
    )
    change = models.BinaryField(
        default=b"",
        help_text=(
            "What changed against the parent (packed), or what its backend keeps in "
            "the row."
        ),
    )
    snapshot = models.BinaryField(
        default=b"",
        help_text="The full payload (packed), or what its backend keeps in the row.",
    )
    backend = models.CharField(max_length=60, default="database")
    change_hash = hash_field()
    content_hash = hash_field()
    snapshot_hash = hash_field()
    snapshot_seal = models.BinaryField(
        null=True,
        blank=True,
        editable=False,
        help_text="That the snapshot is this row's: key id and HMAC.",
    )
    stored_size = models.BigIntegerField(default=0)
    state_size = models.BigIntegerField(default=0)

    nodes = models.JSONField(
        default=list,
        help_text="[{node, effect, tasks, ms, outcome}] in declared order.",
    )
    changed = models.JSONField(
        default=list, help_text="Names of the channels that this checkpoint set."
    )
    event_seq = models.BigIntegerField(default=0)
    event_hash = hash_field()
    took_ms = models.IntegerField(default=0)

    class Meta:
        ordering = ["run_id", "-seq"]
        constraints = [
            models.UniqueConstraint(fields=["run", "seq"], name="checkpoint_run_seq")
        ]
        # Which points were forked: the rows of other runs that follow them, few beside
        # all others. And where a search for what set a channel has to stop.
        indexes = [
            models.Index(
                fields=["parent"],
                name="checkpoint_forked_from",
                condition=models.Q(source="fork"),
            ),
            models.Index(
                fields=["run", "seq"],
                name="checkpoint_unlisted",
                condition=models.Q(source__in=[source.value for source in UNLISTED]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.run_id}:at-{self.seq}"
