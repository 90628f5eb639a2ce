"""Endpoints of approvals: requests, their decisions, and signatures over a run.
`approvals.urls` has their addresses.

Views are plain; authentication, problems and idempotency come from the project that
mounts them.
"""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals import inbox, permissions, reviews
from approvals.api.base import Query, describe, page_schema, paginate, person, read_body
from approvals.api.serializers import (
    DecisionLine,
    DecisionsBody,
    ReceiptOut,
    RequestLine,
    RequestOut,
    RequestsQuery,
)
from approvals.exported_receipt import export_receipt, find_exportable
from approvals.models import ApprovalRequest, Decision
from approvals.people.sightings import note_read_request
from approvals.visible_requests import NEWEST_FIRST, VisibleRequests, of_visible_runs
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import UnknownThing


def visible_request(user: Any, request_id: UUID) -> ApprovalRequest:
    """Return the request, with its run. Raises `UnknownThing` also where the caller may
    not see it.
    """
    named = ApprovalRequest.objects.filter(id=request_id)
    request = inbox.listed(of_visible_runs(user, named)).first()
    if request is None:
        raise UnknownThing(f"there is no request {request_id}", request=str(request_id))
    return request


class Requests(APIView):
    """Approval requests of the runs that the caller may see; with `waiting=me` the open
    ones that wait for the caller.
    """

    @describe(
        operation_id="requests_list",
        parameters=[RequestsQuery],
        responses=page_schema(RequestLine),
    )
    def get(self, request: Request) -> Response:
        query = read_body(RequestsQuery, request.query_params)
        caller = person(request)
        bounds = {}
        if "run" in query:
            bounds["run"] = permissions.visible_run(caller, query["run"]).id
        if query.get("graph"):
            bounds["graph"] = query["graph"]
        # What waits for a person comes oldest first, everything else newest first.
        if "waiting" in query:
            waiting = inbox.WaitingRequests(caller, bounds)
            return paginate(request, waiting, RequestLine, by=("opened_at", "id"))
        rows: Any = VisibleRequests(caller, bounds)
        if "run" in query:
            # The caller may see this run, so all of its requests.
            rows = inbox.listed(ApprovalRequest.objects.filter(**bounds))
        return paginate(request, rows, RequestLine, by=NEWEST_FIRST)


class OneRequest(APIView):
    """One request: its question, and each write with its current value and its verdicts
    so far.
    """

    @describe(responses=RequestOut)
    def get(self, request: Request, request_id: UUID) -> Response:
        shown = visible_request(person(request), request_id)
        answer = RequestOut(shown, context={"request": request}).data
        # Whoever asks only whether it is there reads nothing.
        is_read = request.method == "GET" and "considered" in shown.policy
        if is_read and _may_be_for_deciding(request):
            note_read_request(person(request), shown)
        return Response(answer)


def _may_be_for_deciding(request: Request) -> bool:
    """Return whether what this caller reads is read to be decided: by a person who is
    signed in, or with a token that may sign.
    """
    token: Any = request.auth
    return token is None or "decide" in token.scopes


class RequestDecisions(APIView):
    """Sign writes of one request as one act."""

    scopes = {"POST": "decide"}

    @describe(request=DecisionsBody, responses=ReceiptOut)
    def post(self, request: Request, request_id: UUID) -> Response:
        posted = read_body(DecisionsBody, request.data)["decisions"]
        # An unknown request and an invisible one get the same answer.
        visible_request(person(request), request_id)
        receipt = reviews.decide(request_id, posted, by=person(request))
        return Response(ReceiptOut(receipt).data)


class Signatures(APIView):
    """Sign writes of several requests of a run as one act."""

    scopes = {"POST": "decide"}

    @describe(request=DecisionsBody, responses=ReceiptOut)
    def post(self, request: Request, run: str) -> Response:
        posted = read_body(DecisionsBody, request.data)["decisions"]
        run_id = permissions.visible_run(person(request), run).id
        receipt = reviews.sign(run_id, posted, by=person(request))
        return Response(ReceiptOut(receipt).data)


class RunDecisions(APIView):
    """The decisions made in a run, in the order of its log."""

    @describe(parameters=[Query], responses=page_schema(DecisionLine))
    def get(self, request: Request, run: str) -> Response:
        read_body(Query, request.query_params)
        visible_run = permissions.visible_run(person(request), run)
        rows = Decision.objects.filter(run=visible_run.id)
        return paginate(
            request,
            rows,
            DecisionLine,
            by=("event_seq", "id"),
            protection=protection_of(visible_run),
        )


class DecisionReceipt(APIView):
    """One decision as a small signed file, a DSSE envelope: for the person who signed
    it, and for auditors who see the run.
    """

    scopes = {"GET": "export", "HEAD": "export"}

    @describe(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, decision: UUID) -> HttpResponse:
        file = export_receipt(decision, by=person(request))
        name = f"receipt-{decision}.json"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return HttpResponse(file, content_type="application/json", headers=headers)

    @describe(exclude=True)
    def head(self, request: Request, decision: UUID) -> HttpResponse:
        """Return whether the caller may export it; nothing is exported."""
        # An export leaves a line in the audit log; a HEAD must not.
        find_exportable(decision, by=person(request))
        return HttpResponse(content_type="application/json")
