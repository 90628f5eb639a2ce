"""The page that cancels a run: what is done, what will not happen, whether an effect is in flight; and the reason."""

from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.gates.withdrawal import who_asked
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.inbox import names_of
from approvals.views.page import may_post, render, single_fields, visible_run
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator import runs
from orchestrator.engine.errors import REFUSALS


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Who asked to cancel a run, and why."""

    by: str
    reason: str


def can_be_cancelled(run: Run) -> bool:
    """Whether asking would change anything."""
    return not run.cancel_at and run.status not in ENDS | {Status.TAMPERED}


def cancelled(run: Run) -> Cancelled | None:
    """For a run that is cancelled, or about to be."""
    if not run.cancel_at:
        return None
    line = RunEvent.objects.filter(run=run.id, type="cancel_requested").order_by("-seq").first()
    payload = read_or_reason(line, "payload") if line else ""
    # Text, where the payload cannot be opened: why not.
    reason = payload["reason"] if isinstance(payload, dict) else payload
    account = who_asked(run.id)
    return Cancelled(names_of([account]).get(account, "the system"), str(reason or ""))


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def cancel_page(request: HttpRequest, ref: str) -> HttpResponse:
    """What cancelling means for this run now; posted, it is cancelled."""
    run = visible_run(request.user, ref)
    may = may_post(request, run, "steer_run", refusal="refused_cancel")
    if request.method != "POST" or not may:
        return _shown(request, run, may, status=403 if request.method == "POST" else 200)
    reason = request.POST.get("reason", "").strip()
    if not reason:
        return _shown(request, run, may, status=422, message="Say why: the reason is kept in the log.")
    try:
        runs.cancel(run.id, by=request.user, reason=reason)  # type: ignore[arg-type]
    except REFUSALS as error:
        messages.warning(request, f"Not cancelled: {error.message}.", extra_tags="bad")
    return redirect("run", run.id)


def _shown(request: HttpRequest, run: Run, may: bool, *, status: int = 200, message: str = "") -> HttpResponse:
    open_ = ApprovalRequest.objects.filter(run=run, status=RequestStatus.OPEN)
    attempts = TaskResult.objects.filter(run=run, line=run.line, seq__isnull=True).order_by("id")
    context = {
        "run": run,
        "may": may,
        "possible": can_be_cancelled(run),
        "message": message,
        "reason": request.POST.get("reason", ""),
        "writes": sum(open_.values_list("writes", flat=True)),
        "in_flight": [row.task for row in attempts if row.outcome == Outcome.OPEN],
        "unknown": [row.task for row in attempts if row.outcome == Outcome.UNKNOWN],
    }
    return render(request, "orchestrator/cancel.html", context, section="runs", status=status)
