"""Endpoints that ask of a run where its values come from, where it comes from, and how another one differs."""

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, person, read_body
from approvals.permissions import visible_run, visible_runs
from checkpoints import timeline
from checkpoints.core.ids import unknown_thing
from checkpoints.core.state_paths import parsed_path
from orchestrator.api.comparison_out import (
    AlignOut,
    AlignQuery,
    BlameOut,
    BlameQuery,
    HistoryOut,
    HistoryQuery,
    LineageOut,
    alignment_json,
    lineage_json,
)


class RunBlame(APIView):
    """The checkpoint, node and person that set a path of the state last."""

    @describe(parameters=[BlameQuery], responses=BlameOut)
    def get(self, request: Request, run: str) -> Response:
        query = read_body(BlameQuery, request.query_params)
        found = visible_run(person(request), run)
        rows = timeline.list_checkpoints(found.id, limit=1, before=query["at"] + 1 if "at" in query else None)
        if not rows or ("at" in query and rows[0].seq != query["at"]):
            raise unknown_thing("checkpoint", f"{found.key}:at-{query.get('at', 0)}")
        blamed = timeline.blame(rows[0].id, query["path"], among=visible_runs(person(request)))
        return Response(BlameOut(blamed).data)


class RunHistory(APIView):
    """The checkpoints of a run that changed a path of the state."""

    @describe(parameters=[HistoryQuery], responses=HistoryOut)
    def get(self, request: Request, run: str) -> Response:
        query = read_body(HistoryQuery, request.query_params)
        found = visible_run(person(request), run)
        limit, among = query["limit"], visible_runs(person(request))
        changes = timeline.history(found.id, query["path"], limit=limit, before=query.get("before"), among=among)
        older = changes[0].checkpoint.seq if len(changes) == limit else None
        content = {"path": str(parsed_path(query["path"])), "changes": changes, "before": older}
        return Response(HistoryOut(content).data)


class RunLineage(APIView):
    """The tree of origins, forks, replays, parents and children of a run, of those that the caller may see."""

    @describe(responses=LineageOut)
    def get(self, request: Request, run: str) -> Response:
        found = visible_run(person(request), run)
        tree = timeline.lineage(found.id, among=visible_runs(person(request)))
        return Response(LineageOut(lineage_json(tree)).data)


class RunAlign(APIView):
    """A run beside another: where they split, and why they differ."""

    @describe(
        parameters=[
            OpenApiParameter("with", str, required=True, description="Id or key of the other run."),
            AlignQuery,
        ],
        responses=AlignOut,
    )
    def get(self, request: Request, run: str) -> Response:
        query = read_body(AlignQuery, request.query_params)
        user = person(request)
        a, b = visible_run(user, run), visible_run(user, query["with"])
        at = (query["at"], query["with_at"]) if "at" in query else None
        return Response(AlignOut(alignment_json(timeline.align(a, b, at=at, among=visible_runs(user)))).data)
