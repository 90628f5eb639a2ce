"""Endpoint that re-opens a request under the policy that its graph has now."""

from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Body, describe, person, read_body
from approvals.api.endpoints import visible_request
from approvals.api.serializers import RequestOut
from checkpoints.db.clock import read_now
from orchestrator.runs.reopenings import LONGEST_REASON, changes_of_reopening, reopen


class ReopenBody(Body):
    """Why a request is re-opened: kept in the log."""

    reason = serializers.CharField(max_length=LONGEST_REASON)


class ReopeningOut(serializers.Serializer[object]):
    """The differences between the policy of a request and that of its graph now."""

    changes = serializers.ListField(child=serializers.CharField())


class RequestReopened(APIView):
    """Re-open a request: its signatures no longer count, and people are asked again
    under the policy that its graph has now. Stewards may. GET says what would change.
    """

    scopes = {"GET": "read", "POST": "decide"}

    @describe(responses=ReopeningOut)
    def get(self, request: Request, request_id: UUID) -> Response:
        by = person(request)
        row = visible_request(by, request_id)
        changes = changes_of_reopening(row, at=read_now())
        answer = {"changes": changes}
        return Response(answer)

    @describe(
        request=ReopenBody,
        responses={201: RequestOut},
    )
    def post(self, request: Request, request_id: UUID) -> Response:
        posted = read_body(ReopenBody, request.data)
        by = person(request)
        # An unknown request and an invisible one get the same answer.
        visible_request(by, request_id)
        reason = posted["reason"]
        opened = reopen(request_id, by=by, reason=reason)
        shown = visible_request(by, opened.id)
        context = {"request": request}
        answer = RequestOut(shown, context=context)
        return Response(answer.data, status=201)
