"""Requests, writes, decisions and receipts as the API reads and writes them."""

from functools import cached_property
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals import permissions
from approvals.api.base import Body, FaultOut, Query, SealedOut
from approvals.api.request_detail import Slip, slips_of
from approvals.gates.lost_version import refusal_to_sign
from approvals.gates.request_state import policy_of, why_of
from approvals.models import (
    ApprovalRequest,
    Decision,
    Delegation,
    PersonNotice,
    Receipt,
    RequestClaim,
    RequestComment,
    StandingPolicy,
)
from approvals.people.claims import is_exclusive, shown_claim
from approvals.people.comments import LONGEST
from approvals.policies_in_force import BROUGHT_BACK, those_brought_back
from approvals.results.earlier_askings import EffectEnding, endings_of
from approvals.results.effect_results import effect_results
from checkpoints.sealing.seal_fault import SealFault, fault_of, json_of
from checkpoints.sealing.sealed_columns import read_or_reason, read_value
from checkpoints.sealing.sealed_rows import PLAIN, name_of
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.gates.verdicts import EXCLUDED, excludes
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.graphs.tiers import tiers_in

VERDICTS = ("approve", "reject", "edit", "skip")


class DecisionBody(Body):
    """One person's verdict on one write, bound to the hash of the revision they saw."""

    write = serializers.UUIDField()
    hash = serializers.CharField(max_length=64)
    verdict = serializers.ChoiceField(choices=VERDICTS)
    value = serializers.JSONField(
        required=False, help_text="With the verdict edit only."
    )
    reason = serializers.CharField(required=False, allow_blank=True, max_length=10_000)


class DecisionsBody(Body):
    """One act of signing."""

    decisions = DecisionBody(many=True, allow_empty=False)


class RequestsQuery(Query):
    """The filters of a list of requests."""

    waiting = serializers.ChoiceField(choices=["me"], required=False)
    run = serializers.CharField(required=False)
    graph = serializers.CharField(required=False)


class ClaimOut(serializers.Serializer[RequestClaim]):
    """The claim on a request. `until` is null where it lasts until it is released."""

    by = serializers.CharField(source="by_name")
    assigned_by = serializers.CharField(
        source="assigned_name",
        help_text="who handed it to them; empty if they took it themselves",
    )
    at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    exclusive = serializers.SerializerMethodField(
        help_text="nobody else can sign while it lasts"
    )

    def get_exclusive(self, taken: RequestClaim) -> bool:
        return is_exclusive(taken.request)


class TierOut(serializers.Serializer[Any]):
    """A tier of a request: what it does while people have not decided."""

    after = serializers.IntegerField(help_text="seconds from the opening")
    act = serializers.CharField(help_text="remind or escalate")
    to = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        help_text="whom it names; null for those who may decide",
    )
    acted_at = serializers.DateTimeField(
        allow_null=True, help_text="null as long as it has not acted"
    )


class EmptyBody(Body):
    """A body without fields."""


class AssignBody(Body):
    """The person who gets a request: the name of an account; and what is said to them."""

    to = serializers.CharField(max_length=150)
    comment = serializers.CharField(
        required=False, max_length=LONGEST, trim_whitespace=False
    )


class CommentBody(Body):
    """A comment on a request, or on one write of it."""

    text = serializers.CharField(max_length=LONGEST, trim_whitespace=False)
    write = serializers.UUIDField(required=False, allow_null=True)


class CommentOut(SealedOut, serializers.ModelSerializer[RequestComment]):
    """A comment on a request. It decides nothing, and is no part of what is signed.
    `write` is null where it is about the whole request.
    """

    by = serializers.CharField(source="by_name")
    text = serializers.SerializerMethodField(
        help_text="empty if it cannot be decrypted, for which `fault` has the reason"
    )

    class Meta:
        model = RequestComment
        fields = ["id", "request", "write", "text", "by", "at", "fault"]
        read_only_fields = fields

    def get_text(self, row: RequestComment) -> str:
        return self.value_or_none(row, "text") or ""


class DelegationOut(serializers.ModelSerializer[Delegation]):
    """A right to review that one person passed on to another for a time."""

    delegator = serializers.CharField(source="delegator.get_username")
    delegate = serializers.CharField(source="delegate.get_username")
    fault = serializers.SerializerMethodField()

    class Meta:
        model = Delegation
        fields = [
            "id",
            "delegator",
            "delegate",
            "begins_at",
            "ends_at",
            "reason",
            "made_at",
            "revoked_at",
            "fault",
        ]
        read_only_fields = fields

    @extend_schema_field(FaultOut(allow_null=True))
    def get_fault(self, row: Delegation) -> dict[str, Any] | None:
        return json_of(fault_of(row, PLAIN))


class StandingPolicyOut(serializers.ModelSerializer[StandingPolicy]):
    """A policy with which a person allows a gate to sign by itself: its limits, its
    end, and how many of how many writes it has signed.
    """

    by = serializers.CharField(source="by.get_username")
    limits = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="by channel the highest number by its path in the proposed value; "
        "empty for a channel without a limit",
    )
    fault = serializers.SerializerMethodField()

    class Meta:
        model = StandingPolicy
        fields = [
            "id",
            "number",
            "by",
            "graph",
            "gate",
            "limits",
            "begins_at",
            "ends_at",
            "most_uses",
            "uses",
            "reason",
            "made_at",
            "revoked_at",
            "fault",
        ]
        read_only_fields = fields

    @extend_schema_field(FaultOut(allow_null=True))
    def get_fault(self, row: StandingPolicy) -> dict[str, Any] | None:
        fault = fault_of(row, PLAIN)
        if fault is None and row in self._brought_back:
            fault = SealFault(TamperedRow.code_of_class, name_of(row), BROUGHT_BACK)
        return json_of(fault)

    @cached_property
    def _brought_back(self) -> list[StandingPolicy]:
        # A list shows all its rows by one serializer.
        shown: Any = self.instance if self.parent is None else self.parent.instance
        rows = [shown] if isinstance(shown, StandingPolicy) else list(shown)
        return those_brought_back(rows)


class RequestLine(SealedOut, serializers.ModelSerializer[ApprovalRequest]):
    """A request in a list."""

    run_key = serializers.CharField(source="run.key")
    run_status = serializers.CharField(source="run.status")
    title = serializers.SerializerMethodField()
    reviewers = serializers.SerializerMethodField()
    status = serializers.CharField(
        help_text="open, settled, applied, withdrawn or expired"
    )
    writes = serializers.IntegerField()
    on_deadline = serializers.SerializerMethodField(
        help_text="what the deadline does to writes that are open then: reject, "
        "approve or fail; empty without a deadline"
    )
    tiers = serializers.SerializerMethodField()
    claim = serializers.SerializerMethodField()

    class Meta:
        model = ApprovalRequest
        fields = [
            "id",
            "run",
            "run_key",
            "run_status",
            "graph",
            "line",
            "node",
            "visit",
            "index",
            "kind",
            "title",
            "reviewers",
            "quorum",
            "deadline",
            "on_deadline",
            "tiers",
            "status",
            "outcome",
            "writes",
            "opened_at",
            "settled_at",
            "claim",
            "fault",
        ]
        read_only_fields = fields

    def get_title(self, request: ApprovalRequest) -> str:
        return read_or_reason(request, "title") or ""

    def get_on_deadline(self, request: ApprovalRequest) -> str:
        return str(request.policy.get("on_deadline", ""))

    def get_reviewers(self, request: ApprovalRequest) -> list[str]:
        return request.reviewers_now

    @extend_schema_field(TierOut(many=True))
    def get_tiers(self, request: ApprovalRequest) -> list[dict[str, Any]]:
        passed = request.passed_tiers or []
        tiers: list[dict[str, Any]] = []
        for number, tier in enumerate(tiers_in(request.policy)):
            acted_at = passed[number] if number < len(passed) else None
            tiers.append({**tier, "acted_at": acted_at})
        return tiers

    @extend_schema_field(ClaimOut(allow_null=True))
    def get_claim(self, request: ApprovalRequest) -> dict[str, Any] | None:
        taken = shown_claim(request)
        return None if taken is None else dict(ClaimOut(taken).data)


class StandingOut(serializers.Serializer[Any]):
    """The standing policy that signed a decision, with its limits of then."""

    id = serializers.UUIDField(required=False)
    number = serializers.IntegerField(required=False)
    by = serializers.CharField(required=False)
    limits = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()), required=False
    )
    begins = serializers.DateTimeField(required=False)
    ends = serializers.DateTimeField(required=False)


class DecisionLine(SealedOut, serializers.ModelSerializer[Decision]):
    """A decision as it was made: by whom, and the old, the proposed and the final
    value.
    """

    by = serializers.CharField(source="by_name")
    delegator = serializers.CharField(
        source="delegator_name",
        help_text="for whom it was made; empty where it was by their own right",
    )
    old_value = serializers.SerializerMethodField()
    proposed_value = serializers.SerializerMethodField()
    final_value = serializers.SerializerMethodField()
    reason = serializers.SerializerMethodField()
    standing = serializers.SerializerMethodField(
        help_text="the standing policy that signed; empty where none did"
    )

    class Meta:
        model = Decision
        fields = [
            "id",
            "request",
            "receipt",
            "run",
            "line",
            "task",
            "write",
            "position",
            "channel",
            "revision",
            "seen_hash",
            "verdict",
            "old_value",
            "proposed_value",
            "final_value",
            "reason",
            "by",
            "at",
            "event_seq",
            "confirmed_by",
            "delegator",
            "standing",
            "fault",
        ]
        read_only_fields = fields

    @extend_schema_field(StandingOut)
    def get_standing(self, decision: Decision) -> dict[str, Any]:
        return decision.standing

    def get_old_value(self, decision: Decision) -> Any:
        return self.value_or_none(decision, "old_value")

    def get_proposed_value(self, decision: Decision) -> Any:
        return self.value_or_none(decision, "proposed_value")

    def get_final_value(self, decision: Decision) -> Any:
        return self.value_or_none(decision, "final_value")

    def get_reason(self, decision: Decision) -> str:
        return self.value_or_none(decision, "reason") or ""


class VerdictOut(serializers.Serializer[Decision]):
    """A decision beside its write."""

    verdict = serializers.CharField()
    by = serializers.CharField(source="by_name")
    delegator = serializers.CharField(source="delegator_name")
    at = serializers.DateTimeField()
    revision = serializers.IntegerField()
    reason = serializers.SerializerMethodField()

    def get_reason(self, decision: Decision) -> str:
        return read_value(decision, "reason") or ""


class WriteOut(serializers.Serializer[Slip]):
    """A pending write as it is decided. `settled` is approved, rejected or empty."""

    id = serializers.UUIDField(source="row.write")
    task = serializers.CharField(source="row.task")
    position = serializers.IntegerField(source="row.position")
    channel = serializers.CharField(source="row.channel")
    label = serializers.SerializerMethodField()  # type: ignore[assignment]
    value = serializers.JSONField()
    current = serializers.JSONField()
    bound = serializers.BooleanField()
    shows = serializers.JSONField()
    shown = serializers.JSONField()
    unanswered = serializers.SerializerMethodField(
        help_text="people are asked for its value and have not answered: `value` is none"
    )
    revision = serializers.IntegerField(source="row.revision")
    staged_at = serializers.DateTimeField(source="row.staged_at")
    hash = serializers.CharField(source="row.hash")
    settled = serializers.CharField(source="standing.verdict")
    window_end = serializers.DateTimeField(
        allow_null=True,
        help_text="when it may sign by itself unless somebody decides before",
    )
    rejected_with = serializers.UUIDField(
        source="standing.cause",
        allow_null=True,
        help_text="the write whose rejection rejected this one too",
    )
    verdicts = VerdictOut(source="decisions", many=True)
    why_not = serializers.SerializerMethodField(
        help_text="why the caller may not approve or reject this one write"
    )

    def get_label(self, slip: Slip) -> str:
        # In an encrypted run the row's own label holds nothing of the value.
        return str(slip.shown.get("label") or slip.row.label)

    def get_unanswered(self, slip: Slip) -> bool:
        return is_unanswered(slip.shown)

    def get_why_not(self, slip: Slip) -> str:
        user = self.context["request"].user
        # Four eyes: nobody decides on a value that they edited.
        excluded = excludes(self.context["policy"], slip.row.author_id, user.pk)
        return EXCLUDED if excluded else ""


class MayDecide(serializers.Serializer[Any]):
    """The answer to whether the caller may sign, with the reason where not."""

    yes = serializers.BooleanField()
    why_not = serializers.CharField()


class EffectOut(serializers.Serializer[EffectEnding]):
    """The end of one node after a decided request."""

    node = serializers.CharField(source="result.node")
    effect = serializers.CharField(source="result.effect")
    status = serializers.CharField(
        source="result.status",
        help_text="the gravest of: unknown, failed, under way, not yet, not reached, "
        "done",
    )
    counts = serializers.DictField(
        source="result.counts",
        child=serializers.IntegerField(),
        help_text="how many of its tasks ended in which way",
    )
    at = serializers.DateTimeField(source="result.at", allow_null=True)
    error = serializers.CharField()
    is_sound = serializers.BooleanField(
        help_text="false where the rows that say so do not verify"
    )


class RequestOut(RequestLine):
    """One request with its writes."""

    came_of_it = serializers.SerializerMethodField(
        help_text="the effects behind the gate once it is decided, in the order of the "
        "graph's edges"
    )

    facts = serializers.SerializerMethodField()
    why = serializers.SerializerMethodField()
    policy = serializers.JSONField()
    writes = serializers.SerializerMethodField()  # type: ignore[assignment]
    may_decide = serializers.SerializerMethodField()

    class Meta(RequestLine.Meta):
        fields = [
            *RequestLine.Meta.fields,
            "ordinal",
            "input_hash",
            "prepared_from",
            "facts",
            "why",
            "policy",
            "may_decide",
            "came_of_it",
        ]
        read_only_fields = fields

    @extend_schema_field(EffectOut(many=True))
    def get_came_of_it(self, request: ApprovalRequest) -> list[dict[str, Any]]:
        endings = endings_of(request, effect_results([request])[request.id])
        return [dict(EffectOut(ending).data) for ending in endings]

    def get_facts(self, request: ApprovalRequest) -> list[dict[str, Any]]:
        # Unlike a list, one request is shown whole or refused, so a fault is not
        # swallowed.
        return read_value(request, "facts") or []

    def get_why(self, request: ApprovalRequest) -> str:
        return why_of(request)

    @extend_schema_field(WriteOut(many=True))
    def get_writes(self, request: ApprovalRequest) -> list[dict[str, Any]]:
        context = {**self.context, "policy": policy_of(request)}
        # A request is shown whole, so its writes are not paged.
        slips = slips_of(request)
        return [dict(WriteOut(slip, context=context).data) for slip in slips]

    @extend_schema_field(MayDecide)
    def get_may_decide(self, request: ApprovalRequest) -> dict[str, Any]:
        allowed = _allowed_to_decide(request, self.context["request"].user)
        return dict(MayDecide(allowed).data)


def _allowed_to_decide(request: ApprovalRequest, user: Any) -> permissions.Allowed:
    # Reasons that hold for everybody come first.
    closed = permissions.closed(request)
    if closed:
        return permissions.Allowed(False, closed)
    allowed = permissions.may_decide(user, request)
    if not allowed.yes:
        return allowed
    # Looked up last: it reads the installed version of the graph.
    refusal = refusal_to_sign(request.run)
    return permissions.Allowed(False, refusal.message) if refusal else allowed


class ReceiptLine(serializers.Serializer[Any]):
    """The result of one posted decision."""

    write = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment]
    revision = serializers.IntegerField()
    hash = serializers.CharField()
    verdict = serializers.CharField()
    result = serializers.ChoiceField(
        choices=["counted", "kept", "excluded", "came_back", "already"]
    )
    # A stored line has only the facts that its result calls for, so each has a default.
    why = serializers.CharField(default="")
    by = serializers.ListField(child=serializers.CharField(), default=list)
    settled = serializers.CharField(
        default="", help_text="approved or rejected, where this signing settled it"
    )
    signatures = serializers.IntegerField(
        default=0, help_text="how many count for it, with this one"
    )
    needed = serializers.IntegerField(
        default=0, help_text="how many approvals it needs"
    )
    delegator = serializers.CharField(default="", help_text="for whom it was made")


class ReceiptOut(serializers.ModelSerializer[Receipt]):
    """The results of one signing."""

    by = serializers.CharField(source="by.get_username")
    lines = ReceiptLine(many=True)

    class Meta:
        model = Receipt
        fields = ["id", "run", "by", "at", "lines"]
        read_only_fields = fields


class ReadNoticesBody(Body):
    """The number of the newest notice that was read; all older ones are read too."""

    until = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


class UnreadOut(serializers.Serializer[Any]):
    """How many notices are unread; 100 stands for more than 99."""

    unread = serializers.IntegerField()


class NoticeOut(serializers.ModelSerializer[PersonNotice]):
    """A notice of the caller. If they may no longer see its run, it has no ids, `event`
    and `outcome` are empty, and `visible` is false. What came later has the higher
    `number`.
    """

    number = serializers.IntegerField(source="id")
    event = serializers.SerializerMethodField()
    outcome = serializers.SerializerMethodField()
    visible = serializers.SerializerMethodField()
    run = serializers.SerializerMethodField()
    request = serializers.SerializerMethodField()

    class Meta:
        model = PersonNotice
        fields = [
            "number",
            "event",
            "visible",
            "run",
            "request",
            "outcome",
            "at",
            "read_at",
        ]
        read_only_fields = fields

    def get_visible(self, row: PersonNotice) -> bool:
        return bool(getattr(row, "is_visible", False))

    def get_event(self, row: PersonNotice) -> str:
        return row.event if self.get_visible(row) else ""

    def get_outcome(self, row: PersonNotice) -> str:
        return row.outcome if self.get_visible(row) else ""

    def get_run(self, row: PersonNotice) -> str | None:
        return str(row.run) if self.get_visible(row) else None

    def get_request(self, row: PersonNotice) -> str | None:
        is_shown = self.get_visible(row) and row.request is not None
        return str(row.request) if is_shown else None
