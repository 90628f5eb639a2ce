"""Endpoints of what people do about a request beside signing it. `approvals.urls` has
their addresses.
"""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals import reviews
from approvals.api.base import Query, describe, page_schema, paginate, person, read_body
from approvals.api.endpoints import visible_request
from approvals.api.serializers import (
    AssignBody,
    CommentBody,
    CommentOut,
    DelegationOut,
    EmptyBody,
    RequestOut,
    StandingPolicyOut,
)
from approvals.models import ApprovalRequest, RequestComment
from approvals.people.accounts import active_account
from approvals.people.claims import holds_claim
from approvals.people.standing_in import delegations_of, seen_delegation
from approvals.people.standing_policies import (
    seen_standing_policy,
    standing_policies_of,
)
from approvals.permissions import may_see_run
from checkpoints.sealing.sealed_rows import protection_of


def _request_as_it_is(request: Request, request_id: UUID) -> Response:
    """Return the answer with the request as it stands after the act."""
    shown = visible_request(person(request), request_id)
    return Response(RequestOut(shown, context={"request": request}).data)


def _sees(request: Request, request_id: UUID) -> bool:
    """Return whether the caller may see the run of a request that there is."""
    claimed = ApprovalRequest.objects.select_related("run").get(id=request_id)
    return may_see_run(person(request), claimed.run)


class RequestClaimed(APIView):
    """Take a request, so that others see who is at it; under an exclusive gate nobody
    else signs while it lasts.
    """

    scopes = {"POST": "decide"}

    @describe(request=EmptyBody, responses=RequestOut)
    def post(self, request: Request, request_id: UUID) -> Response:
        read_body(EmptyBody, request.data)
        # An unknown request and an invisible one get the same answer.
        visible_request(person(request), request_id)
        reviews.claim(request_id, by=person(request))
        return _request_as_it_is(request, request_id)


class RequestReleased(APIView):
    """Give back a request that you have taken; stewards give back any. People who may
    no longer see it give it back all the same, and get an empty answer.
    """

    scopes = {"POST": "decide"}

    @describe(request=EmptyBody, responses={200: RequestOut, 204: None})
    def post(self, request: Request, request_id: UUID) -> Response:
        read_body(EmptyBody, request.data)
        is_own = holds_claim(person(request), request_id)
        if not is_own:
            visible_request(person(request), request_id)
        reviews.release(request_id, by=person(request))
        if is_own and not _sees(request, request_id):
            return Response(status=204)
        return _request_as_it_is(request, request_id)


class RequestAssigned(APIView):
    """Hand a request to a person who may decide it: one that you have taken, or any as
    a steward.
    """

    scopes = {"POST": "decide"}

    @describe(request=AssignBody, responses=RequestOut)
    def post(self, request: Request, request_id: UUID) -> Response:
        posted = read_body(AssignBody, request.data)
        visible_request(person(request), request_id)
        to = active_account(posted["to"], "to")
        reviews.assign(
            request_id, to=to, by=person(request), comment=posted.get("comment", "")
        )
        return _request_as_it_is(request, request_id)


class RequestComments(APIView):
    """The comments on a request, the oldest first, and writing one."""

    scopes = {"POST": "decide"}

    @describe(
        operation_id="request_comments_list",
        parameters=[Query],
        responses=page_schema(CommentOut),
    )
    def get(self, request: Request, request_id: UUID) -> Response:
        read_body(Query, request.query_params)
        shown = visible_request(person(request), request_id)
        rows = RequestComment.objects.filter(request=shown).select_related("run")
        # These may be large, and would be read once for each comment.
        rows = rows.defer("run__input", "run__error", "run__progress")
        return paginate(
            request,
            rows,
            CommentOut,
            by=("at", "id"),
            protection=protection_of(shown.run),
        )

    @describe(request=CommentBody, responses={201: CommentOut})
    def post(self, request: Request, request_id: UUID) -> Response:
        posted = read_body(CommentBody, request.data)
        row = reviews.comment(
            request_id,
            posted["text"],
            by=person(request),
            write=posted.get("write"),
        )
        return Response(CommentOut(row).data, status=201)


class Delegations(APIView):
    """The delegations of your right to review, and those by which you decide for
    others. They are made on the page of the account alone, which asks for the password.
    """

    @describe(
        operation_id="delegations_list",
        parameters=[Query],
        responses=page_schema(DelegationOut),
    )
    def get(self, request: Request) -> Response:
        read_body(Query, request.query_params)
        rows = delegations_of(person(request))
        return paginate(request, rows, DelegationOut, by=("-made_at", "-id"))


class DelegationRevoked(APIView):
    """End a delegation at once: yours, one to you, or any as a steward."""

    scopes = {"POST": "decide"}

    def require_rights(self, request: Request, delegation: UUID) -> None:
        seen_delegation(delegation, person(request))

    @describe(request=EmptyBody, responses=DelegationOut)
    def post(self, request: Request, delegation: UUID) -> Response:
        read_body(EmptyBody, request.data)
        row = reviews.revoke_delegation(delegation, by=person(request))
        return Response(DelegationOut(row).data)


class StandingPolicies(APIView):
    """Your standing policies; all for a steward. They are made on a page alone, which asks
    for the password.
    """

    @describe(
        operation_id="standing_policies_list",
        parameters=[Query],
        responses=page_schema(StandingPolicyOut),
    )
    def get(self, request: Request) -> Response:
        read_body(Query, request.query_params)
        rows = standing_policies_of(person(request))
        return paginate(request, rows, StandingPolicyOut, by=("-made_at", "-id"))


class StandingPolicyDetail(APIView):
    """One standing policy: yours, or any as a steward."""

    @describe(responses=StandingPolicyOut)
    def get(self, request: Request, standing_policy: UUID) -> Response:
        row = seen_standing_policy(standing_policy, person(request))
        return Response(StandingPolicyOut(row).data)


class StandingPolicyRevoked(APIView):
    """Revoke a standing policy at once: yours, or any as a steward."""

    scopes = {"POST": "decide"}

    def require_rights(self, request: Request, standing_policy: UUID) -> None:
        seen_standing_policy(standing_policy, person(request))

    @describe(request=EmptyBody, responses=StandingPolicyOut)
    def post(self, request: Request, standing_policy: UUID) -> Response:
        read_body(EmptyBody, request.data)
        row = reviews.revoke_standing_policy(standing_policy, by=person(request))
        return Response(StandingPolicyOut(row).data)
