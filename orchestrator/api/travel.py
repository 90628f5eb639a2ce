"""Endpoints of going back in time: what it would do, fork, replay, rewind, and forks of many runs at once."""

from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, page_schema, paginate, person, read_body
from approvals.permissions import may, visible_checkpoint, visible_run
from checkpoints.core.ids import unknown_thing
from checkpoints.models import Job
from orchestrator import runs
from orchestrator.api.serializers import RunOut
from orchestrator.api.travel_body import (
    BulkForkBody,
    BulkForkOut,
    BulkForkResultOut,
    BulkForkResultsQuery,
    BulkPlanOut,
    ForkBody,
    HowBody,
    PlanOut,
    ReplayBody,
    ReplayOut,
    RewindBody,
)
from orchestrator.models import BulkFork
from orchestrator.runs.bulk_fork import counts_of
from orchestrator.runs.start_for_user import require

MOST_PLANNED = 200
"""Runs that a dry run looks at while somebody waits for the answer."""


class TravelPlan(APIView):
    """What a fork, replay or rewind from this checkpoint would do. Nothing is written."""

    scopes = {"POST": "read"}

    @describe(request=HowBody, responses=PlanOut)
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(HowBody, request.data)
        found = visible_checkpoint(person(request), checkpoint)
        return Response(runs.plan(found.id, body.pop("how"), **body).to_json())


class Fork(APIView):
    """A new run from this checkpoint; its origin stays as it is."""

    scopes = {"POST": "steer"}

    @describe(request=ForkBody, responses={201: RunOut})
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(ForkBody, request.data)
        found = visible_checkpoint(person(request), checkpoint)
        require(person(request), "steer_run", run=found.run_id)
        return Response(RunOut(runs.fork(found.id, **body, by=person(request))).data, status=201)


class Replay(APIView):
    """A new run from this checkpoint that acts on nothing and asks nobody: recorded outcomes are taken."""

    scopes = {"POST": "steer"}

    @describe(request=ReplayBody, responses={201: RunOut})
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(ReplayBody, request.data)
        found = visible_checkpoint(person(request), checkpoint)
        require(person(request), "steer_run", run=found.run_id)
        return Response(RunOut(runs.replay(found.id, **body, by=person(request))).data, status=201)


class ReplayReport(APIView):
    """What a replay came to: what it reused, and where it went another way."""

    @describe(responses=ReplayOut)
    def get(self, request: Request, run: str) -> Response:
        return Response(runs.replay_report(visible_run(person(request), run).id))


class Rewind(APIView):
    """The same run on a new line from an older checkpoint of its own."""

    scopes = {"POST": "steer"}

    @describe(request=RewindBody, responses=RunOut)
    def post(self, request: Request, run: str) -> Response:
        body: dict[str, Any] = read_body(RewindBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "steer_run", run=found.id)
        point = visible_checkpoint(person(request), body.pop("checkpoint"))
        return Response(RunOut(runs.rewind(found.id, point.id, **body, by=person(request))).data)


class BulkForks(APIView):
    """Fork many runs with one patch. A job does it; with `dry_run` the plans are counted by kind, and nothing is
    written.
    """

    scopes = {"POST": "steer"}

    @describe(operation_id="forks_create", request=BulkForkBody, responses={202: BulkForkOut, 200: BulkPlanOut})
    def post(self, request: Request) -> Response:
        body = read_body(BulkForkBody, request.data)
        require(person(request), "steer_run")
        # It speaks of runs that nobody has named, so who begins it must see all of them.
        require(person(request), "view_run")
        points = body.pop("checkpoints", None)
        if points is not None:
            points = [visible_checkpoint(person(request), one).id for one in points]
        if body.pop("dry_run"):
            plan = runs.fork_many(points, **body, by=person(request), dry_run=True, most=MOST_PLANNED)
            return Response(plan.to_json())
        job = runs.fork_many(points, **body, by=person(request))
        return Response(_told(BulkFork.objects.get(id=job.id)), status=202)


class OneBulkFork(APIView):
    """How far a bulk fork is."""

    @describe(responses=BulkForkOut)
    def get(self, request: Request, fork: UUID) -> Response:
        return Response(_told(_visible(request, fork)))


class BulkForkResults(APIView):
    """What became of each run of a bulk fork, in their order."""

    @describe(parameters=[BulkForkResultsQuery], responses=page_schema(BulkForkResultOut))
    def get(self, request: Request, fork: UUID) -> Response:
        wanted = read_body(BulkForkResultsQuery, request.query_params)
        rows = _visible(request, fork).results.all()
        return paginate(request, rows.exclude(code="") if wanted["refused"] else rows, BulkForkResultOut, by=("id",))


def _visible(request: Request, id: UUID) -> BulkFork:
    """Raises `UnknownThing` also for whoever does not see all runs."""
    found = BulkFork.objects.filter(id=id).first() if may(person(request), "view_run") else None
    if found is None:
        raise unknown_thing("bulk fork", id)
    return found


def _told(bulk: BulkFork) -> dict[str, Any]:
    job = Job.objects.filter(id=bulk.id).only("status", "error").first()
    counts = counts_of(bulk)
    # A job that is done is removed after a month; what it did stays.
    return {"id": str(bulk.id), "status": job.status if job else "done", "error": job.error if job else "", **counts}
