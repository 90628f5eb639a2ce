"""Policies of how long the checkpoints and runs of one graph are kept, and the keys of
runs that were removed.
"""

from django.core.validators import MinValueValidator
from django.db import models

from checkpoints.models.fields import Sealed

MOST_A_NIGHT = 100_000
"""Checkpoints that a policy removes by itself in a night, where it does not say how
many.
"""


class RetentionPolicy(Sealed):
    """One row for each graph, written by `checkpoints.retention.policies` only. A rule
    that is empty removes nothing.

    A checkpoint goes where it is not among the newest `keep_last` of its run, and,
    where its run's status has an age, is older than that. A run goes whole where its
    status has an age in `remove_runs_after_days` and it ended, or came to stand still,
    longer ago; of runs that wait only a thread, whose newest checkpoint is older.
    """

    IDENTITY = ("graph",)

    graph = models.CharField(max_length=200, unique=True)
    keep_last = models.IntegerField(
        null=True,
        blank=True,
        help_text=(
            "Keeps this many of the newest checkpoints of each run, whatever their age."
        ),
    )
    max_age_days = models.JSONField(
        default=dict,
        blank=True,
        help_text=(
            "{status: days}: checkpoints of runs in that status go when they are older."
        ),
    )
    remove_runs_after_days = models.JSONField(
        default=dict,
        blank=True,
        help_text=(
            "{status: days}: runs go as a whole so long after they came to that status."
        ),
    )
    archive = models.BooleanField(
        default=False,
        help_text="Write a bundle of a run before anything of it is removed.",
    )
    switched_off = models.BooleanField(
        default=False,
        help_text=(
            "Off: it acts once a day, if a steward has confirmed its dry run. On: it "
            "never acts by itself."
        ),
    )
    most_a_night = models.IntegerField(
        "most checkpoints a night",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text=(
            f"By itself it stops when it has removed so many. Empty: {MOST_A_NIGHT:,}."
        ),
    )

    class Meta:
        ordering = ["graph"]
        verbose_name_plural = "retention policies"

    def __str__(self) -> str:
        return f"retention of {self.graph}"

    @property
    def limit(self) -> int:
        """The most checkpoints that it removes by itself in a night."""
        return self.most_a_night or MOST_A_NIGHT


class RemovedKey(models.Model):
    """One row for each chosen key, written in the transaction that removes its run. It
    stays, so that a caller who starts the run once more does not begin the journey,
    with its effects, a second time.
    """

    key = models.CharField(primary_key=True, max_length=200)
    run = models.UUIDField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.key
