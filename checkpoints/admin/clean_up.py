"""Clean up now: three pages of the Django admin (choose, dry run, confirm), and the
page of the job that they start. Viewing needs a view permission of policies, acting
`checkpoints.manage_retention`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET, require_http_methods

from checkpoints import retention
from checkpoints.admin.base import CountField
from checkpoints.core.plural import counted
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
    """Return the URLs, each of which needs a log-in to the admin."""
    views: dict[str, tuple[Any, str]] = {
        "clean-up/": (choose, "clean_up"),
        "<int:policy>/dry-run/": (show_dry_run, "clean_up_dry_run"),
        "<int:policy>/confirm/": (confirm, "clean_up_confirm"),
        "jobs/<uuid:job>/": (show_job, "clean_up_job"),
        "jobs/<uuid:job>/<str:act>/": (act_on_job, "clean_up_act"),
    }
    return [
        path(route, site.admin_view(view), name=name)
        for route, (view, name) in views.items()
    ]


def may_look(user: Any) -> bool:
    """Return whether a user may see policies and what they would remove."""
    return bool(
        user.has_perm(rights.PERMISSION)
        or user.has_perm("checkpoints.view_retentionpolicy")
    )


class Typed(forms.Form):
    """The number of checkpoints that the dry run showed, typed once more, which
    confirms a removal.
    """

    seen = forms.IntegerField(
        min_value=0, max_value=MOST_TYPED, widget=forms.HiddenInput
    )
    typed = CountField(min_value=0, max_value=MOST_TYPED, label="Number of checkpoints")

    def clean(self) -> dict[str, Any]:
        """Require that both numbers are the same."""
        cleaned = super().clean() or {}
        if not self.errors and cleaned["typed"] != cleaned["seen"]:
            self.add_error(
                "typed",
                f"This is not the number: {cleaned['seen']:,} checkpoints "
                "would be removed.",
            )
        return cleaned


@require_GET
def choose(request: HttpRequest) -> HttpResponse:
    """Show page 1: the stock of each graph, and its policy."""
    _require_look(request)
    policies = {policy.graph: policy for policy in RetentionPolicy.objects.all()}
    # The policies that are left over belong to graphs without runs.
    rows = [{**row, "policy": policies.pop(row["graph"], None)} for row in stock()]
    shown = {
        "rows": rows,
        "others": list(policies.values()),
        "ages": AGES,
        "may_act": may_act(request),
    }
    return page(request, "clean_up", "Clean up now", **shown)


@require_GET
def show_dry_run(request: HttpRequest, policy: int) -> HttpResponse:
    """Show page 2: what a policy would remove, and why everything else stays."""
    _require_look(request)
    row = get_object_or_404(RetentionPolicy, id=policy)
    try:
        dry_run = retention.dry_run(row)
    except CountersignError as error:
        return _lead_to_policy(request, row, error)
    reasons = [
        {**count, "word": word}
        for word, count in dry_run.reasons.items()
        if word not in REMOVED
    ]
    shown = {
        "policy": row,
        "found": dry_run,
        "reasons": reasons,
        "examples": example_runs(row, dry_run) if dry_run.examples else [],
        "schedule": retention.schedules_of([row])[row.graph],
        "by_itself": BY_ITSELF,
        "may_act": may_act(request),
        "under_way": _under_way(row),
    }
    return page(request, "dry_run", f"Dry run: {row.graph}", **shown)


@require_http_methods(["GET", "POST"])
def confirm(request: HttpRequest, policy: int) -> HttpResponse:
    """Show page 3, on which the number of checkpoints is typed; if the count has
    changed, lead back to the dry run.
    """
    _require_look(request)
    if not may_act(request):
        raise PermissionDenied
    row = get_object_or_404(RetentionPolicy, id=policy)
    try:
        dry_run = retention.dry_run(row)
    except CountersignError as error:
        return _lead_to_policy(request, row, error)
    form = Typed(request.POST or None, initial={"seen": dry_run.counts["checkpoints"]})
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
        "found": dry_run,
        "form": form,
        "schedule": retention.schedules_of([row])[row.graph],
        "by_itself": BY_ITSELF,
    }
    # A form that was posted comes back with its faults.
    status = 422 if form.is_bound else 200
    return page(request, "confirm", f"Remove history of {row.graph}?", status, **shown)


def _lead_to_policy(
    request: HttpRequest, policy: RetentionPolicy, error: CountersignError
) -> HttpResponse:
    """Redirect to a policy that is not valid, with the reason."""
    messages.error(request, f"The policy says nothing clear: {error.message}")
    return redirect("admin:checkpoints_retentionpolicy_change", policy.pk)


def _confirmed(
    request: HttpRequest, policy: RetentionPolicy, seen: int
) -> HttpResponse:
    """Begin the removal, or only let the policy act from its next turn on. In both
    cases its dry run has been seen.
    """
    if request.POST.get("act") == BY_ITSELF:
        retention.confirm_policy(policy, by=request.user, confirmed=seen)
        messages.success(
            request,
            f"The policy of {policy.graph} is confirmed and acts by itself once a day.",
        )
        return redirect("admin:checkpoints_retentionpolicy_changelist")
    job = retention.prune(policy, by=request.user, confirmed=seen)
    # After the removal, so that a refused one leaves no confirmation.
    policy_schedules.note_confirmed(policy, by=request.user, checkpoints=seen)
    return redirect("admin:clean_up_job", job.id)


@require_GET
def show_job(request: HttpRequest, job: UUID) -> HttpResponse:
    """Show the progress of a removal, which does not depend on this page."""
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
        "may_act": may_act(request),
        "bad": _runs_of(place.get("bad", ())),
        "referred": _runs_of(place.get("referred", ())),
    }
    return page(
        request,
        "job",
        f"Cleaning up {row.facts['graph']}",
        job=row,
        place=place,
        **facts,
    )


def _runs_of(ids: Iterable[str]) -> "QuerySet[Run]":
    return Run.objects.filter(id__in=ids).only("id", "key")


@require_http_methods(["GET", "POST"])
def act_on_job(request: HttpRequest, job: UUID, act: str) -> HttpResponse:
    """Pause, continue or stop a removal. A person who had to sign in first arrives by
    GET, without the choice, and gets a message.
    """
    _require_look(request)
    if request.method == "GET":
        messages.warning(
            request,
            "Nothing was changed: your choice did not arrive. Press the button again.",
        )
        return redirect("admin:clean_up_job", job)
    acts = {
        "pause": partial(jobs.pause_job, job),
        "continue": partial(jobs.continue_job, job),
        "stop": partial(prune_job.stop, job, by=request.user),
    }
    # The verbs take any job; from here only removals are paused or stopped.
    if act not in acts or not Job.objects.filter(id=job, kind=prune_job.KIND).exists():
        raise Http404
    if not may_act(request):
        raise PermissionDenied
    if not acts[act]():
        messages.warning(
            request, "Nothing was changed: the job had ended or was not paused."
        )
    return redirect("admin:clean_up_job", job)


def _require_look(request: HttpRequest) -> None:
    if not may_look(request.user):
        # Whoever may not look must not learn that there is such a page.
        raise Http404


def may_act(request: HttpRequest) -> bool:
    """Return whether the person may change policies, holds and pins, and remove."""
    return bool(request.user.has_perm(rights.PERMISSION))


def _under_way(policy: RetentionPolicy) -> Job | None:
    return Job.objects.filter(
        kind=prune_job.KIND, facts__graph=policy.graph, status__in=LIVE
    ).first()


def words_of(dry_run: DryRun) -> str:
    """Return a dry run as half a sentence."""
    points = counted(dry_run.counts["checkpoints"], "checkpoint")
    runs = counted(dry_run.counts["runs"], "whole run")
    return f"{points} and {runs} would be removed today"


def page(
    request: HttpRequest, name: str, title: str, status: int = 200, /, **context: Any
) -> HttpResponse:
    """Return a page of retention in the admin."""
    shown = {**admin.site.each_context(request), "title": title, **context}
    return TemplateResponse(request, f"{FOLDER}/{name}.html", shown, status=status)
