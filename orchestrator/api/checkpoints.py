"""Endpoints of one checkpoint: what it holds, its state, and what differs from another."""

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
        return Response(CheckpointOut(visible_checkpoint(person(request), checkpoint)).data)


class CheckpointState(APIView):
    """The state at a checkpoint."""

    @describe(responses=StateOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        return Response(timeline.state_at(visible_checkpoint(person(request), checkpoint).id))


class CheckpointDiff(APIView):
    """What differs in the state at a checkpoint against its parent, or against any other."""

    @describe(parameters=[DiffQuery], responses=DiffOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        against = read_body(DiffQuery, request.query_params).get("against")
        here = visible_checkpoint(person(request), checkpoint)
        other = visible_checkpoint(person(request), against).id if against else timeline.parent_of(here)
        changes = timeline.diff(other, here.id) if against and other else timeline.changes(here)
        return Response(DiffOut({"checkpoint": here.id, "against": other, "changes": changes}).data)
