"""Endpoints of bulk forks: begin one or see what it would do, how far it is, and what became of each run."""

from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Query, page_schema, paginate, person, read_body
from approvals.permissions import may
from checkpoints.core.ids import unknown_thing
from checkpoints.models import Job
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator import runs
from orchestrator.api.checkpoints import visible_checkpoint
from orchestrator.api.travel_body import BulkForkBody, PlanOut
from orchestrator.models import BulkFork, BulkForkResult
from orchestrator.runs.bulk_fork import counts_of
from orchestrator.runs.start_for_user import require

MOST_PLANNED = 200
"""Runs that a dry run looks at while somebody waits for the answer."""


class PlanKindOut(serializers.Serializer[Any]):
    """Runs whose plans have the same lists; the plan is that of the first example."""

    count = serializers.IntegerField()
    examples = serializers.ListField(child=serializers.CharField(), help_text="Ids of runs.")
    plan = PlanOut()


class RefusedOut(serializers.Serializer[Any]):
    """Runs that would be refused for the same reason."""

    count = serializers.IntegerField()
    examples = serializers.ListField(child=serializers.CharField(), help_text="Ids of runs.")
    code = serializers.CharField()
    message = serializers.CharField()


class BulkPlanOut(serializers.Serializer[Any]):
    """A dry run: of `total` runs so many were examined."""

    total = serializers.IntegerField()
    examined = serializers.IntegerField()
    others = serializers.IntegerField(help_text="Runs of further kinds.")
    kinds = PlanKindOut(many=True)
    refusals = RefusedOut(many=True)


class BulkForkOut(serializers.Serializer[Any]):
    """A bulk fork: how far its job is."""

    id = serializers.UUIDField()
    status = serializers.CharField(help_text="That of its job: queued, running, done, failed or cancelled.")
    error = serializers.CharField(allow_blank=True)
    total = serializers.IntegerField()
    forked = serializers.IntegerField()
    refused = serializers.IntegerField()
    waiting = serializers.IntegerField()


class BulkForkResultOut(serializers.ModelSerializer[BulkForkResult]):
    """What became of one run: its fork, or why there is none. Neither: it waits for its turn."""

    message = serializers.SerializerMethodField()

    class Meta:
        model = BulkForkResult
        fields = ["origin", "checkpoint", "fork", "code", "message", "at"]
        read_only_fields = fields

    def get_message(self, row: BulkForkResult) -> str:
        return read_or_reason(row, "message") or ""


class BulkForkResultsQuery(Query):
    """Which results."""

    refused = serializers.BooleanField(required=False, default=False, help_text="Only runs that were refused.")


class BulkForks(APIView):
    """Fork many runs with one patch. A job does it; with `dry_run` the plans are counted by kind, and nothing is
    written.
    """

    scopes = {"POST": "steer"}

    @extend_schema(operation_id="forks_create", request=BulkForkBody, responses={202: BulkForkOut, 200: BulkPlanOut})
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

    @extend_schema(responses=BulkForkOut)
    def get(self, request: Request, fork: UUID) -> Response:
        return Response(_told(_visible(request, fork)))


class BulkForkResults(APIView):
    """What became of each run of a bulk fork, in their order."""

    @extend_schema(parameters=[BulkForkResultsQuery], responses=page_schema(BulkForkResultOut))
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
