"""Endpoints of runs: the list, the start of a run, one run, its checkpoints, its log
and its erasure.
"""

from functools import partial
from typing import Any

from django.db.models import Q
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import (
    LongPages,
    Query,
    describe,
    page_schema,
    paginate,
    person,
    read_body,
)
from approvals.permissions import visible_run
from approvals.visible_runs import VisibleRuns
from checkpoints import lines, retention, timeline
from checkpoints.core import traces
from checkpoints.core.arguments import MOST_WHOLE
from checkpoints.ledger import notes
from checkpoints.models import ErasureRecord, Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.api.serializers import (
    CheckpointLine,
    EraseBody,
    ErasureOut,
    EventOut,
    EventsQuery,
    RunLine,
    RunOut,
    RunsQuery,
    StartBody,
)
from orchestrator.engine import registry
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.gates.gate_on_run import asks_four_eyes
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
        query = read_body(RunsQuery, parameters)
        caller = person(request)
        # A list shows columns only; payloads stay in the database.
        rows = Run.objects.select_related("started_by", "on_behalf_of").only(*_COLUMNS)
        rows = notes.with_metadata(rows, metadata)
        visible = _filtered(VisibleRuns.of(caller, rows), query)
        if "origin" in query:
            # A caller who may not see a run must not learn of its forks.
            origin = visible_run(caller, query["origin"])
            visible = visible.named_by(Q(id__in=lines.forks_of(origin.id)))
        return paginate(request, visible, RunLine, by=("-created_at", "-id"))

    def require_rights(self, request: Request) -> None:
        require(person(request), "start_run")

    @describe(request=StartBody, responses={201: RunOut, 200: RunOut})
    def post(self, request: Request) -> Response:
        body = read_body(StartBody, request.data)
        # Rights are checked before the graph is looked up, because the refusal of an
        # unknown graph names those that there are.
        self.require_rights(request)
        _require_principal(request, body)
        on_behalf_of = body.pop("on_behalf_of", None)
        trace = traces.parse_traceparent(request.headers.get("traceparent"))
        start = _start_request(body, by=person(request), trace=trace)
        run, new = start_for(start, on_behalf_of=on_behalf_of)
        return Response(RunOut(run).data, status=201 if new else 200)


def _filtered(visible: VisibleRuns, query: dict[str, Any]) -> VisibleRuns:
    if "graph" in query:
        visible = visible.filter(graph=query["graph"])
    if "since" in query:
        visible = visible.filter(created_at__gte=query["since"])
    if "status" in query:
        visible = visible.with_status(query["status"])
    if "key" in query:
        visible = visible.named_by(Q(key=query["key"]))
    return visible


def _require_principal(request: Request, body: dict[str, Any]) -> None:
    """Raise `InvalidValue` if a token does not name the person for whom it starts a run
    with a gate of four eyes. A token is not a person whom that gate could exclude.
    """
    if not isinstance(request.auth, ApiToken) or body.get("on_behalf_of"):
        return
    compiled = registry.current(body["graph"])
    # How large the input may be is judged when the run starts.
    if asks_four_eyes(
        compiled, partial(compiled.stage_input, body["input"], limit=None)
    ):
        raise InvalidValue(
            "this graph has a gate with four eyes, "
            "so a token must say on whose behalf it starts",
            path="on_behalf_of",
        )


def _start_request(body: dict[str, Any], *, by: Any, trace: str) -> runs.StartRequest:
    """Return the request to start a run that a validated body describes, in the trace
    that the caller names.
    """
    queued = runs.Queued(body.pop("priority"), body.pop("due_at", None))
    again = runs.Again(
        resume_failed=body.pop("resume_failed"),
        restart=body.pop("restart"),
        allow_effects=tuple(body.pop("allow_effects")),
    )
    return runs.StartRequest(**body, by=by, again=again, queued=queued, trace=trace)


class OneRun(APIView):
    """One run, by id or key."""

    @describe(responses=RunOut)
    def get(self, request: Request, run: str) -> Response:
        return Response(RunOut(visible_run(person(request), run)).data)


class RunCheckpoints(APIView):
    """The kept checkpoints of a run, newest first, without their states; by
    `metadata.<name>` those that have it.
    """

    @describe(
        parameters=[Query],
        open_prefixes=[PARAMETER],
        responses=page_schema(CheckpointLine),
    )
    def get(self, request: Request, run: str) -> Response:
        parameters, metadata = split_filters(request.query_params.dict())
        read_body(Query, parameters)
        visible = visible_run(person(request), run)
        rows = timeline.checkpoint_lines(visible)
        rows = notes.checkpoints_with_metadata(visible.id, rows, metadata)
        return paginate(
            request,
            rows,
            CheckpointLine,
            by=("-seq",),
            protection=protection_of(visible),
        )


class RunEvents(APIView):
    """The log of a run from a line on, in order."""

    @describe(parameters=[EventsQuery], responses=page_schema(EventOut))
    def get(self, request: Request, run: str) -> Response:
        after = read_body(EventsQuery, request.query_params)["after"]
        visible = visible_run(person(request), run)
        # The database refuses a larger number than its column holds.
        rows = timeline.events(visible.id, after=min(after, MOST_WHOLE))
        return paginate(
            request,
            rows,
            EventOut,
            by=("seq",),
            pages=LongPages,
            protection=protection_of(visible),
        )


class Erase(APIView):
    """Replace the values of a run by tombstones, for ever. For stewards; a worker does
    it, and the list says when.
    """

    scopes = {"POST": "erase"}

    @describe(parameters=[Query], responses=page_schema(ErasureOut))
    def get(self, request: Request, run: str) -> Response:
        """The erasures of a run, newest first."""
        read_body(Query, request.query_params)
        run_id = visible_run(person(request), run).id
        rows = ErasureRecord.objects.filter(run=run_id)
        return paginate(request, rows, ErasureOut, by=("-at", "-id"))

    def require_rights(self, request: Request, **_: str) -> None:
        require(person(request), "manage_retention")

    @describe(request=EraseBody, responses={202: ErasureOut, 200: OpenApiTypes.OBJECT})
    def post(self, request: Request, run: str) -> Response:
        body: dict[str, Any] = read_body(EraseBody, request.data)
        visible = visible_run(person(request), run)
        self.require_rights(request)
        confirmed_key = body.pop("confirm")
        if body.pop("dry_run"):
            # A plan: `run`, `key`, `paths`, `rows` by place, `inherited`.
            plan = retention.plan_erasure(visible.id, body["paths"], body["forks"])
            return Response(plan.json())
        # An erasure cannot be undone, so the caller confirms which run is meant.
        if confirmed_key != visible.key:
            raise InvalidValue(
                f"confirm is the key of the run, {visible.key}", path="confirm"
            )
        record = retention.begin_erasure(visible.id, **body, by=person(request))
        return Response(ErasureOut(record).data, status=202)
