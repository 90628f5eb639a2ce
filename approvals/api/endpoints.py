"""Endpoints of approvals: requests, their decisions, and signatures over a run. `approvals.urls` says where they stand.

Views are plain; authentication, problems and idempotency come from whoever mounts them.
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
from approvals.api.serializers import DecisionLine, DecisionsBody, ReceiptOut, RequestLine, RequestOut, RequestsQuery
from approvals.exported_receipt import export_receipt, find_exportable
from approvals.models import ApprovalRequest, Decision
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import UnknownThing


def visible_request(user: Any, request_id: UUID) -> ApprovalRequest:
    """The request, with its run. Raises `UnknownThing` also where the caller may not see it."""
    found = inbox.visible_requests(user).filter(id=request_id).first()
    if found is None:
        raise UnknownThing(f"there is no request {request_id}", request=str(request_id))
    return found


class Requests(APIView):
    """Approval requests of the runs that the caller may see; with `waiting=me` the open ones that name him."""

    @describe(operation_id="requests_list", parameters=[RequestsQuery], responses=page_schema(RequestLine))
    def get(self, request: Request) -> Response:
        wanted = read_body(RequestsQuery, request.query_params)
        mine = "waiting" in wanted
        rows = inbox.waiting_for(person(request)) if mine else inbox.visible_requests(person(request))
        if "run" in wanted:
            rows = rows.filter(run=permissions.visible_run(person(request), wanted["run"]).id)
        if "graph" in wanted:
            rows = rows.filter(graph=wanted["graph"])
        return paginate(request, rows, RequestLine, by=("opened_at", "id") if mine else ("-opened_at", "-id"))


class OneRequest(APIView):
    """One request: what is asked, each write with its current value and its verdicts so far."""

    @describe(responses=RequestOut)
    def get(self, request: Request, request_id: UUID) -> Response:
        found = visible_request(person(request), request_id)
        return Response(RequestOut(found, context={"request": request}).data)


class RequestDecisions(APIView):
    """Sign writes of one request as one act."""

    scopes = {"POST": "decide"}

    @describe(request=DecisionsBody, responses=ReceiptOut)
    def post(self, request: Request, request_id: UUID) -> Response:
        posted = read_body(DecisionsBody, request.data)["decisions"]
        visible_request(person(request), request_id)
        return Response(ReceiptOut(reviews.decide(request_id, posted, by=person(request))).data)


class Signatures(APIView):
    """Sign writes of several requests of a run as one act."""

    scopes = {"POST": "decide"}

    @describe(request=DecisionsBody, responses=ReceiptOut)
    def post(self, request: Request, run: str) -> Response:
        posted = read_body(DecisionsBody, request.data)["decisions"]
        run_id = permissions.visible_run(person(request), run).id
        return Response(ReceiptOut(reviews.sign(run_id, posted, by=person(request))).data)


class RunDecisions(APIView):
    """The decisions made in a run, in the order of its log."""

    @describe(parameters=[Query], responses=page_schema(DecisionLine))
    def get(self, request: Request, run: str) -> Response:
        read_body(Query, request.query_params)
        found = permissions.visible_run(person(request), run)
        rows = Decision.objects.filter(run=found.id)
        return paginate(request, rows, DecisionLine, by=("event_seq", "id"), protection=protection_of(found))


class DecisionReceipt(APIView):
    """One decision as a small signed file, a DSSE envelope: for who signed it, and for auditors who see the run."""

    scopes = {"GET": "export", "HEAD": "export"}

    @describe(responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, decision: UUID) -> HttpResponse:
        file = export_receipt(decision, by=person(request))
        named = {"Content-Disposition": f'attachment; filename="receipt-{decision}.json"'}
        return HttpResponse(file, content_type="application/json", headers=named)

    @describe(exclude=True)
    def head(self, request: Request, decision: UUID) -> HttpResponse:
        """Whether one may; nothing is exported."""
        find_exportable(decision, by=person(request))
        return HttpResponse(content_type="application/json")
