"""Requests: one gate reached by one task, which waits for people."""

from django.db import models

from approvals.models.shapes import REQUEST
from checkpoints.core.ids import uuid7
from checkpoints.models import Run
from checkpoints.models.fields import OfTask, Sealed, hash_field
from orchestrator.engine.graphs.tiers import escalated, tiers_in


class RequestStatus(models.TextChoices):
    """The statuses of a request."""

    OPEN = "open", "waits for people"
    SETTLED = "settled", "each write is settled; the run has not applied it yet"
    APPLIED = "applied", "a settlement has applied it"
    WITHDRAWN = "withdrawn", "its line was left, its run cancelled, or it was re-opened"
    EXPIRED = "expired", "closed by its deadline"


class ApprovalRequest(OfTask, Sealed):
    """One gate reached by one task. It carries the policy that it was opened under."""

    PAYLOADS = ("title", "facts", "why")
    SHAPES = REQUEST
    IDENTITY = ("run_id", "id")
    ADDED = ("tier_at", "passed_tiers")
    # These change after the request was sealed; a verifier derives them from the
    # decisions and the log.
    UNSEALED = ("status", "outcome", "settled_at", "settled_seq")
    MOMENT = "opened_at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No index for the run alone, because `request_by_run` begins with it.
    run = models.ForeignKey(
        Run, on_delete=models.PROTECT, related_name="requests", db_index=False
    )
    graph = models.CharField(max_length=200)
    kind = models.CharField(max_length=10, default="writes")
    ordinal = models.IntegerField(
        default=0, help_text="How often the same task had asked before."
    )
    superstep = models.PositiveIntegerField(default=0)
    input_hash = hash_field()
    prepared_from = models.UUIDField(
        null=True,
        blank=True,
        help_text=(
            "The checkpoint with the state that the task read; empty where none was "
            "kept of it."
        ),
    )
    title = models.BinaryField(help_text="Packed canonical JSON: a string.")
    facts = models.BinaryField(help_text="Packed canonical JSON: [{label, value}].")
    why = models.BinaryField(
        default=b"",
        help_text="Packed canonical JSON: the guard's reason, or its error.",
    )
    policy = models.JSONField(
        help_text=(
            "{reviewers, quorum, reject_quorum, four_eyes, all_or_nothing, ...} as "
            "resolved when it was opened."
        )
    )
    policy_hash = models.CharField(max_length=64)
    quorum = models.PositiveSmallIntegerField(default=1)
    writes = models.PositiveIntegerField(
        default=0, help_text="How many writes it asks about."
    )
    status = models.CharField(
        max_length=10, choices=RequestStatus.choices, default=RequestStatus.OPEN
    )
    outcome = models.CharField(max_length=10, blank=True, default="")
    opened_at = models.DateTimeField()
    deadline = models.DateTimeField(null=True, blank=True)
    tier_at = models.DateTimeField(
        null=True, blank=True, help_text="When the next tier of its policy acts."
    )
    passed_tiers = models.JSONField(
        null=True,
        blank=True,
        help_text="[moment at which each tier of its policy has acted, in order].",
    )
    settled_at = models.DateTimeField(null=True, blank=True)
    settled_seq = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text=(
            "Number in the log of the decision that settled it: the order of "
            "settlements."
        ),
    )

    class Meta:
        ordering = ["opened_at", "id"]
        permissions = [
            ("decide", "Can decide what runs ask"),
            ("reassign", "Can reassign and re-open requests"),
            ("view_audit", "Can read the audit log"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["run", "line", "node", "visit", "index", "ordinal"],
                name="approval_request_task",
            ),
        ]
        indexes = [
            models.Index(fields=["run", "status"], name="request_by_run"),
            models.Index(
                # Open requests only, in the order of an inbox: settled ones stay
                # forever, and an index of all would only grow.
                fields=["deadline", "opened_at"],
                name="request_open",
                condition=models.Q(status="open"),
            ),
            models.Index(
                # Retention asks for each checkpoint whether a request needs it.
                fields=["prepared_from"],
                name="request_by_point",
                condition=models.Q(prepared_from__isnull=False),
            ),
            # The lists of people who see all runs.
            models.Index(fields=["-opened_at", "-id"], name="request_by_time"),
            models.Index(
                fields=["graph", "-opened_at", "-id"], name="request_by_graph"
            ),
            # The figures of one gate.
            models.Index(
                fields=["graph", "node", "-opened_at", "-id"], name="request_by_gate"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.graph} {self.task}"

    @property
    def reviewers_now(self) -> list[str]:
        """The principals that may decide it: those of the policy that it was opened
        under, and those whom its tiers have asked too since.
        """
        passed = tiers_in(self.policy)[: len(self.passed_tiers or ())]
        return list(dict.fromkeys([*self.policy["reviewers"], *escalated(passed)]))
