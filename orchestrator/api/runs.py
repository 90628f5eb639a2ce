"""Endpoints of runs: list, start, one, its checkpoints and log, and the verbs that steer it."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import LongPages, Query, describe, page_schema, paginate, person, read_body
from approvals.permissions import visible_run, visible_runs
from checkpoints import lines, retention, timeline
from checkpoints.core.arguments import MOST_WHOLE
from checkpoints.ledger import notes
from checkpoints.models import ErasureRecord, Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.api.serializers import (
    CancelBody,
    CheckpointLine,
    EraseBody,
    ErasureOut,
    EventOut,
    EventsQuery,
    RunLine,
    RunOut,
    RunsQuery,
    SettleBody,
    StartBody,
)
from orchestrator.api.travel_body import ResumeBody
from orchestrator.engine import registry
from orchestrator.engine.errors import InvalidValue
from orchestrator.models import ApiToken
from orchestrator.runs.metadata import PARAMETER, split_filters
from orchestrator.runs.start_for_user import require, start_for

_COLUMNS = [*RunLine.Meta.fields, "started_by__username", "on_behalf_of__username"]


class Runs(APIView):
    """The runs that the caller may see, newest first; and the start of one."""

    scopes = {"POST": "start"}

    @describe(
        operation_id="runs_list",
        parameters=[RunsQuery],
        open_prefixes=[PARAMETER],
        responses=page_schema(RunLine),
    )
    def get(self, request: Request) -> Response:
        parameters, metadata = split_filters(request.query_params.dict())
        wanted = read_body(RunsQuery, parameters)
        rows = _narrowed(visible_runs(person(request)), wanted)
        rows = notes.with_metadata(rows, metadata)
        if "origin" in wanted:
            rows = rows.filter(id__in=lines.forks_of(visible_run(person(request), wanted["origin"]).id))
        rows = rows.select_related("started_by", "on_behalf_of").only(*_COLUMNS)
        return paginate(request, rows, RunLine, by=("-created_at", "-id"))

    @describe(request=StartBody, responses={201: RunOut, 200: RunOut})
    def post(self, request: Request) -> Response:
        body = read_body(StartBody, request.data)
        # Before the graph is looked for: what is not there is told with the names of what is.
        require(person(request), "start_run")
        _require_principal(request, body)
        queued = runs.Queued(body.pop("priority"), body.pop("due_at", None))
        on_behalf_of = body.pop("on_behalf_of", None)
        again = runs.Again(body.pop("resume_failed"), body.pop("restart"), tuple(body.pop("allow_effects")))
        asked = runs.StartRequest(**body, by=person(request), again=again, queued=queued)
        run, new = start_for(asked, on_behalf_of=on_behalf_of)
        return Response(RunOut(run).data, status=201 if new else 200)


def _require_principal(request: Request, body: dict[str, Any]) -> None:
    """A token is nobody: where a gate wants four eyes, it must say for whom the run is started."""
    if not isinstance(request.auth, ApiToken) or body.get("on_behalf_of"):
        return
    gates = [node.gate for node in registry.current(body["graph"]).nodes.values()]
    if any(gate and gate.four_eyes for gate in gates):
        message = "this graph has a gate with four eyes, so a token must say on whose behalf it starts"
        raise InvalidValue(message, path="on_behalf_of")


def _narrowed(rows: "QuerySet[Run]", wanted: dict[str, Any]) -> "QuerySet[Run]":
    filters = {"graph": "graph", "key": "key", "status": "status__in", "since": "created_at__gte"}
    return rows.filter(**{lookup: wanted[name] for name, lookup in filters.items() if name in wanted})


class OneRun(APIView):
    """One run, by id or key."""

    @describe(responses=RunOut)
    def get(self, request: Request, run: str) -> Response:
        return Response(RunOut(visible_run(person(request), run)).data)


class RunCheckpoints(APIView):
    """The kept checkpoints of a run, newest first, without their states; by `metadata.<name>` those that have it."""

    @describe(parameters=[Query], open_prefixes=[PARAMETER], responses=page_schema(CheckpointLine))
    def get(self, request: Request, run: str) -> Response:
        parameters, metadata = split_filters(request.query_params.dict())
        read_body(Query, parameters)
        found = visible_run(person(request), run)
        rows = notes.checkpoints_with_metadata(found.id, timeline.checkpoint_lines(found), metadata)
        return paginate(request, rows, CheckpointLine, by=("-seq",), protection=protection_of(found))


class RunEvents(APIView):
    """The log of a run from a line on, in order."""

    @describe(parameters=[EventsQuery], responses=page_schema(EventOut))
    def get(self, request: Request, run: str) -> Response:
        after = read_body(EventsQuery, request.query_params)["after"]
        found = visible_run(person(request), run)
        rows = timeline.events(found.id, after=min(after, MOST_WHOLE))
        return paginate(request, rows, EventOut, by=("seq",), pages=LongPages, protection=protection_of(found))


class Resume(APIView):
    """Queue a failed run again, or one that stopped before an effect that needs a yes; with a patch, on a new line."""

    scopes = {"POST": "steer"}

    @describe(request=ResumeBody, responses=RunOut)
    def post(self, request: Request, run: str) -> Response:
        body = read_body(ResumeBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "steer_run", run=found.id)
        return Response(RunOut(runs.resume(found.id, **body, by=person(request))).data)


class Cancel(APIView):
    """Cancel a run: at once, or after the superstep in hand."""

    scopes = {"POST": "steer"}

    @describe(request=CancelBody, responses=RunOut)
    def post(self, request: Request, run: str) -> Response:
        body = read_body(CancelBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "steer_run", run=found.id)
        return Response(RunOut(runs.cancel(found.id, by=person(request), reason=body["reason"])).data)


class Settle(APIView):
    """Say whether an effect with an unknown outcome happened."""

    scopes = {"POST": "steer"}

    @describe(request=SettleBody, responses=RunOut)
    def post(self, request: Request, run: str) -> Response:
        body = read_body(SettleBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "settle_task", run=found.id)
        settled = runs.settle(
            found.id,
            body["task"],
            happened=body["happened"],
            output=body.get("output"),
            accept_risk=body["accept_risk"],
            by=person(request),
            reason=body["reason"],
        )
        return Response(RunOut(settled).data)


class Erase(APIView):
    """Replace the values of a run by tombstones, for ever. For stewards; a worker does it, and the list says when."""

    scopes = {"POST": "erase"}

    @describe(parameters=[Query], responses=page_schema(ErasureOut))
    def get(self, request: Request, run: str) -> Response:
        """What was erased of a run, the newest first."""
        read_body(Query, request.query_params)
        rows = ErasureRecord.objects.filter(run=visible_run(person(request), run).id)
        return paginate(request, rows, ErasureOut, by=("-at", "-id"))

    @describe(request=EraseBody, responses={202: ErasureOut, 200: OpenApiTypes.OBJECT})
    def post(self, request: Request, run: str) -> Response:
        body: dict[str, Any] = read_body(EraseBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "manage_retention")
        typed = body.pop("confirm")
        if body.pop("dry_run"):
            return Response(retention.plan_erasure(found.id, body["paths"], body["forks"]).json())
        if typed != found.key:
            raise InvalidValue(f"confirm is the key of the run, {found.key}", path="confirm")
        record = retention.begin_erasure(found.id, **body, by=person(request))
        return Response(ErasureOut(record).data, status=202)
