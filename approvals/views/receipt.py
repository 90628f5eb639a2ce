"""The receipt of a signing: a stable address whose meaning never changes.

Who signed keeps the right to his verdicts and what became of them. What they were about is shown to those who may see
the run, as everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from approvals import inbox, permissions
from approvals.exported_receipt import export_receipt, find_exportable
from approvals.models import ApprovalRequest, Decision, Receipt, RequestStatus
from approvals.views import comparison
from approvals.views.inbox import names_of
from approvals.views.page import read_number, render
from approvals.views.value_types import ValueType, type_of_channel
from approvals.views.write_cards import LARGE, Shown, first_page
from checkpoints import versions
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value, unreadable_reason
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import UNREADABLE, UnknownThing

PAGE = 20
"""Writes on one page of a receipt."""
LOOKS = {"approve": ("Approved", "check"), "edit": ("Edited", "pen"), "reject": ("Rejected", "x")}
SETTLED_BY = {"approve": "approved", "reject": "rejected"}
"""How a write stands that is settled by a verdict: of it the receipt need not say more than the verdict."""
CAME_BACK = {
    "edit": "Came back: somebody edited it after you opened it.",
    "rebase": "Came back: its current value moved after it was proposed.",
    "texts": "Came back: an edit of another write changed the title or the facts beside it.",
    "withdrawn": "Not counted: the question was withdrawn.",
}
CLOSED = "You may not see this run any more, so your receipt shows your verdicts without what they were about."
KEPT = "Your edit is what is proposed now. It counts as nobody's approval: under four eyes somebody else must sign it."
EXCLUDED = "Not counted: you had edited this write, and under four eyes somebody else must approve or reject it."


@dataclass(slots=True)
class Line:
    """One write of the receipt. `shown` is the value that was signed, beside what was proposed where they differ."""

    number: int
    write: str
    hash: str
    result: str
    word: str
    icon: str
    verdict: str
    text: str
    label: str
    as_proposed: str = ""
    shown: Shown | None = None
    differs: bool = False
    unread: str = ""
    beside: tuple[()] = ()
    decision: UUID | None = None

    @property
    def anchor(self) -> str:
        return f"w{self.number}"


@login_required
@require_safe
def receipt_page(request: HttpRequest, receipt_id: UUID) -> HttpResponse:
    """What was signed, what came back, and where to go on. For who signed, and for who may read the audit log and see
    the run. Who signed and may not see the run any more is shown verdicts and results alone.
    """
    receipt = Receipt.objects.select_related("by", "run").filter(id=receipt_id).first()
    if receipt is None:
        raise Http404("there is no such receipt")
    seen = permissions.may_see_run(request.user, receipt.run)
    if receipt.by_id != request.user.pk and not (seen and permissions.may(request.user, "view_audit")):
        raise Http404("there is no such receipt")
    number = max(1, read_number(request.GET.get("page", "")) or 1)
    start = (number - 1) * PAGE
    lines = _lines(receipt, start) if seen else _verdicts(receipt, start)
    results = [line["result"] for line in receipt.lines]
    decided = dict(Decision.objects.filter(receipt=receipt).values_list("write", "id"))
    for line in lines:
        line.decision = decided.get(UUID(line.write))
    came_back = "came_back" in results
    still_open = seen and ApprovalRequest.objects.filter(run=receipt.run, status=RequestStatus.OPEN).exists()
    context = {
        "receipt": receipt,
        "fault": fault_of(receipt, protection_of(receipt.run)),
        "run": receipt.run if seen else None,
        "lines": lines,
        "title": _title(results),
        "count": len(receipt.lines),
        "earlier": number - 1 if number > 1 else None,
        "later": number + 1 if start + PAGE < len(receipt.lines) else None,
        "came_back": came_back,
        "still_open": still_open,
        "now": _now(came_back, still_open) if seen else CLOSED,
        "next": inbox.waiting_for(request.user).exclude(run=receipt.run).first(),
    }
    return render(request, "approvals/receipt.html", context, section="reviews")


@login_required
@require_safe
def receipt_file(request: HttpRequest, decision: UUID) -> HttpResponse:
    """One decision as a signed file. For whom, `find_exportable` says; others get 404. A HEAD exports nothing."""
    try:
        if request.method == "HEAD":
            find_exportable(decision, by=request.user)
            return HttpResponse(content_type="application/json")
        file = export_receipt(decision, by=request.user)
    except UnknownThing as error:
        raise Http404(error.message) from error
    except UNREADABLE as error:
        return HttpResponse(f"{error.message}\n", status=409, content_type="text/plain; charset=utf-8")
    named = {"Content-Disposition": f'attachment; filename="receipt-{decision}.json"'}
    return HttpResponse(file, content_type="application/json", headers=named)


def _title(results: Sequence[str]) -> str:
    signed = results.count("counted") + results.count("kept")
    said = [f"{signed} decision{'' if signed == 1 else 's'} signed"]
    words = {"kept": "does not count as an approval", "excluded": "not counted", "came_back": "came back"}
    said += [f"{results.count(one)} {word}" for one, word in words.items() if one in results]
    return ", ".join(said + ([f"{results.count('already')} already settled"] if "already" in results else []))


def _now(came_back: bool, still_open: bool) -> str:
    if came_back:
        return "What came back has changed since you opened it. Nothing was signed for it: look at it and decide again."
    if still_open:
        return "The run keeps waiting for what is still undecided."
    return "Everything is decided. The run continues on its own."


def _lines(receipt: Receipt, start: int) -> list[Line]:
    """One query for the revisions that were signed, and what the nodes had proposed; large values are left out."""
    shown = receipt.lines[start : start + PAGE]
    writes = [line["write"] for line in shown]
    rows = PendingWrite.objects.filter(run=receipt.run_id, write__in=writes, size__lte=LARGE)
    revisions = {(str(row.write), row.revision): row for row in rows}
    names = names_of(account for line in receipt.lines for account in line.get("by") or ())
    context = _Context(revisions, names, protection_of(receipt.run), versions.graph_for(receipt.run))
    return [_line(number, line, context) for number, line in enumerate(shown, start=start + 1)]


def _verdicts(receipt: Receipt, start: int) -> list[Line]:
    """The lines without anything of the run: no label, no value, no row of it is read."""
    names = names_of(account for line in receipt.lines for account in line.get("by") or ())
    shown = enumerate(receipt.lines[start : start + PAGE], start=start + 1)
    return [_plain(number, line, names, label=f"Write {number}") for number, line in shown]


@dataclass(frozen=True, slots=True)
class _Context:
    """What the lines of a receipt are drawn with: the revisions of its writes, people by account, and their graph."""

    revisions: Mapping[tuple[str, int], PendingWrite]
    names: Mapping[str, str]
    protection: Protection
    compiled: Compiled | None


def _line(number: int, kept: dict[str, Any], context: _Context) -> Line:
    line = _plain(number, kept, context.names, label=kept.get("label") or kept["write"])
    row = context.revisions.get((line.write, kept["revision"]))
    first = context.revisions.get((line.write, 1))
    try:
        if row is not None:
            # Whoever could change what was signed would have it shown as signed.
            sealed_rows.verify_rows([one for one in (row, first) if one is not None], context.protection)
            _fill(line, row, first, type_of_channel(context.compiled, row.channel))
    except UNREADABLE as error:
        line.unread = f"Its value {unreadable_reason(error)}."
    return line


def _plain(number: int, kept: dict[str, Any], names: Mapping[str, str], *, label: str) -> Line:
    word, icon = LOOKS[kept["verdict"]]
    return Line(
        number,
        write=kept["write"],
        hash=kept["hash"],
        result=kept["result"],
        word=word,
        icon=icon,
        verdict=kept["verdict"],
        text=_text(kept, names),
        label=label,
    )


def _fill(line: Line, row: PendingWrite, first: PendingWrite | None, declared: ValueType) -> None:
    shown = read_value(row, "shown") or {}
    line.label = str(shown.get("label") or line.label)
    line.as_proposed = str(shown.get("as_proposed") or "")
    if line.result not in ("counted", "kept"):
        return
    value = read_value(row, "value")
    line.differs = first is not None and row.author_id is not None
    if first is not None and line.differs:
        proposed = read_value(first, "value")
        change = comparison.compare(proposed, value, heads=("Proposed", "Signed"), declared=declared)
    else:
        change = comparison.alone(value, declared=declared)
    line.shown = first_page(change)


def _text(line: dict[str, Any], names: Mapping[str, str]) -> str:
    if line["result"] == "counted":
        return _counted(line)
    if line["result"] == "came_back":
        return CAME_BACK.get(line.get("why", ""), "Came back: it changed after you opened it.")
    if line["result"] in ("kept", "excluded"):
        return KEPT if line["result"] == "kept" else EXCLUDED
    by = ", ".join(names[account] for account in line.get("by") or ()) or "the system"
    return f"Already {line.get('why') or 'settled'}, by {by}."


def _counted(line: dict[str, Any]) -> str:
    """How far the write is, where that is not what its verdict says already."""
    found = []
    if line.get("settled") and line["settled"] != SETTLED_BY.get(line["verdict"]):
        found.append(f"Counts. This write is {line['settled']}.")
    elif not line.get("settled") and line["verdict"] != "reject" and line.get("needed", 0) > 1:
        found.append(f"Counts: {line['signatures']} of {line['needed']} signatures.")
    elif not line.get("settled"):
        found.append("Counts. This write needs more signatures.")
    if line.get("again"):
        found.append("Your earlier verdict on it is replaced: you count once.")
    return " ".join(found)
