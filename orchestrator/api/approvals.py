"""Endpoints of approvals: people decide on items that a caller names, with no graph to
write.
"""

from typing import Any

from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, page_schema, paginate, person, read_body
from approvals.visible_runs import VisibleRuns
from approvals.webhooks import callbacks
from checkpoints.models import Run
from orchestrator import asking
from orchestrator.api.approvals_json import (
    ApprovalLine,
    ApprovalsQuery,
    AskBody,
    AskedApprovalOut,
    CallbackOut,
    CancelApprovalBody,
    NewApprovalOut,
    OutcomesBody,
)
from orchestrator.engine.errors import InvalidValue
from orchestrator.graphs import NAME
from orchestrator.models import ApiToken
from orchestrator.runs.start_for_user import require

_COLUMNS = ("id", "key", "label", "status", "line", "created_at", "ended_at")


def shown_to(viewer: Any, approval: asking.Approval) -> Any:
    """Return the JSON of an approval as this user sees it."""
    return AskedApprovalOut(approval, context={"viewer": viewer}).data


class Approvals(APIView):
    """The approvals that the caller may see, newest first; and asking for another."""

    scopes = {"POST": "start"}
    shown_once = ("callback_secret",)

    @describe(
        operation_id="approvals_list",
        parameters=[ApprovalsQuery],
        responses=page_schema(ApprovalLine),
    )
    def get(self, request: Request) -> Response:
        query = read_body(ApprovalsQuery, request.query_params)
        rows = Run.objects.filter(graph=NAME).only(*_COLUMNS)
        visible = VisibleRuns.of(person(request), rows).filter(graph=NAME)
        if "status" in query:
            visible = visible.with_status(query["status"])
        if "key" in query:
            visible = visible.named_by(Q(key=query["key"]))
        return paginate(request, visible, ApprovalLine, by=("-created_at", "-id"))

    def require_rights(self, request: Request) -> None:
        require(person(request), "start_run")

    @describe(request=AskBody, responses={201: NewApprovalOut, 200: NewApprovalOut})
    def post(self, request: Request) -> Response:
        body = read_body(AskBody, request.data)
        # Before the reviewers are looked up, whose refusal says who there is.
        self.require_rights(request)
        key = body.pop("key", None)
        on_behalf_of = body.pop("on_behalf_of", None)
        callback = body.pop("callback", None)
        if (
            body["four_eyes"]
            and isinstance(request.auth, ApiToken)
            and not on_behalf_of
        ):
            raise InvalidValue(
                "a token is no person whom four eyes could exclude, "
                "so it must say on whose behalf it asks",
                path="on_behalf_of",
            )
        new = asking.ask_with_callback(
            asking.Inquiry(**body),
            callback=callback and callback["url"],
            key=key,
            by=person(request),
            on_behalf_of=on_behalf_of,
        )
        context = {"secret": new.secret, "viewer": person(request)}
        answer = NewApprovalOut(new.approval, context=context)
        return Response(answer.data, status=201 if new.is_new else 200)


class OneApproval(APIView):
    """One approval, by id or key: where it stands, and the verdict on each item."""

    @describe(responses=AskedApprovalOut)
    def get(self, request: Request, run: str) -> Response:
        visible = asking.visible_approval(person(request), run)
        return Response(shown_to(person(request), asking.approval_of(visible)))


class ApprovalOutcomes(APIView):
    """Report what came of approved items. Approvers see it. For who asked, and for who may
    reassign requests.
    """

    scopes = {"POST": "start"}

    def require_rights(self, request: Request, run: str) -> None:
        visible = asking.visible_approval(person(request), run)
        require(person(request), "start_run", run=visible.id)
        if visible.started_by_id != person(request).pk:
            require(person(request), "reassign", run=visible.id)

    @describe(request=OutcomesBody, responses=AskedApprovalOut)
    def post(self, request: Request, run: str) -> Response:
        body = read_body(OutcomesBody, request.data)
        self.require_rights(request, run)
        visible = asking.visible_approval(person(request), run)
        approval = asking.report(visible.id, body["outcomes"], by=person(request))
        return Response(shown_to(person(request), approval))


class ApprovalCallback(APIView):
    """The callback of an approval with what was sent to it, the newest first. For who
    named it, and for who manages webhooks.
    """

    @describe(responses=CallbackOut)
    def get(self, request: Request, run: str) -> Response:
        visible = asking.visible_approval(person(request), run)
        callback = callbacks.visible_callback(person(request), visible.id)
        return Response(CallbackOut(callback).data)


class ApprovalCancelled(APIView):
    """Take a question back. What was signed stays on record."""

    scopes = {"POST": "steer"}

    def require_rights(self, request: Request, run: str) -> None:
        visible = asking.visible_approval(person(request), run)
        require(person(request), "steer_run", run=visible.id)

    @describe(request=CancelApprovalBody, responses=AskedApprovalOut)
    def post(self, request: Request, run: str) -> Response:
        body = read_body(CancelApprovalBody, request.data)
        self.require_rights(request, run)
        visible = asking.visible_approval(person(request), run)
        approval = asking.cancel(visible.id, by=person(request), **body)
        return Response(shown_to(person(request), approval))
