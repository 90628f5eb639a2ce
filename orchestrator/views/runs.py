"""The list of runs: tabs by status, filters, pages by key. Reads columns of the run's row only, never a checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.views.page import error_page, render
from checkpoints.core.status import STOPPED, Status
from checkpoints.ledger import notes
from checkpoints.models import Run
from checkpoints.sealing import data_keys
from orchestrator.engine import registry
from orchestrator.engine.errors import InvalidValue
from orchestrator.runs.metadata import PARAMETER, read_pair, split_filters
from orchestrator.views.run_standings import not_started, read_standings

PAGE = 50
UNSTARTED = "unstarted"
"""The tab of forks that were made and not started: paused, as those that ask people, and yet another thing."""
TABS: list[tuple[str, str, frozenset[str]]] = [
    ("review", "Needs review", frozenset({Status.PAUSED})),
    (UNSTARTED, "Not started", frozenset({Status.PAUSED})),
    ("running", "Running", frozenset({Status.RUNNING, Status.QUEUED})),
    ("waiting", "Waiting", frozenset({Status.WAITING})),
    ("stopped", "Stopped", STOPPED),
    ("completed", "Completed", frozenset({Status.COMPLETED})),
    ("rejected", "Rejected", frozenset({Status.REJECTED})),
    ("cancelled", "Cancelled", frozenset({Status.CANCELLED})),
]
SPANS = {
    "hour": ("last hour", timedelta(hours=1)),
    "day": ("last 24 hours", timedelta(days=1)),
    "week": ("last 7 days", timedelta(days=7)),
    "month": ("last 30 days", timedelta(days=30)),
}
"""Word in the address -> its words on the page, and how long ago a run may have started."""
FILTERS = ("status", "graph", "started", "q", "before")
"""What the address of the list may say, beside `metadata.<name>`."""
COLUMNS = (
    "id", "key", "graph", "version", "label", "status", "line", "origin_checkpoint", "head_seq", "event_seq",
    "at_node", "tape", "error_code", "error", "progress", "imported", "created_at", "started_at", "ended_at",
)  # fmt: skip


def refuses_unreadable_filters(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page that says so where it is narrowed by metadata that no run can have."""

    @wraps(view)
    def page(request: HttpRequest) -> HttpResponse:
        try:
            return view(request)
        except InvalidValue as error:
            return error_page(request, "This filter cannot be read", f"{error.message}.", status=400)

    return page


@login_required
@require_safe
@refuses_unreadable_filters
def runs_page(request: HttpRequest) -> HttpResponse:
    """One page of the list."""
    if typed := request.GET.get("metadata", "").strip():
        name, text = read_pair(typed)
        return redirect(f"{reverse('runs')}?{_query(request, before='', **{PARAMETER + name: text})}")
    runs = _filtered(request)
    counts = _counts(runs)
    tab = request.GET.get("status", "")
    wanted = next((statuses for name, _, statuses in TABS if name == tab), None)
    shown = _of_tab(runs, tab, wanted)
    found = list(_before(shown, request.GET.get("before", "")).only(*COLUMNS)[: PAGE + 1])
    _know_keys_of(found)
    read_standings(found[:PAGE], request.user)
    last = found[PAGE - 1] if len(found) > PAGE else None
    context = {
        "rows": found[:PAGE],
        "tabs": list(_tabs(request, tab, counts)),
        "tab": tab if wanted else "",
        "total": counts[tab if wanted else ""],
        "graphs": graphs_to_choose(request.user),
        "graph": request.GET.get("graph", ""),
        "spans": [(name, words) for name, (words, _) in SPANS.items()],
        "started": request.GET.get("started", ""),
        "q": request.GET.get("q", "").strip(),
        "metadata": _metadata_filters(request),
        "older": _query(request, before=f"{last.created_at.isoformat()}~{last.id}") if last else "",
        "newest": _query(request, before="") if request.GET.get("before") else "",
        "news": _query(request, before="", since=str(found[0].id)) if found and not request.GET.get("before") else "",
        "zone": timezone.get_current_timezone_name(),
        "filters": _query(request, before=""),
        "start_url": reverse("graphs") if permissions.has_role(request.user) else "",
        "may_start": permissions.may(request.user, "start_run"),
        "may_import": permissions.may(request.user, "import_run"),
    }
    return render(request, "orchestrator/runs.html", context, section="runs")


@login_required
@require_safe
def runs_rows(request: HttpRequest) -> HttpResponse:
    """The named rows alone, for a list that is on the screen."""
    wanted = list(_uuids(request.GET.getlist("id")[:PAGE]))
    runs = list(permissions.visible_among(request.user, Run.objects.filter(id__in=wanted)).only(*COLUMNS))
    _know_keys_of(runs)
    read_standings(runs, request.user)
    return render(request, "orchestrator/_run_rows.html", {"rows": runs}, section="runs")


@login_required
@require_safe
@refuses_unreadable_filters
def runs_news(request: HttpRequest) -> HttpResponse:
    """How many runs match the list's filters and are newer than its first row."""
    since = next(_uuids([request.GET.get("since", "")]), None)
    tab = request.GET.get("status", "")
    wanted = next((statuses for name, _, statuses in TABS if name == tab), None)
    runs = _filtered(request)
    runs = _of_tab(runs, tab, wanted)
    # Ids of runs sort by time, so the index of the primary key answers.
    count = runs.order_by().filter(id__gt=since)[:100].count() if since else 0
    many = "100 or more" if count == 100 else str(count)
    return JsonResponse({"count": count, "text": f"{many} new run{'' if count == 1 else 's'}. Show them"})


def _counts(runs: "QuerySet[Run]") -> dict[str, int]:
    """Return how many runs each tab has, "" for all of them. Two queries."""
    rows = runs.order_by().values("status").annotate(n=Count("id"))
    of_status = {row["status"]: row["n"] for row in rows}
    counts = {name: sum(of_status.get(status, 0) for status in statuses) for name, _, statuses in TABS}

    # A fork that nobody has started is paused, and asks nobody.
    counts[UNSTARTED] = runs.filter(not_started()).order_by().count() if of_status.get(Status.PAUSED) else 0
    counts["review"] -= counts[UNSTARTED]
    return counts | {"": sum(of_status.values())}


def _of_tab(runs: "QuerySet[Run]", tab: str, statuses: frozenset[str] | None) -> "QuerySet[Run]":
    if statuses is None:
        return runs
    if tab == UNSTARTED:
        return runs.filter(not_started())
    shown = runs.filter(status__in=statuses)
    return shown.exclude(not_started()) if tab == "review" else shown


def _know_keys_of(rows: list[Run]) -> None:
    """Of those of which a list tells what the node in hand reports, or why it stopped."""
    data_keys.know_keys_of(run for run in rows if run.status == Status.RUNNING or run.error_code)


def _filtered(request: HttpRequest) -> "QuerySet[Run]":
    runs = permissions.visible_runs(request.user)
    graph, words = request.GET.get("graph", ""), request.GET.get("q", "").strip()[:200]
    span = SPANS.get(request.GET.get("started", ""))
    if span:
        runs = runs.filter(created_at__gte=timezone.now() - span[1])
    if graph:
        runs = runs.filter(graph=graph)
    if words:
        runs = runs.filter(Q(key__istartswith=words) | Q(label__icontains=words) | _id_prefix(words))
    return notes.with_metadata(runs, _metadata(request))


def _metadata(request: HttpRequest) -> dict[str, str]:
    """The texts by which the list is narrowed, by name. Raises `InvalidValue`."""
    return split_filters(request.GET.dict())[1]


def _metadata_filters(request: HttpRequest) -> list[dict[str, str]]:
    """What the list is narrowed to by metadata, each with the address of the list without it."""
    return [
        {
            "parameter": PARAMETER + name,
            "name": name,
            "text": text,
            "without": _query(request, **{PARAMETER + name: ""}),
        }
        for name, text in _metadata(request).items()
    ]


def graphs_to_choose(user: Any) -> list[str]:
    """The graphs to choose from: those that are registered; for who has no role, those of the runs that he sees."""
    if permissions.has_role(user):
        return sorted({compiled.name for compiled in registry.all()})
    return sorted(set(permissions.visible_runs(user).order_by().values_list("graph", flat=True).distinct()))


def _id_prefix(words: str) -> Q:
    digits = words.replace("-", "").lower()
    if not digits or len(digits) > 32 or set(digits) - set("0123456789abcdef"):
        return Q(pk__in=[])
    return Q(id__gte=UUID(digits.ljust(32, "0")), id__lte=UUID(digits.ljust(32, "f")))


def _before(runs: "QuerySet[Run]", cursor: str) -> "QuerySet[Run]":
    text, _, ident = cursor.partition("~")
    try:
        at, last = parse_datetime(text), UUID(ident)
        if not isinstance(at, datetime) or timezone.is_naive(at):
            return runs
        # A moment near the first or the last may have none in the time zone of the database.
        at = at.astimezone(UTC)
    except (ValueError, OverflowError):
        return runs
    return runs.filter(Q(created_at__lt=at) | Q(created_at=at, id__lt=last))


def _uuids(texts: Iterable[str]) -> Iterator[UUID]:
    for text in texts:
        try:
            yield UUID(text)
        except ValueError:
            continue


def _query(request: HttpRequest, **changed: str) -> str:
    metadata = {PARAMETER + name: text for name, text in _metadata(request).items()}
    kept = {name: request.GET.get(name, "") for name in FILTERS} | metadata | changed
    return urlencode({name: value for name, value in kept.items() if value})


def _tabs(request: HttpRequest, tab: str, counts: dict[str, int]) -> Iterable[dict[str, Any]]:
    for name, label in [("", "All"), *((name, label) for name, label, _ in TABS)]:
        if name == UNSTARTED and not counts[name] and name != tab:
            continue
        query = _query(request, status=name, before="")
        yield {"label": label, "count": counts[name], "on": name == tab, "query": query}
