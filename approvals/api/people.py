"""Endpoints of what people do about a request beside signing it. `approvals.urls` has
their addresses.
"""

from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals import reviews
from approvals.api.base import describe, person, read_body
from approvals.api.endpoints import visible_request
from approvals.api.serializers import AssignBody, EmptyBody, RequestOut
from orchestrator.engine.errors import InvalidValue


def _request_as_it_is(request: Request, request_id: UUID) -> Response:
    """Return the answer with the request as it stands after the act."""
    shown = visible_request(person(request), request_id)
    return Response(RequestOut(shown, context={"request": request}).data)


def active_account(name: str, path: str) -> Any:
    """Return the active account of a name. Raises `InvalidValue`."""
    accounts = get_user_model()
    named = accounts._default_manager.filter(
        **{accounts.USERNAME_FIELD: name, "is_active": True}
    )
    account = named.first()
    if account is None:
        raise InvalidValue(f"there is no user {name}", path=path)
    return account


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
    """Give back a request that you have taken; stewards give back any."""

    scopes = {"POST": "decide"}

    @describe(request=EmptyBody, responses=RequestOut)
    def post(self, request: Request, request_id: UUID) -> Response:
        read_body(EmptyBody, request.data)
        visible_request(person(request), request_id)
        reviews.release(request_id, by=person(request))
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
        reviews.assign(request_id, to=to, by=person(request))
        return _request_as_it_is(request, request_id)
