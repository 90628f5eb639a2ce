"""The list of runs: tabs by status, filters, pages by key. It reads columns of the
runs' rows only, never a checkpoint.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import timedelta
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.views.page import read_position, refuses_unreadable_filters, render
from approvals.visible_runs import VisibleRuns, visible_graphs
from checkpoints.core.ids import made_at
from checkpoints.core.status import STOPPED, Status
from checkpoints.db import counts
from checkpoints.db.counts import count_each
from checkpoints.db.large_reads import first_rows
from checkpoints.ledger import notes
from checkpoints.models import Run
from checkpoints.sealing import data_keys
from orchestrator.engine import registry
from orchestrator.engine.errors import InvalidValue
from orchestrator.runs.metadata import PARAMETER, read_pair, split_filters
from orchestrator.views import run_search
from orchestrator.views.run_search import (
    LONGEST_SEARCH,
    Position,
    Search,
    matching,
    search,
)
from orchestrator.views.run_standings import not_started, read_standings

PAGE = 50
"""The most runs on one page of the list."""
NEWS = 100
"""The most newer runs that are counted; if there are more, the list says "100 or more".
"""
CLOCKS_DIFFER = timedelta(hours=1)
"""The most by which the clocks of servers that start runs may differ."""
REVIEW = "review"
UNSTARTED = "unstarted"
"""The tab of forks that were made and not started. They are paused, as are runs that
ask people, but they ask nobody.
"""
TABS: list[tuple[str, str, frozenset[str]]] = [
    (REVIEW, "Needs review", frozenset({Status.PAUSED})),
    (UNSTARTED, "Not started", frozenset({Status.PAUSED})),
    ("running", "Running", frozenset({Status.RUNNING, Status.QUEUED})),
    ("waiting", "Waiting", frozenset({Status.WAITING})),
    ("stopped", "Stopped", STOPPED),
    ("completed", "Completed", frozenset({Status.COMPLETED})),
    ("rejected", "Rejected", frozenset({Status.REJECTED})),
    ("cancelled", "Cancelled", frozenset({Status.CANCELLED})),
]
"""(name in the address, label, statuses) of each tab."""
SPANS = {
    "hour": ("last hour", timedelta(hours=1)),
    "day": ("last 24 hours", timedelta(days=1)),
    "week": ("last 7 days", timedelta(days=7)),
    "month": ("last 30 days", timedelta(days=30)),
}
"""Word in the address -> its words on the page, and the longest time since a run
started.
"""
FILTERS = ("status", "graph", "started", "q", "before")
"""The parameters of the list's address, beside `metadata.<name>`."""
# The error and the progress are the only encrypted columns that are shown.
COLUMNS = (
    "id",
    "key",
    "graph",
    "version",
    "fingerprint",
    "label",
    "status",
    "line",
    "origin_checkpoint",
    "head_seq",
    "event_seq",
    "at_node",
    "tape",
    "error_code",
    "error",
    "progress",
    "imported",
    "created_at",
    "started_at",
    "ended_at",
)


@login_required
@require_safe
@refuses_unreadable_filters
@permissions.remembering_principals()
def runs_page(request: HttpRequest) -> HttpResponse:
    """Show one page of the list."""
    typed = request.GET.get("metadata", "").strip()
    if typed:
        return _redirect_to_typed_metadata(request, typed)

    runs = _filtered(request)
    tab = request.GET.get("status", "")
    statuses = _statuses_of(tab)
    cursor = request.GET.get("before", "")
    with first_rows() if runs.is_merged else nullcontext():
        result = _searched(request, runs)
        of_tab = _counts(result.runs)
        if cursor:
            # A search continues after the last row of the page before.
            result = _searched(request, _before(runs, cursor))
        # One row more than a page shows whether there is another page.
        rows = _first_rows(result.runs, tab, statuses, limit=PAGE + 1)
    _know_keys_of(rows)
    read_standings(rows[:PAGE], request.user)

    # An address with an unknown tab shows all runs.
    known_tab = tab if statuses else ""
    context = {
        "rows": rows[:PAGE],
        "tabs": list(_tabs(request, tab, of_tab)),
        "tab": known_tab,
        "total": of_tab[known_tab],
        **_filter_facts(request),
        "searched": 0 if result.end is None else run_search.STRETCH,
        **_list_links(request, rows, result.end, is_first_page=not cursor),
        **_may_facts(request.user),
    }
    return render(request, "orchestrator/runs.html", context, section="runs")


def _redirect_to_typed_metadata(request: HttpRequest, typed: str) -> HttpResponse:
    """Return a redirect to the list with the filter that was typed as name and value.
    Raises `InvalidValue`.
    """
    name, text = read_pair(typed)
    query = _query(request, before="", **{PARAMETER + name: text})
    return redirect(f"{reverse('runs')}?{query}")


def _filter_facts(request: HttpRequest) -> dict[str, Any]:
    """Return the filters in use, and what each of them can be set to."""
    return {
        "graphs": graphs_to_choose(request.user),
        "graph": request.GET.get("graph", ""),
        "spans": [(name, words) for name, (words, _) in SPANS.items()],
        "started": request.GET.get("started", ""),
        "q": request.GET.get("q", "").strip(),
        "metadata": _metadata_filters(request),
        "zone": timezone.get_current_timezone_name(),
        "filters": _query(request, before=""),
    }


def _may_facts(user: Any) -> dict[str, Any]:
    """Return which of starting and importing runs this person is offered."""
    start_url = ""
    if permissions.has_role(user):
        start_url = reverse("graphs")
    return {
        "start_url": start_url,
        "may_start": permissions.may(user, "start_run"),
        "may_import": permissions.may(user, "import_run"),
    }


def _statuses_of(tab: str) -> frozenset[str] | None:
    """Return the statuses of a tab, None if there is no such tab."""
    for name, _, statuses in TABS:
        if name == tab:
            return statuses
    return None


def _list_links(
    request: HttpRequest,
    rows: list[Run],
    end: Position | None,
    *,
    is_first_page: bool,
) -> dict[str, str]:
    """Return the queries of the older page, of the newest one, and of the number of
    newer runs; empty if there is none. `end`: where a search ended that did not look at
    all runs.
    """
    links = {"older": "", "newest": "", "news": ""}
    if len(rows) > PAGE:
        last = rows[PAGE - 1]
        behind_page = (last.created_at, last.id)
        # A run that is named may be older than where the search ended, and what lies
        # between was not searched.
        end = behind_page if end is None else max(end, behind_page)
    if end is not None:
        at, id = end
        links["older"] = _query(request, before=f"{at.isoformat()}~{id}")
    # Newer runs belong on the first page only.
    if not is_first_page:
        links["newest"] = _query(request, before="")
    elif rows:
        newest = str(rows[0].id)
        links["news"] = _query(request, before="", since=newest)
    return links


@login_required
@require_safe
def runs_rows(request: HttpRequest) -> HttpResponse:
    """Show the named rows alone, for a list that is on the screen."""
    # A script names the rows on the screen, which are one page at most.
    ids = list(_uuids(request.GET.getlist("id")[:PAGE]))
    named = Run.objects.filter(id__in=ids)
    visible = permissions.visible_among(request.user, named)
    runs = list(visible.only(*COLUMNS))
    _know_keys_of(runs)
    read_standings(runs, request.user)
    context = {"rows": runs}
    return render(request, "orchestrator/_run_rows.html", context, section="runs")


@login_required
@require_safe
@refuses_unreadable_filters
def runs_news(request: HttpRequest) -> HttpResponse:
    """Return how many runs match the filters and are newer than the first row shown."""
    text = request.GET.get("since", "")
    since = next(_uuids([text]), None)
    tab = request.GET.get("status", "")
    count = 0
    # Read in any case: a filter that cannot be read is refused.
    runs = _filtered(request)
    if since:
        newer = _newer(runs, since)
        words = _words(request)
        if words:
            newer = newer.where(matching(words))
        count = _count_news(newer, tab, _statuses_of(tab))
    number = str(count)
    if count == NEWS:
        number = f"{NEWS} or more"
    noun = "run" if count == 1 else "runs"
    return JsonResponse({"count": count, "text": f"{number} new {noun}. Show them"})


def _newer(runs: VisibleRuns, since: UUID) -> VisibleRuns:
    """Return the runs that were started after one, whose id sorts by time."""
    newer = runs.where(Q(id__gt=since))
    moment = made_at(since)
    if moment is None:
        return newer
    # Only with this bound can the indexes by time be used.
    return newer.filter(created_at__gt=moment - CLOCKS_DIFFER)


def _count_news(newer: VisibleRuns, tab: str, statuses: frozenset[str] | None) -> int:
    """Return how many of these runs the tab has, at most `NEWS`. One query."""
    newer = newer.order_by()
    parts = {"": newer[:NEWS]}
    if statuses is not None:
        # Those of one status are found by the index, those of several are not.
        parts = {name: _of_tab(newer, tab, name)[:NEWS] for name in statuses}
    of_part = count_each(parts, most=NEWS)
    return min(NEWS, sum(of_part.values()))


def _counts(runs: VisibleRuns) -> dict[str, int]:
    """Return how many runs each tab has, "" for all of them: at most one more than
    `MOST_COUNTED`. Two queries.
    """
    first_runs = runs.order_by()[: counts.MOST_COUNTED + 1]
    first_statuses = list(first_runs.values_list("status", flat=True))
    # Few runs are read once. Of many, each status has its own place in the index.
    if len(first_statuses) <= counts.MOST_COUNTED:
        return _counts_of_few(runs, Counter(first_statuses))
    return _counts_of_many(runs)


def _counts_of_few(runs: VisibleRuns, of_status: Mapping[str, int]) -> dict[str, int]:
    of_tab = {"": sum(of_status.values())}
    for name, _, statuses in TABS:
        of_tab[name] = sum(of_status.get(status, 0) for status in statuses)

    # A fork that nobody has started is paused, and asks nobody.
    unstarted = 0
    if of_status.get(Status.PAUSED):
        unstarted = runs.named_by(not_started())[: counts.MOST_COUNTED].count()
    of_tab[UNSTARTED] = unstarted
    of_tab[REVIEW] -= unstarted
    return of_tab


def _counts_of_many(runs: VisibleRuns) -> dict[str, int]:
    most = counts.MOST_COUNTED + 1
    runs = runs.order_by()
    parts = {}
    for name, _, statuses in TABS:
        for status in statuses:
            parts[f"{name} {status}"] = _of_tab(runs, name, status)[:most]
    of_part = count_each(parts, most=most)
    # All tabs together have more runs than are counted.
    of_tab = {"": counts.MOST_COUNTED + 1}
    for name, _, statuses in TABS:
        of_tab[name] = sum(of_part[f"{name} {status}"] for status in statuses)
    return of_tab


def _of_tab(runs: VisibleRuns, tab: str, status: str) -> VisibleRuns:
    """Return the runs of a tab that have one of its statuses."""
    if tab == UNSTARTED:
        # Few of all runs, which an index has, whoever may see them.
        return runs.named_by(not_started())
    of_tab = runs.with_status([status])
    if tab == REVIEW:
        return of_tab.where(~not_started())
    return of_tab


def _first_rows(
    runs: VisibleRuns,
    tab: str,
    statuses: frozenset[str] | None,
    *,
    limit: int,
) -> list[Run]:
    """Return the first runs of a tab in the order of the list. One query for each of
    its statuses.
    """
    runs = runs.only(*COLUMNS)
    if statuses is None:
        return list(runs[:limit])
    # The index has the runs of one status in the order of the list. Those of several
    # would all be read and sorted.
    rows: dict[UUID, Run] = {}
    for status in statuses:
        for run in _of_tab(runs, tab, status)[:limit]:
            # A run that changed its status between two queries is in both.
            rows[run.id] = run
    newest_first = sorted(
        rows.values(), key=attrgetter("created_at", "id"), reverse=True
    )
    return newest_first[:limit]


def _know_keys_of(rows: list[Run]) -> None:
    """Load the data keys of the runs whose list entry shows the progress of the current
    node, or why the run stopped.
    """
    data_keys.know_keys_of(
        run for run in rows if run.status == Status.RUNNING or run.error_code
    )


def _filtered(request: HttpRequest) -> VisibleRuns:
    """Return the runs that this person may see and that match the filters, on all tabs
    and pages and whatever is searched for. Raises `InvalidValue`.
    """
    matching_runs = notes.with_metadata(Run.objects.all(), _metadata(request))
    runs = VisibleRuns.of(request.user, matching_runs)
    span = SPANS.get(request.GET.get("started", ""))
    if span:
        _, longest = span
        runs = runs.filter(created_at__gte=timezone.now() - longest)
    graph = request.GET.get("graph", "")
    if graph:
        runs = runs.filter(graph=graph)
    return runs


def _words(request: HttpRequest) -> str:
    """Return the words that are searched for, empty for none."""
    return request.GET.get("q", "").strip()[:LONGEST_SEARCH]


def _searched(request: HttpRequest, runs: VisibleRuns) -> Search:
    """Return the runs among these that a search finds; all of them without one."""
    words = _words(request)
    if not words:
        return Search(runs, end=None)
    return search(runs, words)


def _metadata(request: HttpRequest) -> dict[str, str]:
    """Return the metadata that narrows the list: name -> text.

    Raises `InvalidValue`.
    """
    _, metadata = split_filters(request.GET.dict())
    return metadata


def _metadata_filters(request: HttpRequest) -> list[dict[str, str]]:
    """Return the metadata that narrows the list, each with the address of the list
    without it.
    """
    filters: list[dict[str, str]] = []
    for name, text in _metadata(request).items():
        parameter = PARAMETER + name
        without = _query(request, **{parameter: ""})
        entry = {
            "parameter": parameter,
            "name": name,
            "text": text,
            "without": without,
        }
        filters.append(entry)
    return filters


def graphs_to_choose(user: Any) -> list[str]:
    """Return the names of the registered graphs; for a person without a role, those of
    the runs that this person may see.
    """
    if permissions.has_role(user):
        return sorted({compiled.name for compiled in registry.all()})
    return sorted(visible_graphs(user))


def _before(runs: VisibleRuns, cursor: str) -> VisibleRuns:
    """Return the runs after the last one of a page, all without a cursor. Raises
    `InvalidValue`.
    """
    if not cursor:
        return runs
    at, last = read_position(cursor)
    if at is None:
        message = "“before” names no run; follow the links of the list"
        raise InvalidValue(message, path="before")
    # Of runs of one moment the id decides. The index can use the other bound alone.
    is_older = Q(created_at__lt=at) | Q(id__lt=last)
    return runs.where(is_older).filter(created_at__lte=at)


def _uuids(texts: Iterable[str]) -> Iterator[UUID]:
    for text in texts:
        try:
            yield UUID(text)
        except ValueError:
            continue


def _query(request: HttpRequest, **changed: str) -> str:
    """Return the query of the list with some parameters changed; empty ones are left
    out.
    """
    parameters = {name: request.GET.get(name, "") for name in FILTERS}
    for name, text in _metadata(request).items():
        parameters[PARAMETER + name] = text
    parameters |= changed
    return urlencode({name: text for name, text in parameters.items() if text})


def _tabs(
    request: HttpRequest,
    tab: str,
    of_tab: dict[str, int],
) -> Iterable[dict[str, Any]]:
    labels = [("", "All")]
    labels += [(name, label) for name, label, _ in TABS]
    for name, label in labels:
        # The tab of forks that were not started is shown only if there are any, or if
        # it is the chosen one.
        if name == UNSTARTED and not of_tab[name] and name != tab:
            continue
        yield {
            "label": label,
            "count": of_tab[name],
            "on": name == tab,
            "query": _query(request, status=name, before=""),
        }
