"""The page that pins a checkpoint, so that retention leaves it alone, or takes the pin away; each with a reason."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals.views.page import may_post, render, single_fields, visible_run
from checkpoints import retention, timeline
from checkpoints.models import Checkpoint, Pin
from checkpoints.models.legal_hold import LONGEST_REASON
from orchestrator.engine.errors import REFUSALS, UnknownThing

PIN, UNPIN = "pin", "unpin"


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def pin_page(request: HttpRequest, checkpoint: str) -> HttpResponse:
    """Whether the checkpoint is pinned, by whom and why; posted with `do` (pin or unpin) and a reason it is done."""
    point = _visible(request, checkpoint)
    may = may_post(request, point.run, "manage_retention", refusal="refused_pin")
    if request.method != "POST" or not may:
        return _shown(request, point, may, status=403 if request.method == "POST" else 200)
    act, reason = request.POST.get("do", ""), request.POST.get("reason", "").strip()
    if act not in (PIN, UNPIN):
        return _shown(request, point, may, status=422, message="Choose pin or unpin.")
    if not reason:
        return _shown(request, point, may, status=422, message="Enter a reason.")
    try:
        # The pin that lies on it since the page was opened keeps its own words.
        done = _pin(point, request, reason) if act == PIN else retention.unpin(point.id, by=request.user, reason=reason)
    except REFUSALS as error:
        return _shown(request, point, may, status=422, message=f"{error.message}.")
    if not done:
        messages.warning(request, f"Nothing was changed: it was already {'pinned' if act == PIN else 'unpinned'}.")
    return redirect(f"{reverse('run', args=[point.run_id])}?at={point.seq}")


def _pin(point: Checkpoint, request: HttpRequest, reason: str) -> bool:
    there = lasting_pin(point)
    return retention.pin(point.id, by=request.user, reason=reason) != there


def lasting_pin(point: Checkpoint) -> Pin | None:
    """The pin that lies on a checkpoint, with who gave it."""
    return Pin.objects.filter(checkpoint=point.id, released_at=None).select_related("by").first()


def _visible(request: HttpRequest, checkpoint: str) -> Checkpoint:
    try:
        point = timeline.get_checkpoint(checkpoint)
    except UnknownThing as error:
        raise Http404(error.message) from error
    visible_run(request.user, point.run_id)
    return point


def _shown(request: HttpRequest, point: Checkpoint, may: bool, *, status: int = 200, message: str = "") -> HttpResponse:
    context: dict[str, Any] = {"point": point, "run": point.run, "may": may, "message": message}
    context |= {"pinned": lasting_pin(point), "most": LONGEST_REASON}
    context["reason"] = request.POST.get("reason", "")[:LONGEST_REASON]
    return render(request, "orchestrator/pin.html", context, section="runs", status=status)
