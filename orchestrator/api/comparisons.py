"""Endpoints about the origin of a run's values, the lineage of a run, and its
differences from another run.
"""

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, person, read_body
from approvals.permissions import visible_relatives, visible_run
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
        visible = visible_run(person(request), run)
        at = query.get("at")
        # The newest checkpoint at or before that seq.
        before = None if at is None else at + 1
        rows = timeline.list_checkpoints(visible.id, limit=1, before=before)
        # An earlier checkpoint would answer another question.
        if not rows or at not in (None, rows[0].seq):
            raise unknown_thing("checkpoint", f"{visible.key}:at-{at or 0}")
        # A value may come from an origin that the caller may not see.
        blamed = timeline.blame(
            rows[0].id, query["path"], among=visible_relatives(person(request))
        )
        return Response(BlameOut(blamed).data)


class RunHistory(APIView):
    """The checkpoints of a run that changed a path of the state."""

    @describe(parameters=[HistoryQuery], responses=HistoryOut)
    def get(self, request: Request, run: str) -> Response:
        query = read_body(HistoryQuery, request.query_params)
        run_id = visible_run(person(request), run).id
        limit = query["limit"]
        changes = timeline.history(
            run_id,
            query["path"],
            limit=limit,
            before=query.get("before"),
            among=visible_relatives(person(request)),
        )
        # A full page may have older changes before it.
        older = changes[0].checkpoint.seq if len(changes) == limit else None
        content = {
            "path": str(parsed_path(query["path"])),
            "changes": changes,
            "before": older,
        }
        return Response(HistoryOut(content).data)


class RunLineage(APIView):
    """The tree of origins, forks, replays, parents and children of a run, of those that
    the caller may see.
    """

    @describe(responses=LineageOut)
    def get(self, request: Request, run: str) -> Response:
        run_id = visible_run(person(request), run).id
        tree = timeline.lineage(run_id, among=visible_relatives(person(request)))
        return Response(LineageOut(lineage_json(tree)).data)


class RunAlign(APIView):
    """A run beside another: where they split, and why they differ."""

    @describe(
        parameters=[
            OpenApiParameter(
                "with", str, required=True, description="Id or key of the other run."
            ),
            AlignQuery,
        ],
        responses=AlignOut,
    )
    def get(self, request: Request, run: str) -> Response:
        query = read_body(AlignQuery, request.query_params)
        user = person(request)
        this = visible_run(user, run)
        other = visible_run(user, query["with"])
        at = None
        if "at" in query:
            at = (query["at"], query["with_at"])
        alignment = timeline.align(this, other, at=at, among=visible_relatives(user))
        return Response(AlignOut(alignment_json(alignment)).data)
