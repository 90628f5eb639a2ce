"""The endpoint of figures: their sums by run, graph or day."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from approvals.api.base import Pages, Query, describe, page_schema, person, read_body
from approvals.permissions import visible_figures
from checkpoints.ledger import figure_sums
from checkpoints.ledger.figure_sums import DAYS, GROUPS, MOST_DAYS
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.step.notes import figure_text


class FiguresQuery(Query):
    """The query of sums: what they are grouped by, and of which graph and days (UTC)."""

    by = serializers.ChoiceField(choices=[*GROUPS], default="day")
    graph = serializers.CharField(required=False)
    to = serializers.DateField(
        required=False, help_text="The last day, in UTC; today unless set."
    )

    def get_fields(self) -> Any:
        # `from` is a keyword of Python.
        first = serializers.DateField(
            required=False,
            source="first",
            help_text=f"The first day, in UTC; {DAYS} days are summed unless set, "
            f"{MOST_DAYS} at most.",
        )
        return {**super().get_fields(), "from": first}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        try:
            selection = figure_sums.checked_range(
                attrs["by"],
                attrs.get("graph", ""),
                attrs.get("first"),
                attrs.get("to"),
            )
        except InvalidValue as error:
            refusals = {error.facts["path"]: [error.message]}
            raise serializers.ValidationError(refusals) from error
        return {**attrs, "range": selection}


class FigureSum(serializers.Serializer[Any]):
    """A sum of figures of one name. `day` and `run` are null where sums are not grouped
    by them.
    """

    day = serializers.DateField(allow_null=True)
    graph = serializers.CharField()
    run = serializers.UUIDField(allow_null=True)
    name = serializers.CharField()
    sum = serializers.CharField(help_text="The exact number as text: 1234, 0.25.")

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        run = instance.get("of_run")
        return {
            "day": instance.get("day"),
            "graph": instance["graph"],
            "run": str(run) if run else None,
            "name": instance["name"],
            "sum": figure_text(int(instance["sum"])),
        }


class Figures(APIView):
    """The sums of figures of the runs that the caller may see: by day the newest first,
    by graph, or by run.
    """

    @describe(
        operation_id="figures_list",
        parameters=[FiguresQuery],
        responses=page_schema(FigureSum),
    )
    def get(self, request: Request) -> Response:
        query = read_body(FiguresQuery, request.query_params)
        selection: figure_sums.Range = query["range"]
        paging = Pages()
        paging.ordering = GROUPS[selection.by]
        sums = figure_sums.sums_of(visible_figures(person(request)), selection)
        page = paging.paginate_queryset(sums, request) or []
        return paging.get_paginated_response(FigureSum(page, many=True).data)
