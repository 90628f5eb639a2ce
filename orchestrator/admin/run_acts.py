"""Actions on several runs at once from the admin: one page for each action, which shows
the runs and what would happen to them, and acts when its form is posted. Reviews are
only opened from there, and decided on their own pages.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

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
from orchestrator.travel.bulk_fork import last_good

MOST = 100
"""The most runs that one page takes; its address has their ids."""
TEMPLATE = "admin/checkpoints/run/act.html"

Verb = Callable[[Run, Any, str], object]


@frozen
class Act:
    """An action on runs: the right that it needs, the sentence that explains it, and
    the verb that does it to each run.
    """

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
    "review": Act(
        "Open reviews",
        right="view_run",
        means="Each review is read and decided on its own page.",
    ),
    "resume": Act(
        "Resume",
        right="steer_run",
        means="Each run goes on from its newest checkpoint.",
        verb=_resume,
    ),
    "cancel": Act(
        "Cancel",
        right="steer_run",
        means="No further node runs. What already happened outside stays.",
        verb=_cancel,
        needs_reason=True,
        danger=True,
    ),
    "fork": Act(
        "Fork failed runs",
        right="steer_run",
        means=(
            "Each failed run is forked from its last good checkpoint. "
            "The failed run stays as it is."
        ),
    ),
    "pin": Act(
        "Pin newest checkpoints",
        right="manage_retention",
        means="No clean-up removes these checkpoints or their runs.",
        verb=_pin,
        needs_reason=True,
    ),
    "hold": Act(
        "Put under a legal hold",
        right="manage_retention",
        means="Nothing of these runs is removed or erased.",
        verb=_hold,
        needs_reason=True,
    ),
    "export": Act(
        "Export",
        right="export_run",
        means="You get one file with a signed bundle for each run.",
    ),
}


class ActForm(forms.Form):
    """A reason, and for several runs their number, which has to be typed."""

    reason = forms.CharField(
        max_length=LONGEST_REASON,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    typed = forms.IntegerField(
        required=False,
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def __init__(self, data: Any, *, act: Act, count: int) -> None:
        super().__init__(data)
        self.count = count
        self.fields["reason"].required = act.needs_reason
        # Steering many runs is hard to undo, so it takes more than one click.
        self.is_counted = count > 1 and act.right == "steer_run"

    def clean_typed(self) -> int | None:
        """Check the number of runs that the page shows."""
        typed: int | None = self.cleaned_data["typed"]
        if self.is_counted and typed != self.count:
            raise forms.ValidationError(
                f"This is not the number: {self.count} runs are selected."
            )
        return typed


@require_http_methods(["GET", "POST"])
def act_on_runs(request: HttpRequest, act: str) -> HttpResponseBase:
    """Show what would be done with the runs that the address names; on a POST, do it
    and show what was refused.
    """
    action = _permitted_action(request, act)
    rows = _visible_runs(request)
    if act == "fork":
        # The page offers to fork failed runs, whatever was selected beside them.
        rows = [run for run in rows if run.status == Status.FAILED]
    is_posted = request.method == "POST"
    form = ActForm(request.POST if is_posted else None, act=action, count=len(rows))
    # Reviews are only opened from here, and decided on their own pages.
    is_acting = is_posted and act != "review"
    if is_acting and rows and form.is_valid():
        return _act(request, act, rows, form.cleaned_data["reason"])
    context = {
        **admin.site.each_context(request),
        "title": action.title,
        "act": act,
        "wanted": action,
        "rows": rows,
        "form": form,
        "plan": _plan(act, rows),
    }
    # A form that was posted comes back with its faults.
    status = 422 if form.is_bound else 200
    return TemplateResponse(request, TEMPLATE, context, status=status)


def _permitted_action(request: HttpRequest, act: str) -> Act:
    """Return the action of that name. Raises `Http404` or `PermissionDenied`."""
    if act not in ACTS:
        raise Http404
    action = ACTS[act]
    if not permissions.may(request.user, action.right):
        raise PermissionDenied
    return action


def _visible_runs(request: HttpRequest) -> list[Run]:
    """Return the runs that the address names, as far as this user may see them. Raises
    `Http404`.
    """
    try:
        ids = {uuid_of(text, "run") for text in request.GET.getlist("run")}
    except CountersignError as error:
        raise Http404 from error
    # The list refuses more; this is an address that a person wrote.
    if not 1 <= len(ids) <= MOST:
        raise Http404
    rows = permissions.visible_among(request.user, Run.objects.filter(id__in=ids))
    rows = rows.defer("input", "error", "progress", "tape")
    return list(rows.order_by("-created_at", "-id"))


def _plan(act: str, rows: list[Run]) -> str:
    """Return what forking these runs would do, counted by kind; "" for other acts.
    Nothing is written.
    """
    if act != "fork":
        return ""
    checkpoints = _last_good_checkpoints(rows)
    if not checkpoints:
        return ""
    return runs.fork_many(checkpoints, dry_run=True).to_text()


def _last_good_checkpoints(rows: Iterable[Run]) -> list[UUID]:
    """Return the last good checkpoint of each of these runs that has one."""
    checkpoints: list[UUID] = []
    for run in rows:
        checkpoint = last_good(run.id)
        if checkpoint is not None:
            checkpoints.append(checkpoint)
    return checkpoints


def _act(
    request: HttpRequest,
    act: str,
    rows: list[Run],
    reason: str,
) -> HttpResponseBase:
    """Apply the act to these runs. Returns a file, or a redirect to the list."""
    if act == "export":
        return _bundles(rows, request.user)
    if act == "fork":
        _fork(request, rows, reason)
    else:
        _act_on_each(request, ACTS[act], rows, reason)
    return redirect("admin:checkpoints_run_changelist")


def _act_on_each(
    request: HttpRequest,
    act: Act,
    rows: list[Run],
    reason: str,
) -> None:
    """Apply the act to each run; a refusal for one run does not stop the others."""
    # Reviews are never acted on, and forks and exports do not come here.
    assert act.verb is not None
    done = 0
    for run in rows:
        try:
            act.verb(run, request.user, reason)
            done += 1
        except CountersignError as refusal:
            message = f"{run_name(run)}: {capfirst(refusal.message)}."
            messages.warning(request, message)
    if done:
        messages.success(request, f"{act.title}: done for {done} of {len(rows)} runs.")


def _fork(request: HttpRequest, rows: list[Run], reason: str) -> None:
    """Queue a job that forks these runs from their last good checkpoints."""
    checkpoints = _last_good_checkpoints(rows)
    user: Any = request.user
    try:
        job: Job = runs.fork_many(checkpoints, reason=reason, by=user)
    except CountersignError as refusal:
        messages.error(request, f"Nothing was forked: {refusal.message}.")
        return
    message = "{} runs are being forked by job {}."
    messages.success(request, format_html(message, len(checkpoints), job.id))


def _bundles(rows: Iterable[Run], by: Any) -> FileResponse:
    """Return the bundles of runs as one file. Instead of a run that is refused, it has
    the reason.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 the answer closes it
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for run in rows:
            _add_bundle(archive, run, by)
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename="runs.zip")


def _add_bundle(archive: zipfile.ZipFile, run: Run, by: Any) -> None:
    # A bundle goes through a file, because a refusal may come after its first lines.
    with tempfile.TemporaryFile() as bundled:
        try:
            bundle.export(run.id, bundled, by=by)
        except CountersignError as refusal:
            reason = f"{run_name(run)}: {refusal.message}\n"
            archive.writestr(f"run-{run.id}.refused.txt", reason)
            return
        bundled.seek(0)
        # In pieces, because a bundle may be larger than the memory. Its size is not
        # known in advance.
        with archive.open(f"run-{run.id}.jsonl", "w", force_zip64=True) as entry:
            shutil.copyfileobj(bundled, entry)
