"""The endpoint of figures of gates. It only reads."""

from dataclasses import asdict
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals import permissions
from approvals.api.base import Body, describe, person, read_body
from approvals.results import figures
from orchestrator.engine.errors import Forbidden


class GatesQuery(Body):
    """The gates whose figures are read, and since when they asked."""

    graph = serializers.CharField(required=False)
    gate = serializers.CharField(
        required=False, help_text="A node of the graph, which is then required."
    )
    since = serializers.DateTimeField(
        required=False, help_text="Requests that were opened at this time or later."
    )


class GateOut(serializers.Serializer[Any]):
    """The figures of one gate. Shares are of the decisions of people, from 0 to 1; null
    where there are no decisions to count. They and `seconds` are null where fewer than
    five people have signed.
    """

    graph = serializers.CharField()
    gate = serializers.CharField()
    requests = serializers.IntegerField(help_text="Those that were opened.")
    decided = serializers.IntegerField(help_text="Requests that people settled.")
    seconds = serializers.FloatField(
        allow_null=True, help_text="From opened to settled, in the median of those."
    )
    overdue = serializers.IntegerField(
        help_text="Those that their deadline closed, or that are open past it."
    )
    quick = serializers.FloatField(
        allow_null=True,
        help_text="The share signed within three seconds of the first sight.",
    )
    edited = serializers.FloatField(allow_null=True)
    rejected = serializers.FloatField(allow_null=True)


class GatesOut(serializers.Serializer[Any]):
    """The figures of gates. `of_newest`: only so many of the newest requests were looked
    at; null where these were all.
    """

    of_newest = serializers.IntegerField(allow_null=True)
    gates = GateOut(many=True)


class GateFiguresRead(APIView):
    """How often gates ask, how long it takes, and how people decide, never per person:
    for callers who may see all runs, with the right to read the audit log or to reassign
    requests.
    """

    @describe(
        operation_id="gate_figures",
        parameters=[GatesQuery],
        responses=GatesOut,
    )
    def get(self, request: Request) -> Response:
        query = read_body(GatesQuery, request.query_params)
        if not figures.may_read(person(request)):
            right = "view_audit"
            if not permissions.may(person(request), "view_run"):
                right = "view_run"
            raise Forbidden(f"you lack the right {right}", right=right)
        rows = figures.figures(
            query.get("graph"), query.get("gate"), query.get("since")
        )
        of_newest = figures.MOST_REQUESTS if figures.is_capped(rows) else None
        gates = [asdict(row) for row in rows]
        return Response(GatesOut({"of_newest": of_newest, "gates": gates}).data)
