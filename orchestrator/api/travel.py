"""Endpoints of going back in time: what it would do, fork, replay and rewind."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import person, read_body
from approvals.permissions import visible_run
from orchestrator import runs
from orchestrator.api.checkpoints import visible_checkpoint
from orchestrator.api.serializers import RunOut
from orchestrator.api.travel_body import ForkBody, HowBody, PlanOut, ReplayBody, ReplayOut, RewindBody
from orchestrator.runs.start_for_user import require


class TravelPlan(APIView):
    """What a fork, replay or rewind from this checkpoint would do. Nothing is written."""

    scopes = {"POST": "read"}

    @extend_schema(request=HowBody, responses=PlanOut)
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(HowBody, request.data)
        found = visible_checkpoint(person(request), checkpoint)
        return Response(runs.plan(found.id, body.pop("how"), **body).to_json())


class Fork(APIView):
    """A new run from this checkpoint; its origin stays as it is."""

    scopes = {"POST": "steer"}

    @extend_schema(request=ForkBody, responses={201: RunOut})
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(ForkBody, request.data)
        found = visible_checkpoint(person(request), checkpoint)
        require(person(request), "steer_run")
        return Response(RunOut(runs.fork(found.id, **body, by=person(request))).data, status=201)


class Replay(APIView):
    """A new run from this checkpoint that acts on nothing and asks nobody: recorded outcomes are taken."""

    scopes = {"POST": "steer"}

    @extend_schema(request=ReplayBody, responses={201: RunOut})
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(ReplayBody, request.data)
        found = visible_checkpoint(person(request), checkpoint)
        require(person(request), "steer_run")
        return Response(RunOut(runs.replay(found.id, **body, by=person(request))).data, status=201)


class ReplayReport(APIView):
    """What a replay came to: what it reused, and where it went another way."""

    @extend_schema(responses=ReplayOut)
    def get(self, request: Request, run: str) -> Response:
        return Response(runs.replay_report(visible_run(person(request), run).id))


class Rewind(APIView):
    """The same run on a new line from an older checkpoint of its own."""

    scopes = {"POST": "steer"}

    @extend_schema(request=RewindBody, responses=RunOut)
    def post(self, request: Request, run: str) -> Response:
        body: dict[str, Any] = read_body(RewindBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "steer_run")
        point = visible_checkpoint(person(request), body.pop("checkpoint"))
        return Response(RunOut(runs.rewind(found.id, point.id, **body, by=person(request))).data)
