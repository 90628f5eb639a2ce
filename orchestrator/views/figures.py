"""Sums of figures by day, graph or run, over the runs that a person may see and the
chosen days.
"""

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
"""The most sums on one page."""
FIELDS = ("by", "graph", "from", "to")
"""The parameters of the page's address, beside the position."""


@login_required
@require_safe
def figures_page(request: HttpRequest) -> HttpResponse:
    """Show one page of sums. Three queries at most, beside those of every page."""
    try:
        period = _read_range(request)
        position = _read_position(request, period)
    except InvalidValue as error:
        text = f"{error.message}."
        return error_page(request, "This filter cannot be read", text, status=400)

    sums = figure_sums.sums_of(permissions.visible_figures(request.user), period)
    begin = ""
    if position:
        sums = figure_sums.after(sums, period.by, position)
        begin = _query(request)
    # One sum more than a page shows whether there is another page.
    rows = list(sums[: PAGE + 1])
    shown = rows[:PAGE]
    _name_runs(shown)
    following = ""
    if len(rows) > PAGE:
        following = _query(request, after=_position(shown[-1], period))
    context = {
        "rows": shown,
        "asked": period,
        "groups": [*GROUPS],
        "graphs": graphs_to_choose(request.user),
        "narrowed": any(request.GET.get(name) for name in FIELDS),
        "more": following,
        "begin": begin,
    }
    return render(request, "orchestrator/figures.html", context, section="runs")


def _read_range(request: HttpRequest) -> Range:
    """Return the range that the address names. Raises `InvalidValue`."""
    graph = request.GET.get("graph", "")
    if not is_storable(graph):
        raise InvalidValue("no graph has this name", path="graph")
    # The form sends empty fields along.
    by = request.GET.get("by") or "day"
    first = _day(request, "from")
    last = _day(request, "to")
    return figure_sums.checked_range(by, graph, first, last)


def _day(request: HttpRequest, name: str) -> date | None:
    text = request.GET.get(name, "").strip()
    if not text:
        return None
    # A day of the right form need not exist: 30 February raises.
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None:
        raise InvalidValue(f"“{name}” is a day, as in 2026-11-22", path=name)
    return day


def _position(row: dict[str, Any], period: Range) -> str:
    """Return the position of a sum in the list, for the address of the next page."""
    columns = [column.removeprefix("-") for column in GROUPS[period.by]]
    return json.dumps([str(row[column]) for column in columns])


def _read_position(request: HttpRequest, period: Range) -> list[str]:
    """Return the position of the sum after which the page begins; nothing for the first
    page. Raises `InvalidValue`.
    """
    text = request.GET.get("after", "")
    if not text:
        return []
    try:
        position = parse_strict(text)
        if _is_position(position, period):
            return list(position)
    except (ValueError, RecursionError):
        # It is no JSON, or names no run.
        pass
    message = "“after” names no sum; follow the links of the list"
    raise InvalidValue(message, path="after")


def _is_position(position: Any, period: Range) -> bool:
    """Return whether a value can be the position of a sum. Raises `ValueError` if the
    id of a run is none.
    """
    if not isinstance(position, list):
        return False
    if len(position) != len(GROUPS[period.by]):
        return False
    for value in position:
        if not isinstance(value, str) or not is_storable(value):
            return False
    if period.by == "run":
        UUID(position[0])
    return True


def _name_runs(rows: list[dict[str, Any]]) -> None:
    """Add its run to each sum that belongs to one, for the page to name. At most one
    query.
    """
    # Only sums grouped by run belong to a run.
    ids = {row["of_run"] for row in rows if "of_run" in row}
    runs: dict[Any, Run] = {}
    if ids:
        runs = Run.objects.only("id", "key", "label").in_bulk(ids)
    for row in rows:
        row["run"] = runs.get(row.get("of_run"))


def _query(request: HttpRequest, **changed: str) -> str:
    """Return the query of the page with some parameters changed; empty ones are left
    out.
    """
    parameters = {name: request.GET.get(name, "") for name in FIELDS} | changed
    return urlencode({name: value for name, value in parameters.items() if value})
