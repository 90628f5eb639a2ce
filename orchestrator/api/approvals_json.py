"""Approvals as the API reads and writes them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals.api.base import Body, Query
from approvals.api.serializers import VerdictOut
from approvals.api.webhooks import DeliveryOut
from approvals.models import Webhook
from approvals.results.reports import OutcomeReport
from approvals.webhooks.address import LONGEST_URL
from checkpoints.core.outcome_lines import RESULTS
from checkpoints.models import Run
from orchestrator.api.serializers import StatusList
from orchestrator.asking import Approval
from orchestrator.asking.approval import listed_states
from orchestrator.asking.outcomes import LONGEST_DETAIL
from orchestrator.asking.verbs import LONGEST_TITLE
from orchestrator.engine.graphs.effect import EFFECTS

LONGEST_REASON = 10_000
SHOWN_DELIVERIES = 50
"""The most deliveries that are shown with a callback."""


@extend_schema_field(
    {"oneOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}]}
)
class DeadlineField(serializers.Field[Any, Any, Any, Any]):
    """A moment with a time zone, or seconds from the opening of the request."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, int) and not isinstance(data, bool):
            try:
                return timedelta(seconds=data)
            except OverflowError:
                raise serializers.ValidationError("That is too long.") from None
        moment = None
        if isinstance(data, str):
            try:
                moment = parse_datetime(data)
            except ValueError:
                moment = None
        if moment is None or moment.utcoffset() is None:
            raise serializers.ValidationError(
                "A moment with a time zone, or whole seconds."
            )
        return moment


class NamedFactBody(Body):
    """A figure worth showing beside the items."""

    label = serializers.CharField(max_length=500)  # type: ignore[assignment]
    value = serializers.JSONField(allow_null=True)


class ItemBody(Body):
    """A value that people decide on."""

    id = serializers.CharField(max_length=200)
    value = serializers.JSONField(allow_null=True)
    label = serializers.CharField(  # type: ignore[assignment]
        required=False,
        allow_blank=True,
        max_length=500,
        help_text="Its name for people; the id where it has none.",
    )
    schema = serializers.JSONField(
        required=False,
        allow_null=True,
        help_text="A JSON Schema that an edit must fit, and of which its form is made.",
    )
    effect = serializers.ChoiceField(
        choices=EFFECTS,
        required=False,
        allow_null=True,
        help_text="What acting on it does to the world.",
    )


class CallbackBody(Body):
    """An address, of a host that the settings allow."""

    url = serializers.CharField(max_length=LONGEST_URL)


class AskBody(Body):
    """A question to people about items."""

    title = serializers.CharField(max_length=LONGEST_TITLE)
    facts = NamedFactBody(many=True, required=False, default=list)
    items = ItemBody(many=True, allow_empty=False)
    reviewers = serializers.ListField(
        child=serializers.CharField(max_length=200),
        help_text="user:<name>, group:<name> or perm:<app.codename>",
    )
    quorum = serializers.IntegerField(default=1, min_value=1, max_value=100)
    reject_quorum = serializers.IntegerField(default=1, min_value=1, max_value=100)
    four_eyes = serializers.BooleanField(default=False)
    deadline = DeadlineField(required=False, allow_null=True)
    on_deadline = serializers.ChoiceField(choices=["reject", "fail"], default="reject")
    reports = serializers.BooleanField(
        default=False, help_text="The caller will report what came of it."
    )
    key = serializers.CharField(max_length=200, required=False, allow_null=True)
    on_behalf_of = serializers.CharField(
        required=False, allow_null=True, help_text="A user's name."
    )
    callback = CallbackBody(
        required=False,
        allow_null=True,
        help_text="The address to call when it is decided, expires, is cancelled or fails.",
    )


class CancelApprovalBody(Body):
    """The reason for which a question is taken back."""

    reason = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=LONGEST_REASON
    )


class OutcomeBody(Body):
    """The outcome of one approved item."""

    item = serializers.CharField(max_length=200, help_text="Its id.")
    result = serializers.ChoiceField(choices=RESULTS)
    detail = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=LONGEST_DETAIL
    )
    hash = serializers.CharField(
        max_length=200,
        help_text="That of what was acted on; refused unless it is the signed one.",
    )


class OutcomesBody(Body):
    """The outcomes of approved items."""

    outcomes = OutcomeBody(many=True, allow_empty=False)


class ApprovalsQuery(Query):
    """The filters of a list of approvals."""

    status = StatusList(required=False)
    key = serializers.CharField(required=False)


class ItemDecisionOut(VerdictOut):
    """A decision on an item. Its id leads to its receipt."""

    id = serializers.UUIDField()


class OutcomeOut(serializers.Serializer[OutcomeReport]):
    """The outcome of an item, as the caller reported it."""

    result = serializers.CharField(help_text=", ".join(RESULTS))
    detail = serializers.CharField()
    at = serializers.DateTimeField()
    by = serializers.CharField(help_text="a user's name; empty for the system")


class ItemOut(serializers.Serializer[Any]):
    """An item as it stands. `value` is what was signed once `verdict` is approved."""

    id = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    effect = serializers.CharField(allow_null=True)
    schema = serializers.JSONField(allow_null=True)
    proposed = serializers.JSONField(allow_null=True)
    value = serializers.JSONField(allow_null=True)
    hash = serializers.CharField(
        help_text="what a signature is bound to; empty before people are asked"
    )
    write = serializers.UUIDField(allow_null=True)
    verdict = serializers.CharField(help_text="approved, rejected, or empty: open")
    edited = serializers.BooleanField()
    reason = serializers.CharField(help_text="of the last decision")
    decisions = ItemDecisionOut(many=True)
    outcome = OutcomeOut(
        allow_null=True, help_text="the newest that was reported; null before"
    )


class AskedApprovalOut(serializers.Serializer[Approval]):
    """An approval. `state` is opening, open, approved, rejected, partial, expired,
    cancelled, or the status of a run that has stopped.
    """

    id = serializers.UUIDField(source="run.id")
    key = serializers.CharField(source="run.key")
    state = serializers.CharField()
    title = serializers.CharField(source="question.title")
    facts = serializers.JSONField(source="question.facts")
    items = ItemOut(many=True)
    reviewers = serializers.SerializerMethodField()
    quorum = serializers.IntegerField(source="question.quorum")
    reject_quorum = serializers.IntegerField(source="question.reject_quorum")
    four_eyes = serializers.BooleanField(source="question.four_eyes")
    deadline = serializers.SerializerMethodField()
    on_deadline = serializers.CharField(source="question.on_deadline")
    reports = serializers.BooleanField()
    request = serializers.SerializerMethodField(
        help_text="what people decide on; null before they are asked"
    )
    asked_at = serializers.DateTimeField(source="run.created_at")
    started_by = serializers.SerializerMethodField()
    on_behalf_of = serializers.SerializerMethodField()
    is_own = serializers.SerializerMethodField(
        help_text="whether the account that reads it asked it"
    )

    def get_is_own(self, approval: Approval) -> bool:
        return bool(approval.run.started_by_id == self.context["viewer"].pk)

    def get_reviewers(self, approval: Approval) -> list[str]:
        if approval.request is not None:
            return approval.request.reviewers_now
        return list(approval.question["reviewers"])

    @extend_schema_field({"type": ["string", "null"], "format": "date-time"})
    def get_deadline(self, approval: Approval) -> Any:
        if approval.request is not None:
            return approval.request.deadline
        return approval.question["deadline"]

    @extend_schema_field({"type": ["string", "null"], "format": "uuid"})
    def get_request(self, approval: Approval) -> Any:
        return None if approval.request is None else approval.request.id

    def get_started_by(self, approval: Approval) -> str | None:
        by = approval.run.started_by
        return None if by is None else by.get_username()

    def get_on_behalf_of(self, approval: Approval) -> str | None:
        person = approval.run.on_behalf_of
        return None if person is None else person.get_username()


class NewApprovalOut(AskedApprovalOut):
    """An approval that was asked for. The secret of its callback is shown in the first
    answer alone.
    """

    callback_secret = serializers.CharField(
        required=False,
        help_text="`whsec_` and its bytes in base64; missing where nothing is to be "
        "called, and from each later answer",
    )

    def to_representation(self, approval: Approval) -> Any:
        shown = super().to_representation(approval)
        if self.context["secret"]:
            shown["callback_secret"] = str(self.context["secret"])
        return shown


class CallbackOut(serializers.ModelSerializer[Webhook]):
    """The callback of an approval, without its secret."""

    deliveries = serializers.SerializerMethodField()

    class Meta:
        model = Webhook
        fields = ["id", "url", "active", "at", "deliveries"]
        read_only_fields = fields

    @extend_schema_field(DeliveryOut(many=True))
    def get_deliveries(self, callback: Webhook) -> Any:
        rows = callback.deliveries.select_related("notice")[:SHOWN_DELIVERIES]
        return DeliveryOut(rows, many=True).data


class _ApprovalPage(serializers.ListSerializer[Any]):
    """A page of approvals, whose requests are read together."""

    def to_representation(self, data: Any) -> list[Any]:
        runs: Sequence[Run] = list(data)
        states = listed_states(runs)
        lines = [_Line(run, state) for run, state in zip(runs, states, strict=True)]
        return super().to_representation(lines)


class _Line(NamedTuple):
    """The run of an approval, and its state."""

    run: Run
    state: str


class ApprovalLine(serializers.Serializer[Any]):
    """An approval in a list."""

    id = serializers.UUIDField(source="run.id")
    key = serializers.CharField(source="run.key")
    state = serializers.CharField()
    title = serializers.CharField(source="run.label")
    asked_at = serializers.DateTimeField(source="run.created_at")

    class Meta:
        list_serializer_class = _ApprovalPage
