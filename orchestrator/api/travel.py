"""Endpoints of time travel besides its verbs: plans, the report of a replay, and forks
of many runs at once.
"""

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
from orchestrator.api.travel_body import (
    BulkForkBody,
    BulkForkOut,
    BulkForkResultOut,
    BulkForkResultsQuery,
    BulkPlanOut,
    HowBody,
    PlanOut,
    ReplayOut,
)
from orchestrator.models import BulkFork
from orchestrator.runs.start_for_user import require
from orchestrator.travel.bulk_fork import counts_of

MOST_PLANNED = 200
"""The number of runs that a dry run examines before it answers."""


class TravelPlan(APIView):
    """The plan of a fork, replay or rewind from this checkpoint. Nothing is written."""

    # It is posted for its body alone.
    scopes = {"POST": "read"}

    @describe(request=HowBody, responses=PlanOut)
    def post(self, request: Request, checkpoint: str) -> Response:
        body = read_body(HowBody, request.data)
        departure = visible_checkpoint(person(request), checkpoint)
        plan = runs.plan(departure.id, body.pop("how"), **body)
        return Response(plan.to_json())


class ReplayReport(APIView):
    """The report of a replay: what it reused, and where it took another way."""

    @describe(responses=ReplayOut)
    def get(self, request: Request, run: str) -> Response:
        replay = visible_run(person(request), run)
        return Response(runs.replay_report(replay.id))


class BulkForks(APIView):
    """Fork many runs with one patch. A job does it; with `dry_run` the plans are
    counted by kind, and nothing is written.
    """

    scopes = {"POST": "steer"}

    def require_rights(self, request: Request) -> None:
        caller = person(request)
        require(caller, "steer_run")
        # It reports on runs that the request does not name, so the caller must be
        # allowed to see all of them.
        require(caller, "view_run")

    @describe(
        operation_id="forks_create",
        request=BulkForkBody,
        responses={202: BulkForkOut, 200: BulkPlanOut},
    )
    def post(self, request: Request) -> Response:
        body = read_body(BulkForkBody, request.data)
        self.require_rights(request)
        caller = person(request)
        checkpoints = body.pop("checkpoints", None)
        if checkpoints is not None:
            checkpoints = [visible_checkpoint(caller, ref).id for ref in checkpoints]
        if body.pop("dry_run"):
            plan = runs.fork_many(
                checkpoints, **body, by=caller, dry_run=True, most=MOST_PLANNED
            )
            return Response(plan.to_json())
        job = runs.fork_many(checkpoints, **body, by=caller)
        return Response(_progress_json(BulkFork.objects.get(id=job.id)), status=202)


class OneBulkFork(APIView):
    """The progress of a bulk fork."""

    @describe(responses=BulkForkOut)
    def get(self, request: Request, fork: UUID) -> Response:
        bulk_fork = _visible_bulk_fork(request, fork)
        return Response(_progress_json(bulk_fork))


class BulkForkResults(APIView):
    """The results of a bulk fork, one for each run, in the order of the runs."""

    @describe(
        parameters=[BulkForkResultsQuery], responses=page_schema(BulkForkResultOut)
    )
    def get(self, request: Request, fork: UUID) -> Response:
        query = read_body(BulkForkResultsQuery, request.query_params)
        rows = _visible_bulk_fork(request, fork).results.all()
        if query["refused"]:
            rows = rows.exclude(code="")
        return paginate(request, rows, BulkForkResultOut, by=("id",))


def _visible_bulk_fork(request: Request, id: UUID) -> BulkFork:
    """Return the bulk fork of that id. Raises `UnknownThing` also for callers who may
    not see all runs.
    """
    bulk_fork = None
    if may(person(request), "view_run"):
        bulk_fork = BulkFork.objects.filter(id=id).first()
    if bulk_fork is None:
        raise unknown_thing("bulk fork", id)
    return bulk_fork


def _progress_json(bulk_fork: BulkFork) -> dict[str, Any]:
    job = Job.objects.filter(id=bulk_fork.id).only("status", "error").first()
    # A job that is done is removed after a month; its results stay.
    return {
        "id": str(bulk_fork.id),
        "status": job.status if job else "done",
        "error": job.error if job else "",
        **counts_of(bulk_fork),
    }
