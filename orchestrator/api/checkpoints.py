"""Endpoints of one checkpoint: what it holds, its state, and what differs from another."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import person, read_body
from approvals.permissions import may_see_run
from checkpoints import timeline
from checkpoints.core.ids import unknown_thing
from checkpoints.models import Checkpoint
from orchestrator.api.checkpoint_out import CheckpointOut
from orchestrator.api.serializers import DiffOut, DiffQuery, StateOut


def visible_checkpoint(user: Any, id_or_alias: str) -> Checkpoint:
    """The checkpoint with its run. Raises `UnknownThing` also where the caller may not see the run."""
    found = timeline.get_checkpoint(id_or_alias)
    if not may_see_run(user, found.run):
        raise unknown_thing("checkpoint", id_or_alias)
    return found


class OneCheckpoint(APIView):
    """One checkpoint, by id or alias."""

    @extend_schema(responses=CheckpointOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        return Response(CheckpointOut(visible_checkpoint(person(request), checkpoint)).data)


class CheckpointState(APIView):
    """The state at a checkpoint."""

    @extend_schema(responses=StateOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        return Response(timeline.state_at(visible_checkpoint(person(request), checkpoint).id))


class CheckpointDiff(APIView):
    """What differs in the state at a checkpoint against its parent, or against any other."""

    @extend_schema(parameters=[DiffQuery], responses=DiffOut)
    def get(self, request: Request, checkpoint: str) -> Response:
        against = read_body(DiffQuery, request.query_params).get("against")
        here = visible_checkpoint(person(request), checkpoint)
        other = visible_checkpoint(person(request), against).id if against else timeline.parent_of(here)
        changes = timeline.diff(other, here.id) if against and other else timeline.changes(here)
        return Response(DiffOut({"checkpoint": here.id, "against": other, "changes": changes}).data)
