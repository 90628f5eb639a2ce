"""One line of the audit log, and what stands behind it: what the person saw, what it became, and the seals of both."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from approvals import audit
from approvals.audit_words import VERDICTS, kind_name, sentence_of, with_full_names
from approvals.models import Decision
from approvals.views import comparison
from approvals.views.audit.page import HIGHEST, full_names_in
from approvals.views.page import read_number, render
from approvals.views.write_cards import LARGE, Shown, first_page
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_or_reason, read_value, unreadable_reason
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import UNREADABLE, UnknownThing

SHOWN = 20
"""Decisions on one page."""
COLUMNS = ("old_value", "proposed_value", "final_value")


@dataclass(slots=True)
class ShownValue:
    """Two values side by side, or one alone, as the parts of a review show them."""

    anchor: str
    shown: Shown
    beside: tuple[()] = ()


@dataclass(slots=True)
class ShownDecision:
    """A decision as it was made. `changes` are what it was about; `unread` says why they are not shown."""

    row: Decision
    word: str
    reason: str
    seal: str
    fault: SealFault | None
    changes: list[ShownValue]
    unread: str = ""


@login_required
@require_safe
def audit_line_page(request: HttpRequest, number: int) -> HttpResponse:
    """A line for who may see it and its run; everybody else learns that there is none."""
    try:
        line: Any = audit.find_line(request.user, number) if number <= HIGHEST else None
    except UnknownThing as error:
        raise Http404(error.message) from error
    if line is None:
        raise Http404("there is no such line")
    behind = audit.evidence_of(line)
    first = SHOWN * ((read_number(request.GET.get("page", "")) or 1) - 1)
    decisions = list(behind.decisions)
    context = {
        "line": line,
        "title": kind_name(line.kind),
        "text": sentence_of(line.kind, with_full_names(line.facts, full_names_in([line]))),
        "run_name": audit.run_name_of(line),
        "fault": fault_of(line, PLAIN),
        "seal": bytes(line.seal or b"").hex(),
        "facts": list(_facts(line, behind)),
        "decisions": [_shown(n, one, behind.protection) for n, one in enumerate(decisions[first : first + SHOWN])],
        "count": len(decisions),
        "earlier": first // SHOWN if first else 0,
        "later": first // SHOWN + 2 if len(decisions) > first + SHOWN else 0,
        "event": behind.event,
        "event_fault": fault_of(behind.event, behind.protection) if behind.event else None,
        "event_gone": audit.number_in(line, "seq") is not None
        and line.kind not in audit.DECIDED
        and behind.event is None,
    }
    return render(request, "approvals/audit_line.html", context, section="audit")


def _tells_of_event(line: Any) -> bool:
    return line.kind not in audit.DECIDED and audit.number_in(line, "seq") is not None


def _facts(line: Any, behind: audit.Evidence) -> Iterator[tuple[str, Any]]:
    """What the line itself says, and what the run's log says of it."""
    said = line.facts if isinstance(line.facts, dict) else {"facts": line.facts}
    said = {name: fact for name, fact in said.items() if name not in ("heads", "bad")}
    if behind.event is not None:
        told = read_or_reason(behind.event, "payload") or {}
        said |= told if isinstance(told, dict) else {"refused": told}
    for name, fact in said.items():
        yield name.replace("_", " "), fact


def _shown(number: int, row: Decision, protection: Protection) -> ShownDecision:
    fault = fault_of(row, protection)
    seal = bytes(row.seal or b"").hex()
    made = ShownDecision(row, VERDICTS.get(row.verdict, row.verdict).capitalize(), "", seal, fault, [])
    sizes = [len(bytes(getattr(row, name))) for name in COLUMNS]
    try:
        made.reason = str(read_value(row, "reason") or "")
        if max(sizes) > LARGE:
            made.unread = f"Its values have {sum(sizes):,} bytes. The API gives them with the decisions of the run."
        else:
            made.changes = list(_changes(f"d{number}", row))
    except UNREADABLE as error:
        made.unread = f"Its value {unreadable_reason(error)}."
    return made


def _changes(anchor: str, row: Decision) -> Iterator[ShownValue]:
    """What was there beside what was proposed; and beside that what it became, where that is something else."""
    old, proposed = read_value(row, "old_value"), read_value(row, "proposed_value")
    yield ShownValue(anchor, first_page(comparison.compare(old, proposed, heads=("Before", "Proposed"))))
    if row.final_value and bytes(row.final_value) != bytes(row.proposed_value):
        final = read_value(row, "final_value")
        yield ShownValue(f"{anchor}-f", first_page(comparison.compare(proposed, final, heads=("Proposed", "Final"))))
