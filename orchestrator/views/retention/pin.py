"""The page that pins a checkpoint, so that retention leaves it alone, or removes its
pin; either with a reason.
"""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from approvals.views.page import may_post, single_fields, visible_run
from checkpoints import retention, timeline
from checkpoints.models import Checkpoint, Pin
from checkpoints.models.legal_hold import LONGEST_REASON
from checkpoints.retention import holds
from orchestrator.engine.errors import InvalidValue, UnknownThing
from orchestrator.views.act_page import ActPage

PIN = "pin"
UNPIN = "unpin"


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
@single_fields()
def pin_page(request: HttpRequest, checkpoint: str) -> HttpResponse:
    """Show whether the checkpoint is pinned, by whom and why; once posted with `do`
    (pin or unpin) and a reason, do it.
    """
    point = _visible_checkpoint(request, checkpoint)
    may = may_post(request, point.run, "manage_retention", refusal="refused_pin")
    return _PinPage(request, point, may=may).answer()


class _PinPage(ActPage):
    template = "orchestrator/pin.html"
    longest_reason = LONGEST_REASON

    def __init__(
        self, request: HttpRequest, checkpoint: Checkpoint, *, may: bool
    ) -> None:
        super().__init__(request, checkpoint.run, may=may)
        self.checkpoint = checkpoint

    def facts(self) -> dict[str, Any]:
        return {
            "point": self.checkpoint,
            "pinned": lasting_pin(self.checkpoint),
            "most": LONGEST_REASON,
        }

    def act(self) -> HttpResponse:
        # The page names the act, since the pin may have changed since it was opened.
        act = self.request.POST.get("do", "")
        if act not in (PIN, UNPIN):
            raise InvalidValue("Choose pin or unpin")
        if not self.reason:
            raise InvalidValue("Enter a reason")

        if act == PIN:
            changed = self._pin()
            state = "pinned"
        else:
            changed = self._unpin()
            state = "unpinned"
        if not changed:
            text = f"Nothing was changed: it was already {state}."
            messages.warning(self.request, text)
        address = reverse("run", args=[self.run.id])
        return redirect(f"{address}?at={self.checkpoint.seq}")

    def _pin(self) -> bool:
        """Return whether the checkpoint was pinned now. A pin that was added since the
        page was opened keeps its own reason.
        """
        _, is_new = holds.pin_or_find(
            self.checkpoint.id, by=self.request.user, reason=self.reason
        )
        return is_new

    def _unpin(self) -> bool:
        return retention.unpin(
            self.checkpoint.id, by=self.request.user, reason=self.reason
        )


def lasting_pin(point: Checkpoint) -> Pin | None:
    """Return the pin of a checkpoint with its author, None if it is not pinned."""
    return lasting_pins(point).select_related("by").first()


def lasting_pins(point: Checkpoint) -> "QuerySet[Pin]":
    """Return the query for the pin of a checkpoint."""
    return Pin.objects.filter(checkpoint=point.id, released_at=None)


def _visible_checkpoint(request: HttpRequest, checkpoint: str) -> Checkpoint:
    try:
        point = timeline.get_checkpoint(checkpoint)
    except UnknownThing as error:
        raise Http404(error.message) from error
    # Raises the same 404 for a checkpoint whose run this person may not see.
    visible_run(request.user, point.run_id)
    return point
