"""Decisions: the verdicts on revisions of writes."""

from typing import Any, ClassVar

from django.conf import settings
from django.db import models

from approvals.models.append_only_row import AppendOnlyRow
from approvals.models.receipt import Receipt
from approvals.models.request import ApprovalRequest
from approvals.models.shapes import is_standing
from approvals.models.verdicts import (
    BY_DEADLINE,
    BY_POLICY,
    BY_STANDING,
    NO_STANDING,
    VERDICTS,
)
from checkpoints.core.ids import uuid7
from orchestrator.engine.gates.verdicts import AUTOMATIC
from orchestrator.engine.graphs.confirmation import WAYS


class Decision(AppendOnlyRow):
    """One person's verdict on one revision of one write, that of the request's deadline
    (`by_deadline`), the system's that it needs none (`not_needed`), or the answer of the
    gate's veto about what they approved (`veto`, `no_veto`) or of its automatic policy
    (`by_policy`, `no_auto`).

    Append-only: the ORM refuses, and so does the database.
    """

    PAYLOADS = ("old_value", "proposed_value", "final_value", "reason")
    SHAPES: ClassVar[dict[str, Any]] = {"reason": str}
    IDENTITY = ("run", "id")
    ADDED = ("confirmed_by", "delegator", "delegator_name", "delegation")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.PROTECT,
        null=True,
        related_name="decisions",
        help_text="Empty where the gate needed nobody, so that nobody was asked.",
    )
    receipt = models.ForeignKey(
        Receipt, on_delete=models.PROTECT, null=True, related_name="decisions"
    )
    run = models.UUIDField()
    line = models.PositiveIntegerField()
    task = models.CharField(max_length=240)
    write = models.UUIDField()
    position = models.PositiveIntegerField()
    channel = models.CharField(max_length=200)
    revision = models.PositiveIntegerField(
        help_text=(
            "The revision it counts for: after an edit, the one that the edit made; 0 "
            "where nothing was held."
        )
    )
    seen_hash = models.CharField(
        max_length=64,
        help_text="The hash of what was on the screen; empty where nobody was asked.",
    )
    verdict = models.CharField(
        max_length=10,
        choices=[(v, v) for v in VERDICTS],
    )
    old_value = models.BinaryField(
        help_text="Packed canonical JSON: the channel's value when it was decided."
    )
    proposed_value = models.BinaryField(help_text="Packed canonical JSON.")
    final_value = models.BinaryField(
        default=b"",
        help_text="Packed canonical JSON; empty where the verdict lets nothing happen.",
    )
    reason = models.BinaryField(
        default=b"", help_text="Packed canonical JSON: a string."
    )
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    by_name = models.CharField(
        max_length=150, help_text="Empty for the system.", blank=True
    )
    at = models.DateTimeField()
    event_seq = models.PositiveBigIntegerField(help_text="Its number in the run's log.")
    checked = models.JSONField(
        null=True,
        help_text=(
            "{reads: [channel]}: what the gate read to say that it needed nobody, or its "
            "veto or its policy (policy: name) to answer; standing: {id, number, by, "
            "limits, begins, ends}, the standing policy that signed; empty where "
            "somebody decided."
        ),
    )
    confirmed_by = models.CharField(
        max_length=10,
        blank=True,
        default="",
        # So that a process of the version before can still insert decisions.
        db_default="",
        choices=[(method, method) for method in ("", *WAYS)],
        help_text="How its person had shown once more who they are; empty if not.",
    )
    delegator = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        db_index=False,
        help_text="Whose right its person used; empty where it was their own.",
    )
    delegator_name = models.CharField(
        max_length=150, blank=True, default="", db_default=""
    )
    delegation = models.UUIDField(
        null=True, help_text="The row by which they had passed it on."
    )

    class Meta:
        ordering = ["run", "event_seq"]
        indexes = [
            models.Index(fields=["write", "event_seq"], name="decision_by_write"),
            models.Index(fields=["run", "event_seq"], name="decision_by_run"),
            # Live pages look at the newest decision to learn whether anything changed.
            models.Index(fields=["-at"], name="decision_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.by_name or 'system'} {self.verdict} {self.task}/{self.position}"

    @property
    def by_deadline(self) -> bool:
        """Return whether the deadline of its request decided, and nobody."""
        is_unsigned = self.by_id is None and self.receipt_id is None
        is_of_request = self.request_id is not None
        return is_unsigned and is_of_request and self.by_name == BY_DEADLINE

    @property
    def by_policy(self) -> bool:
        """Return whether the automatic policy of its gate answered, or a standing policy,
        and nobody.
        """
        is_unsigned = self.by_id is None and self.receipt_id is None
        is_of_request = self.request_id is not None
        names = (f"{BY_POLICY} ", f"{BY_STANDING} ", NO_STANDING)
        return is_unsigned and is_of_request and self.by_name.startswith(names)

    @property
    def signer_name(self) -> str:
        """The name of the person or policy that decided, such as "policy 3 of ada"."""
        if self.standing:
            return f"{self.by_name} of {self.delegator_name}"
        return self.by_name

    @property
    def standing(self) -> dict[str, Any]:
        """Return what is recorded of the standing policy that signed: {id, number, by,
        limits, begins, ends}; empty where none did.
        """
        checked = self.checked
        if self.by_id is not None or not isinstance(checked, dict):
            return {}
        recorded: Any = checked.get("standing")
        # A bundle may bring anything.
        return dict(recorded) if is_standing(recorded) else {}

    @property
    def voter(self) -> int | None:
        """Return whose decision it is, as verdicts count it."""
        if self.by_id is None and self.by_policy:
            return AUTOMATIC
        return self.by_id
