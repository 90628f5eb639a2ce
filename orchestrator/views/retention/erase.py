"""The page that erases the values of a run: what would go, which runs inherited it, and the name to be typed."""

from typing import Any

from django.apps import apps
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import get_text_list
from django.views.decorators.http import require_http_methods

from approvals.views.page import may_post, render, single_fields, visible_run
from checkpoints import retention
from checkpoints.models import Run
from orchestrator.engine.errors import REFUSALS, CountersignError

MOST_REASON = 10_000


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def erase_page(request: HttpRequest, ref: str) -> HttpResponse:
    """What an erasure would do now; posted with the run's key typed, it is queued. `paths` are lines of a text."""
    run = visible_run(request.user, ref)
    may = may_post(request, run, "manage_retention", refusal="refused_erase")
    if request.method != "POST" or not may:
        return _shown(request, run, may, status=403 if request.method == "POST" else 200)
    if request.POST.get("confirm", "").strip() != run.key:
        return _shown(request, run, may, status=422, message=f"Type {run.key} to confirm.")
    try:
        reason, forks = request.POST.get("reason", "").strip(), "forks" in request.POST
        retention.begin_erasure(run.id, _paths(request), forks, reason, by=request.user)
    except REFUSALS as error:
        return _shown(request, run, may, status=422, message=f"{error.message}.")
    messages.success(request, "The erasure has begun. This page says when it has ended.")
    return redirect("run", run.id)


def _paths(request: HttpRequest) -> list[str] | None:
    given = request.POST.get("paths", request.GET.get("paths", ""))
    return [line.strip() for line in given.splitlines() if line.strip()] or None


def _shown(request: HttpRequest, run: Run, may: bool, *, status: int = 200, message: str = "") -> HttpResponse:
    context: dict[str, Any] = {"run": run, "may": may, "message": message, "paths": "\n".join(_paths(request) or [])}
    context |= {"reason": request.POST.get("reason", "")[:MOST_REASON], "forks": "forks" in request.POST}
    try:
        # Of the whole run: a path that is refused is named above, and the rest of the page stands.
        context["plan"] = plan = retention.plan_erasure(run.id) if may else None
        context["counts"] = _in_words(plan.counts) if plan else ()
        context["summary"] = _summary(plan.counts) if plan else ""
    except CountersignError as error:
        context["refused"] = f"{error.message}."
    return render(request, "orchestrator/erase.html", context, section="runs", status=status)


THINGS = {
    "checkpoint": ("checkpoints_checkpoint",),
    "proposed write": ("checkpoints_pendingwrite",),
    "decision": ("approvals_decision",),
    "result": ("checkpoints_taskresult", "checkpoints_lateresult"),
    "file": ("uploaded files",),
}
"""The places that a steward thinks of, and the tables and sweeps that a plan counts for each."""


def _summary(counts: dict[str, int]) -> str:
    """Return where the values are in a few words, as "11 checkpoints, 4 decisions and 1 file"."""
    words = []
    for thing, places in THINGS.items():
        count = sum(counts.get(place, 0) for place in places)
        if count:
            words.append(f"{count:,} {thing}{'' if count == 1 else 's'}")
    return get_text_list(words, "and") or "the run alone"


def _in_words(counts: dict[str, int]) -> list[tuple[str, int]]:
    """How many of each thing have values of the run: a table by what its rows are called."""
    called = {model._meta.db_table: str(model._meta.verbose_name_plural) for model in apps.get_models()}
    return [(called.get(name, name), count) for name, count in counts.items()]
