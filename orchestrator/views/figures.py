"""Sums of figures, by day, graph or run: of the runs that one may see, on the days asked for."""

import json
from datetime import date
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.utils.dateparse import parse_date
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.views.page import error_page, render
from checkpoints.core.ids import is_storable
from checkpoints.core.strict_json import parse_strict
from checkpoints.ledger import figure_sums
from checkpoints.ledger.figure_sums import GROUPS, Range
from checkpoints.models import Run
from orchestrator.engine.errors import InvalidValue
from orchestrator.views.runs import graphs_to_choose

PAGE = 50
FIELDS = ("by", "graph", "from", "to")


@login_required
@require_safe
def figures_page(request: HttpRequest) -> HttpResponse:
    """One page of sums. Three queries at most, beside those of every page."""
    try:
        asked = _read_range(request)
        position = _read_position(request, asked)
    except InvalidValue as error:
        return error_page(request, "This filter cannot be read", f"{error.message}.", status=400)
    sums = figure_sums.sums_of(permissions.visible_figures(request.user), asked)
    rows = list((figure_sums.after(sums, asked.by, position) if position else sums)[: PAGE + 1])
    shown = rows[:PAGE]
    _name_runs(shown)
    context = {
        "rows": shown,
        "asked": asked,
        "groups": [*GROUPS],
        "graphs": graphs_to_choose(request.user),
        "narrowed": any(request.GET.get(name) for name in FIELDS),
        "more": _query(request, after=_position(shown[-1], asked)) if len(rows) > PAGE else "",
        "begin": _query(request) if position else "",
    }
    return render(request, "orchestrator/figures.html", context, section="runs")


def _read_range(request: HttpRequest) -> Range:
    """The range that the address asks for. Raises `InvalidValue`."""
    graph = request.GET.get("graph", "")
    if not is_storable(graph):
        raise InvalidValue("no graph has this name", path="graph")
    by = request.GET.get("by") or "day"
    return figure_sums.checked_range(by, graph, _day(request, "from"), _day(request, "to"))


def _day(request: HttpRequest, name: str) -> date | None:
    text = request.GET.get(name, "").strip()
    if not text:
        return None
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None:
        raise InvalidValue(f"“{name}” is a day, as in 2026-11-22", path=name)
    return day


def _position(row: dict[str, Any], asked: Range) -> str:
    return json.dumps([str(row[column.removeprefix("-")]) for column in GROUPS[asked.by]])


def _read_position(request: HttpRequest, asked: Range) -> list[str]:
    """The sum after which the page begins; nothing for the first page. Raises `InvalidValue`."""
    text = request.GET.get("after", "")
    if not text:
        return []
    try:
        position = parse_strict(text)
        texts = all(isinstance(value, str) and is_storable(value) for value in position)
        if texts and len(position) == len(GROUPS[asked.by]):
            if asked.by == "run":
                UUID(position[0])
            return list(position)
    except (TypeError, ValueError, RecursionError):
        pass
    raise InvalidValue("“after” names no sum; follow the links of the list", path="after")


def _name_runs(rows: list[dict[str, Any]]) -> None:
    """Put to each sum of a run the run as pages name it. One query, or none."""
    ids = {row["of_run"] for row in rows if "of_run" in row}
    runs = Run.objects.only("id", "key", "label").in_bulk(ids) if ids else {}
    for row in rows:
        row["run"] = runs.get(row.get("of_run"))


def _query(request: HttpRequest, **more: str) -> str:
    kept = {name: request.GET.get(name, "") for name in FIELDS} | more
    return urlencode({name: value for name, value in kept.items() if value})
