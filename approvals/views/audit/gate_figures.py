"""The page of figures of gates, for whoever looks after them: how often each asks, how
long it takes, and how people decide.
"""

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.views.decorators.http import require_safe

from approvals import permissions
from approvals.results import figures
from approvals.results.figures import GateFigures
from approvals.views.page import needs_role, refuses_unreadable_filters, render
from orchestrator.engine.errors import InvalidValue

FIELDS = ("graph", "gate", "since")
"""The parameters of the page's address."""


@login_required
@require_safe
@needs_role
@refuses_unreadable_filters
def gate_figures_page(request: HttpRequest) -> HttpResponse:
    """Show the figures of the gates that the address names. Three queries, beside those of
    every page.
    """
    if not figures.may_read(request.user):
        raise PermissionDenied(
            "The figures of gates are for people who see all runs, with the right to read"
            " the audit log or to reassign requests."
        )
    # The form sends empty fields along.
    graph, gate, _ = (request.GET.get(name, "").strip() or None for name in FIELDS)
    rows = figures.figures(graph, gate, _since(request))
    context = {
        "rows": [_shown(row) for row in rows],
        "given": {name: request.GET.get(name, "") for name in FIELDS},
        "narrowed": any(request.GET.get(name) for name in FIELDS),
        "of_newest": figures.MOST_REQUESTS if figures.is_capped(rows) else 0,
        "quick_seconds": int(figures.QUICK.total_seconds()),
        "fewest_signers": figures.FEWEST_SIGNERS,
        "reads_audit": permissions.may(request.user, "view_audit"),
    }
    return render(request, "approvals/gate_figures.html", context, section="audit")


def _shown(row: GateFigures) -> dict[str, Any]:
    """Return the figures of a gate as the page shows them."""
    shown = asdict(row)
    shown["took"] = None
    if row.seconds is not None:
        shown["took"] = timedelta(seconds=row.seconds)
    for name in ("quick", "edited", "rejected"):
        shown[name] = _percent(shown[name])
    return shown


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _since(request: HttpRequest) -> datetime | None:
    """Return the beginning of the day that the address names. Raises `InvalidValue`."""
    text = request.GET.get("since", "").strip()
    if not text:
        return None
    # A day of the right form need not exist: 30 February raises.
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None:
        raise InvalidValue("“since” is a day, as in 2026-11-22", path="since")
    try:
        return timezone.make_aware(datetime(day.year, day.month, day.day))
    # The first days of the calendar have no UTC.
    except (OverflowError, ValueError) as error:
        raise InvalidValue("“since” is too far away", path="since") from error
