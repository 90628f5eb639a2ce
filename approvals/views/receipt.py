"""The receipt of a signing: a stable address whose meaning never changes."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from approvals import inbox, permissions
from approvals.models import ApprovalRequest, Receipt, RequestStatus
from approvals.views.page import render
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import protection_of

LOOKS = {"approve": ("Approved", "check"), "edit": ("Edited", "pen"), "reject": ("Rejected", "x")}
CAME_BACK = {
    "edit": "Came back: somebody edited it after you opened it.",
    "rebase": "Came back: its current value moved after it was proposed.",
    "withdrawn": "Not counted: the question was withdrawn.",
}


@login_required
@require_safe
def receipt_page(request: HttpRequest, receipt_id: UUID) -> HttpResponse:
    """What was signed, what came back, and where to go on. For who signed, and who may read the audit log."""
    receipt = Receipt.objects.select_related("by", "run").filter(id=receipt_id).first()
    if receipt is None or not (receipt.by_id == request.user.pk or permissions.may(request.user, "view_audit")):
        raise Http404("there is no such receipt")
    lines = [_line(line) for line in receipt.lines]
    came_back = [line for line in lines if line["result"] == "came_back"]
    counted = [line for line in lines if line["result"] == "counted"]
    still_open = ApprovalRequest.objects.filter(run=receipt.run, status=RequestStatus.OPEN).exists()
    context = {
        "receipt": receipt,
        "fault": fault_of(receipt, protection_of(receipt.run)),
        "run": receipt.run,
        "lines": lines,
        "title": _title(len(counted), len(came_back), len(lines)),
        "came_back": came_back,
        "still_open": still_open,
        "now": _now(bool(came_back), still_open),
        "next": inbox.waiting_for(request.user).exclude(run=receipt.run).first(),
    }
    return render(request, "approvals/receipt.html", context, section="reviews")


def _title(counted: int, came_back: int, all_lines: int) -> str:
    title = f"{counted} decision{'' if counted == 1 else 's'} signed"
    if came_back:
        title += f", {came_back} came back"
    already = all_lines - counted - came_back
    return f"{title}, {already} already settled" if already else title


def _now(came_back: bool, still_open: bool) -> str:
    if came_back:
        return "What came back has changed since you opened it. Nothing was signed for it: look at it and decide again."
    if still_open:
        return "The run keeps waiting for what is still undecided."
    return "Everything that this run asked is settled. It goes on by itself."


def _line(line: dict[str, Any]) -> dict[str, Any]:
    if line["result"] == "counted":
        text = "Counted."
    elif line["result"] == "came_back":
        text = CAME_BACK.get(line.get("why", ""), "Came back: it changed after you opened it.")
    else:
        by = line.get("by")
        names = ", ".join(by) if isinstance(by, list) else str(by or "somebody else")
        text = f"Already {line.get('why') or 'settled'}, by {names}."
    word, icon = LOOKS[line["verdict"]]
    return {**line, "label": line.get("label") or line["write"], "text": text, "word": word, "icon": icon}
