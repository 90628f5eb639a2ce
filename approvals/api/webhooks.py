"""Endpoints of webhooks: listing, adding and removing them, what was sent, and sending
it again. For people who manage webhooks; for everybody else there are none.
"""

from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import (
    Body,
    Query,
    describe,
    page_schema,
    paginate,
    person,
    read_body,
)
from approvals.models import Envelope, Webhook, WebhookDelivery
from approvals.notice_rows import EVENTS
from approvals.webhooks import verbs as webhooks
from approvals.webhooks.address import LONGEST_URL
from orchestrator.engine.errors import UnknownThing


class WebhookBody(Body):
    """A new webhook."""

    url = serializers.CharField(max_length=LONGEST_URL)
    events = serializers.ListField(
        child=serializers.ChoiceField(choices=EVENTS),
        required=False,
        help_text="Empty for all.",
    )
    graphs = serializers.ListField(
        child=serializers.CharField(max_length=webhooks.LONGEST_NAME),
        required=False,
        max_length=webhooks.MOST_GRAPHS,
        help_text="Names; empty for all.",
    )
    envelope = serializers.ChoiceField(
        choices=Envelope.values,
        required=False,
        help_text="The form of its messages; standard unless set.",
    )


class WebhookOut(serializers.ModelSerializer[Webhook]):
    """A webhook, without its secret."""

    events = serializers.ListField(child=serializers.CharField())
    graphs = serializers.ListField(child=serializers.CharField())
    envelope = serializers.CharField(help_text="standard or cloudevents")

    class Meta:
        model = Webhook
        fields = ["id", "url", "events", "graphs", "envelope", "active", "at"]
        read_only_fields = fields


class AddedWebhookOut(serializers.Serializer[Any]):
    """A webhook that was just added, with its secret, which is shown this once."""

    webhook = WebhookOut()
    secret = serializers.CharField(
        required=False,
        help_text="`whsec_` and its bytes in base64. The answer to a repeated "
        "`Idempotency-Key` lacks it.",
    )


class DeliveryOut(serializers.ModelSerializer[WebhookDelivery]):
    """A notice on its way to a webhook. `code` is the status that the receiver answered
    last, `error` says why it failed.
    """

    event = serializers.CharField(source="notice.event")
    run = serializers.UUIDField(source="notice.run", allow_null=True)
    request = serializers.UUIDField(source="notice.request", allow_null=True)
    status = serializers.CharField(help_text="waiting, delivered or given_up")

    class Meta:
        model = WebhookDelivery
        fields = [
            "id",
            "event",
            "run",
            "request",
            "status",
            "attempts",
            "made_at",
            "due_at",
            "first_at",
            "last_at",
            "code",
            "error",
        ]
        read_only_fields = fields


class Webhooks(APIView):
    """The webhooks of this installation, the newest first."""

    scopes = {"POST": "export"}
    shown_once = ("secret",)

    def require_rights(self, request: Request) -> None:
        _require_manager(request)

    @describe(
        operation_id="webhooks_list",
        parameters=[Query],
        responses=page_schema(WebhookOut),
    )
    def get(self, request: Request) -> Response:
        read_body(Query, request.query_params)
        _require_manager(request)
        rows = webhooks.visible_webhooks(person(request))
        return paginate(request, rows, WebhookOut, by=("-at", "-id"))

    @describe(request=WebhookBody, responses={201: AddedWebhookOut})
    def post(self, request: Request) -> Response:
        """Add a webhook. The answer has its secret, which is never shown again."""
        self.require_rights(request)
        body = read_body(WebhookBody, request.data)
        webhook, secret = webhooks.add_webhook(**body, by=person(request))
        answer = AddedWebhookOut({"webhook": webhook, "secret": secret})
        return Response(answer.data, status=201)


class OneWebhook(APIView):
    """A webhook of this installation."""

    scopes = {"DELETE": "export"}

    @describe(responses={204: None})
    def delete(self, request: Request, webhook: UUID) -> Response:
        """Remove a webhook with all that was sent to it and all that waits."""
        row = webhooks.visible_webhook(person(request), webhook)
        webhooks.remove_webhook(row.id, by=person(request))
        return Response(status=204)


class Deliveries(APIView):
    """The deliveries of a webhook, sent and still to be sent, the newest first."""

    @describe(parameters=[Query], responses=page_schema(DeliveryOut))
    def get(self, request: Request, webhook: UUID) -> Response:
        read_body(Query, request.query_params)
        row = webhooks.visible_webhook(person(request), webhook)
        rows = row.deliveries.select_related("notice")
        return paginate(request, rows, DeliveryOut, by=("-made_at", "-id"))


class SendAgain(APIView):
    """Send a delivery again, under the id that it has."""

    scopes = {"POST": "export"}

    def require_rights(self, request: Request, **_: UUID) -> None:
        _require_manager(request)

    @describe(request=None, responses={202: DeliveryOut})
    def post(self, request: Request, webhook: UUID, delivery: UUID) -> Response:
        row = webhooks.visible_webhook(person(request), webhook)
        read_body(Body, request.data)
        webhooks.send_again(row.id, delivery, by=person(request))
        sent = row.deliveries.select_related("notice").get(id=delivery)
        return Response(DeliveryOut(sent).data, status=202)


def _require_manager(request: Request) -> None:
    if not webhooks.may_manage(person(request)):
        raise UnknownThing("there are no webhooks")
