"""The page that re-opens a request under the policy that its graph has now: what would
change, what becomes of the signatures, and the reason.
"""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.models import ApprovalRequest, Decision
from approvals.views.page import may_post, single_fields, visible_run
from checkpoints.db.clock import read_now
from checkpoints.models import Run
from orchestrator.engine.errors import REFUSALS
from orchestrator.runs.reopenings import (
    LONGEST_REASON,
    changes_of_reopening,
    reopen,
)
from orchestrator.views.act_page import ActPage


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def reopen_page(request: HttpRequest, ref: str, request_id: UUID) -> HttpResponse:
    """Show what re-opening a request would change; once posted, re-open it."""
    run = visible_run(request.user, ref)
    target = ApprovalRequest.objects.filter(id=request_id, run=run).first()
    if target is None:
        raise Http404
    # Otherwise it would read the run again.
    target.run = run
    may = may_post(request, run, "reassign", refusal="refused_right")
    return _ReopenPage(request, run, target, may=may).answer()


class _ReopenPage(ActPage):
    template = "orchestrator/reopen.html"
    longest_reason = LONGEST_REASON

    def __init__(
        self, request: HttpRequest, run: Run, target: ApprovalRequest, *, may: bool
    ) -> None:
        super().__init__(request, run, may=may)
        self.target = target

    def facts(self) -> dict[str, Any]:
        why_not = ""
        changes: list[str] = []
        try:
            changes = changes_of_reopening(self.target, at=read_now())
        except REFUSALS as error:
            why_not = f"{error.message.removesuffix('.')}."
        signatures = Decision.objects.filter(request=self.target, by__isnull=False)
        return {
            "target": self.target,
            "why_not": why_not,
            "changes": changes,
            "signers": signatures.order_by().values("by").distinct().count(),
        }

    def act(self) -> HttpResponse:
        reopen(self.target.id, by=self.request.user, reason=self.reason)
        messages.success(self.request, "People are asked again.")
        return redirect("review", self.run.id)
