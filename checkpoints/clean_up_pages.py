"""Clean up now: three pages of the Django admin (choose, dry run, confirm), and the page of the job behind them.
Looking needs a view permission of policies, acting `checkpoints.manage_retention`.
"""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET, require_http_methods

from checkpoints import retention
from checkpoints.models import Job, RetentionPolicy, Run
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs
from checkpoints.retention import policy_schedules, prune_job, rights
from checkpoints.retention.dry_runs import DryRun, example_runs
from checkpoints.retention.kept_points import REMOVED
from checkpoints.retention.stock import AGES, stock
from orchestrator.engine.errors import CountersignError, WrongStatus

FOLDER = "admin/checkpoints/retentionpolicy"
MOST_TYPED = 2**53
BY_ITSELF = "by-itself"
"""The name of the button that confirms a policy and removes nothing now."""


def pages_of(site: admin.AdminSite) -> list[URLPattern]:
    """The addresses, each behind the log-in of the admin."""
    places: dict[str, tuple[Any, str]] = {
        "clean-up/": (choose, "clean_up"),
        "<int:policy>/dry-run/": (show_dry_run, "clean_up_dry_run"),
        "<int:policy>/confirm/": (confirm, "clean_up_confirm"),
        "jobs/<uuid:job>/": (show_job, "clean_up_job"),
        "jobs/<uuid:job>/<str:act>/": (act_on_job, "clean_up_act"),
    }
    return [path(route, site.admin_view(view), name=name) for route, (view, name) in places.items()]


def may_look(user: Any) -> bool:
    """Whether a user may see policies and what they would remove."""
    return bool(user.has_perm(rights.PERMISSION) or user.has_perm("checkpoints.view_retentionpolicy"))


class CountField(forms.IntegerField):
    """A number that may be typed as pages show it, with separators."""

    def to_python(self, value: Any) -> int | None:
        """Return the number without its separators."""
        text = str(value if value is not None else "")
        number: int | None = super().to_python(text.replace(",", "").replace(" ", ""))
        return number


class Typed(forms.Form):
    """The number of checkpoints that the dry run showed, typed once more, which confirms a removal."""

    seen = forms.IntegerField(min_value=0, max_value=MOST_TYPED, widget=forms.HiddenInput)
    typed = CountField(
        min_value=0,
        max_value=MOST_TYPED,
        label="Number of checkpoints",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def clean(self) -> dict[str, Any]:
        """Both numbers are the same."""
        given = super().clean() or {}
        if not self.errors and given["typed"] != given["seen"]:
            self.add_error("typed", f"This is not the number: {given['seen']:,} checkpoints would be removed.")
        return given


@require_GET
def choose(request: HttpRequest) -> HttpResponse:
    """Page 1: what there is of each graph, and its policy."""
    _require_look(request)
    policies = {policy.graph: policy for policy in RetentionPolicy.objects.all()}
    rows = [{**one, "policy": policies.pop(one["graph"], None)} for one in stock()]
    shown = {"rows": rows, "others": list(policies.values()), "ages": AGES, "may_act": _may_act(request)}
    return _page(request, "clean_up", "Clean up now", **shown)


@require_GET
def show_dry_run(request: HttpRequest, policy: int) -> HttpResponse:
    """Page 2: what a policy would remove, and why everything else stays."""
    _require_look(request)
    row = get_object_or_404(RetentionPolicy, id=policy)
    try:
        found = retention.dry_run(row)
    except CountersignError as error:
        messages.error(request, f"The policy says nothing clear: {error.message}")
        return redirect("admin:checkpoints_retentionpolicy_change", row.pk)
    reasons = [{**one, "word": word} for word, one in found.reasons.items() if word not in REMOVED]
    shown = {
        "policy": row,
        "found": found,
        "reasons": reasons,
        "examples": example_runs(row, found) if found.examples else [],
        "schedule": retention.schedules_of([row])[row.graph],
        "by_itself": BY_ITSELF,
        "may_act": _may_act(request),
        "under_way": _under_way(row),
    }
    return _page(request, "dry_run", f"Dry run: {row.graph}", **shown)


@require_http_methods(["GET", "POST"])
def confirm(request: HttpRequest, policy: int) -> HttpResponse:
    """Page 3: the number of checkpoints is typed; where the count has moved, the dry run is offered again."""
    _require_look(request)
    if not _may_act(request):
        raise PermissionDenied
    row = get_object_or_404(RetentionPolicy, id=policy)
    found = retention.dry_run(row)
    form = Typed(request.POST or None, initial={"seen": found.counts["checkpoints"]})
    if form.is_valid():
        try:
            return _confirmed(request, row, form.cleaned_data["seen"])
        except WrongStatus as moved:
            messages.error(request, f"Nothing was removed. {moved.message}.")
            return redirect("admin:clean_up_dry_run", row.pk)
        except CountersignError as refused:
            form.add_error(None, refused.message)
    shown = {
        "policy": row,
        "found": found,
        "form": form,
        "schedule": retention.schedules_of([row])[row.graph],
        "by_itself": BY_ITSELF,
    }
    status = 422 if form.is_bound else 200
    return _page(request, "confirm", f"Remove history of {row.graph}?", status, **shown)


def _confirmed(request: HttpRequest, policy: RetentionPolicy, seen: int) -> HttpResponse:
    """Begin the removal, or only let the policy act from its next turn on. Either way its dry run has been seen."""
    if request.POST.get("act") == BY_ITSELF:
        retention.confirm_policy(policy, by=request.user, confirmed=seen)
        messages.success(request, f"The policy of {policy.graph} is confirmed and acts by itself once a day.")
        return redirect("admin:checkpoints_retentionpolicy_changelist")
    job = retention.prune(policy, by=request.user, confirmed=seen)
    policy_schedules.note_confirmed(policy, by=request.user, checkpoints=seen)
    return redirect("admin:clean_up_job", job.id)


@require_GET
def show_job(request: HttpRequest, job: UUID) -> HttpResponse:
    """How far a removal has got. It goes on whether or not anybody looks."""
    _require_look(request)
    row = get_object_or_404(Job, id=job, kind=prune_job.KIND)
    place = row.progress.get("place") or {}
    seconds = float(place.get("seconds") or 0)
    facts = {
        "done": row.progress.get("done", 0),
        "total": row.progress.get("total") or row.facts.get("total", 0),
        "rate": place.get("rows", 0) / seconds if seconds else None,
        "live": row.status in LIVE,
        "paused": jobs.is_paused(row),
        "may_act": _may_act(request),
        **{name: Run.objects.filter(id__in=place.get(name, ())).only("id", "key") for name in ("bad", "referred")},
    }
    return _page(request, "job", f"Cleaning up {row.facts['graph']}", job=row, place=place, **facts)


@require_http_methods(["GET", "POST"])
def act_on_job(request: HttpRequest, job: UUID, act: str) -> HttpResponse:
    """Pause a removal, let it go on, or stop it. Whoever had to sign in first arrives by GET, without his choice,
    and is told so.
    """
    _require_look(request)
    if request.method == "GET":
        messages.warning(request, "Nothing was changed: your choice did not arrive. Press the button again.")
        return redirect("admin:clean_up_job", job)
    acts = {"pause": lambda: jobs.pause_job(job), "continue": lambda: jobs.continue_job(job)}
    acts["stop"] = lambda: prune_job.stop(job, by=request.user)
    if act not in acts or not Job.objects.filter(id=job, kind=prune_job.KIND).exists():
        raise Http404
    if not _may_act(request):
        raise PermissionDenied
    if not acts[act]():
        messages.warning(request, "Nothing was changed: the job had ended or was not paused.")
    return redirect("admin:clean_up_job", job)


def _require_look(request: HttpRequest) -> None:
    if not may_look(request.user):
        raise Http404


def _may_act(request: HttpRequest) -> bool:
    return bool(request.user.has_perm(rights.PERMISSION))


def _under_way(policy: RetentionPolicy) -> Job | None:
    return Job.objects.filter(kind=prune_job.KIND, facts__graph=policy.graph, status__in=LIVE).first()


def words_of(found: DryRun) -> str:
    """Return a dry run as half a sentence."""
    points = _counted(found.counts["checkpoints"], "checkpoint")
    runs = _counted(found.counts["runs"], "whole run")
    return f"{points} and {runs} would be removed today"


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _page(request: HttpRequest, name: str, title: str, status: int = 200, /, **context: Any) -> HttpResponse:
    shown = {**admin.site.each_context(request), "title": title, **context}
    return TemplateResponse(request, f"{FOLDER}/{name}.html", shown, status=status)
