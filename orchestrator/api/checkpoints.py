"""Endpoints of one checkpoint: its content, its state, and its differences."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import describe, person, read_body
from approvals.permissions import visible_checkpoint
from checkpoints import timeline
from orchestrator.api.checkpoint_out import CheckpointOut
from orchestrator.api.serializers import DiffOut, DiffQuery, StateOut


class OneCheckpoint(APIView):
    """One checkpoint, by id or alias."""

    @describe(responses=CheckpointOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        row = visible_checkpoint(person(request), checkpoint)
        return Response(CheckpointOut(row).data)


class CheckpointState(APIView):
    """The state at a checkpoint."""

    @describe(responses=StateOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        row = visible_checkpoint(person(request), checkpoint)
        return Response(timeline.state_at(row.id))


class CheckpointDiff(APIView):
    """The differences of the state at a checkpoint from that at its parent, or at any
    other checkpoint.
    """

    @describe(parameters=[DiffQuery], responses=DiffOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        query = read_body(DiffQuery, request.query_params)
        against = query.get("against")
        here = visible_checkpoint(person(request), checkpoint)
        other: UUID | None
        if against:
            # Both must be visible, or the changes would show a hidden state.
            other = visible_checkpoint(person(request), against).id
            changes = timeline.diff(other, here.id)
        else:
            other = timeline.parent_of(here)
            changes = timeline.changes(here)
        content = {
            "checkpoint": here.id,
            "against": other,
            "changes": changes,
        }
        return Response(DiffOut(content).data)
