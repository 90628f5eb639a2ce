"""What can be done with several runs at once from the admin: one page for each, which shows the runs and what would
happen to them, and acts when it is posted. Reviews are opened from there, and decided nowhere but on their own page.
"""

import tempfile
import zipfile
from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.views.decorators.http import require_http_methods

from approvals import permissions
from checkpoints import bundle, retention
from checkpoints.core.ids import uuid_of
from checkpoints.core.status import Status
from checkpoints.models import Job, Run
from checkpoints.models.legal_hold import LONGEST_REASON
from orchestrator import runs
from orchestrator.display.run_names import run_name
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen
from orchestrator.runs.bulk_fork import last_good

MOST = 100
"""Runs that one page takes; their ids stand in its address."""
TEMPLATE = "admin/checkpoints/run/act.html"

Verb = Callable[[Run, Any, str], object]


@frozen
class Act:
    """Something that is done with each of some runs: who may do it, what it means, and the verb."""

    title: str
    right: str
    means: str
    verb: Verb | None = None
    needs_reason: bool = False
    danger: bool = False


def _resume(run: Run, by: Any, reason: str) -> object:
    return runs.resume(run.id, by=by, reason=reason)


def _cancel(run: Run, by: Any, reason: str) -> object:
    return runs.cancel(run.id, by=by, reason=reason)


def _pin(run: Run, by: Any, reason: str) -> object:
    return retention.pin(run.head or "", by=by, reason=reason)


def _hold(run: Run, by: Any, reason: str) -> object:
    return retention.hold(run.id, reason, by=by)


ACTS: dict[str, Act] = {
    "review": Act("Open reviews", "view_run", "Each review is read and decided on its own page."),
    "resume": Act("Resume", "steer_run", "Each run goes on from its newest checkpoint.", _resume),
    "cancel": Act(
        "Cancel", "steer_run", "No further node runs. What already happened outside stays.", _cancel,
        needs_reason=True, danger=True,
    ),
    "fork": Act(
        "Fork failed runs", "steer_run",
        "Each failed run is forked from its last good checkpoint. The failed run stays as it is.",
    ),
    "pin": Act(
        "Pin newest checkpoints", "manage_retention", "No clean-up removes these checkpoints or their runs.", _pin,
        needs_reason=True,
    ),
    "hold": Act(
        "Put under a legal hold", "manage_retention", "Nothing of these runs is removed or erased.", _hold,
        needs_reason=True,
    ),
    "export": Act("Export", "export_run", "You get one file with a signed bundle for each run."),
}  # fmt: skip


class ActForm(forms.Form):
    """A reason, and for several runs their number, typed."""

    reason = forms.CharField(max_length=LONGEST_REASON, required=False, widget=forms.Textarea(attrs={"rows": 3}))
    typed = forms.IntegerField(
        required=False, widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"})
    )

    def __init__(self, given: Any, *, act: Act, count: int) -> None:
        super().__init__(given)
        self.count = count
        self.fields["reason"].required = act.needs_reason
        self.is_counted = count > 1 and act.right == "steer_run"

    def clean_typed(self) -> int | None:
        """Check the number of runs that the page shows."""
        typed: int | None = self.cleaned_data["typed"]
        if self.is_counted and typed != self.count:
            raise forms.ValidationError(f"This is not the number: {self.count} runs are selected.")
        return typed


@require_http_methods(["GET", "POST"])
def act_on_runs(request: HttpRequest, act: str) -> HttpResponseBase:
    """Show what would be done with the runs that the address names; posted, do it and say what was refused."""
    if act not in ACTS:
        raise Http404
    wanted = ACTS[act]
    if not permissions.may(request.user, wanted.right):
        raise PermissionDenied
    rows = _runs(request)
    if act == "fork":
        rows = [run for run in rows if run.status == Status.FAILED]
    sent = request.POST if request.method == "POST" else None
    form = ActForm(sent, act=wanted, count=len(rows))
    if request.method == "POST" and act != "review" and rows and form.is_valid():
        return _done(request, act, rows, form.cleaned_data["reason"])
    context = {
        **admin.site.each_context(request),
        "title": wanted.title,
        "act": act,
        "wanted": wanted,
        "rows": rows,
        "form": form,
        "plan": _fork_plan(rows) if act == "fork" else "",
    }
    return TemplateResponse(request, TEMPLATE, context, status=422 if form.is_bound else 200)


def _runs(request: HttpRequest) -> list[Run]:
    """Return the runs that the address names, as far as this user may see them. Raises `Http404`."""
    try:
        named = {uuid_of(text, "run") for text in request.GET.getlist("run")}
    except CountersignError as error:
        raise Http404 from error
    if not 1 <= len(named) <= MOST:
        raise Http404
    seen = permissions.visible_among(request.user, Run.objects.filter(id__in=named))
    return list(seen.defer("input", "error", "progress", "tape").order_by("-created_at", "-id"))


def _fork_plan(rows: list[Run]) -> str:
    """Return what forking these runs would do, counted by kind; nothing is written."""
    points = [point for run in rows if (point := last_good(run.id)) is not None]
    if not points:
        return ""
    return runs.fork_many(points, dry_run=True).to_text()


def _done(request: HttpRequest, act: str, rows: list[Run], reason: str) -> HttpResponseBase:
    if act == "export":
        return _exported(rows, request.user)
    if act == "fork":
        _fork(request, rows, reason)
    else:
        _each(request, ACTS[act], rows, reason)
    return redirect("admin:checkpoints_run_changelist")


def _each(request: HttpRequest, act: Act, rows: list[Run], reason: str) -> None:
    """Do it with each run; what is refused of one stops no other."""
    assert act.verb is not None
    done = 0
    for run in rows:
        try:
            act.verb(run, request.user, reason)
            done += 1
        except CountersignError as refused:
            messages.warning(request, f"{run_name(run)}: {capfirst(refused.message)}.")
    if done:
        messages.success(request, f"{act.title}: done for {done} of {len(rows)} runs.")


def _fork(request: HttpRequest, rows: list[Run], reason: str) -> None:
    points = [point for run in rows if (point := last_good(run.id)) is not None]
    try:
        job: Job = runs.fork_many(points, reason=reason, by=request.user)  # type: ignore[arg-type]
    except CountersignError as refused:
        messages.error(request, f"Nothing was forked: {refused.message}.")
        return
    messages.success(request, format_html("{} runs are being forked by job {}.", len(points), job.id))


def _exported(rows: list[Run], by: Any) -> FileResponse:
    """Return the bundles of runs as one file. A run that is refused stands in it by its reason."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 the answer closes it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for run in rows:
            with tempfile.TemporaryFile() as bundled:
                try:
                    bundle.export(run.id, bundled, by=by)
                except CountersignError as refused:
                    archive.writestr(f"run-{run.id}.refused.txt", f"{run_name(run)}: {refused.message}\n")
                    continue
                bundled.seek(0)
                archive.writestr(f"run-{run.id}.jsonl", bundled.read())
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename="runs.zip")
