"""The page that cancels a run: its progress so far, the effects in flight, and the
reason; and the words about a cancelled run for other pages.
"""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.gates.withdrawal import who_asked
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.inbox import names_of
from approvals.views.page import may_post, single_fields, visible_run
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator import runs
from orchestrator.engine.errors import REFUSALS, InvalidValue
from orchestrator.views.act_page import ActPage


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The name of the person who cancelled a run, and the reason."""

    by: str
    reason: str


def can_be_cancelled(run: Run) -> bool:
    """Return whether cancelling the run would change anything."""
    return not run.cancel_at and run.status not in ENDS | {Status.TAMPERED}


def cancelled(run: Run) -> Cancelled | None:
    """Return who cancelled a run that is cancelled, or about to be; else None."""
    if not run.cancel_at:
        return None
    # No account: the system cancelled it.
    account = who_asked(run.id)
    name = names_of([account]).get(account, "the system")
    return Cancelled(name, _logged_reason(run))


def _logged_reason(run: Run) -> str:
    """Return the reason from the run's log, or why that cannot be read."""
    events = RunEvent.objects.filter(run=run.id, type="cancel_requested")
    event = events.order_by("-seq").first()
    if event is None:
        return ""
    payload = read_or_reason(event, "payload")
    # It is a text, the reason why, if the payload cannot be opened.
    if isinstance(payload, dict):
        return str(payload["reason"] or "")
    return str(payload or "")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def cancel_page(request: HttpRequest, ref: str) -> HttpResponse:
    """Show what cancelling means for this run now; once posted, cancel it."""
    run = visible_run(request.user, ref)
    may = may_post(request, run, "steer_run", refusal="refused_cancel")
    return _CancelPage(request, run, may=may).answer()


class _CancelPage(ActPage):
    template = "orchestrator/cancel.html"

    def facts(self) -> dict[str, Any]:
        requests = ApprovalRequest.objects.filter(
            run=self.run, status=RequestStatus.OPEN
        )
        # Attempts that no checkpoint lists yet.
        attempts = TaskResult.objects.filter(
            run=self.run, line=self.run.line, seq__isnull=True
        ).order_by("id")
        return {
            "possible": can_be_cancelled(self.run),
            "writes": sum(requests.values_list("writes", flat=True)),
            "in_flight": [row.task for row in attempts if row.outcome == Outcome.OPEN],
            "unknown": [row.task for row in attempts if row.outcome == Outcome.UNKNOWN],
        }

    def act(self) -> HttpResponse:
        if not self.reason:
            raise InvalidValue("Say why: the reason is kept in the log")
        try:
            runs.cancel(self.run.id, by=self.request.user, reason=self.reason)  # type: ignore[arg-type]
        except REFUSALS as error:
            # The run's page, not this one: it shows where the run is by now.
            text = f"Not cancelled: {error.message}."
            messages.warning(self.request, text, extra_tags="bad")
        return redirect("run", self.run.id)
