"""Erasing the values of a run, and what was erased of it."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Body, person, read_body
from approvals.permissions import visible_run
from checkpoints import retention
from checkpoints.models import ErasureRecord
from orchestrator.runs.start_for_user import require


class EraseBody(Body):
    """What is erased: all values of the run, or those at `paths`. With `dry_run` nothing is."""

    paths = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True, default=None)
    forks = serializers.BooleanField(required=False, default=False, help_text="Also of runs that inherited values.")
    reason = serializers.CharField(max_length=10_000, required=False, allow_blank=True, default="")
    dry_run = serializers.BooleanField(required=False, default=False)


class ErasureOut(serializers.ModelSerializer[ErasureRecord]):
    """The record of an erasure; never a value. Of a dry run: `run`, `key`, `paths`, `rows` by place, `inherited`."""

    by = serializers.CharField(source="by_name")

    class Meta:
        model = ErasureRecord
        fields = ["id", "run", "by", "at", "reason", "paths", "inherited", "kept_files", "rows", "ended_at"]
        read_only_fields = fields


class Erase(APIView):
    """Replace the values of a run by tombstones, for ever. For stewards."""

    scopes = {"POST": "steer"}

    @extend_schema(request=EraseBody, responses=ErasureOut)
    def post(self, request: Request, run: str) -> Response:
        body: dict[str, Any] = read_body(EraseBody, request.data)
        found = visible_run(person(request), run)
        require(person(request), "manage_retention")
        if body.pop("dry_run"):
            return Response(retention.plan_erasure(found.id, body["paths"]).json())
        return Response(ErasureOut(retention.erase(found.id, **body, by=person(request))).data)
