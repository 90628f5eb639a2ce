"""One line of the audit log with its evidence: the decisions with the values that
people saw and signed, the event of the run's log, and the seals of both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from approvals.audit import reads as audit
from approvals.audit.words import VERDICTS, kind_name, sentence_of, with_full_names
from approvals.display import comparison
from approvals.models import Decision
from approvals.views.audit.page import HIGHEST, full_names_in
from approvals.views.page import read_page, refuses_unreadable_filters, render
from approvals.views.write_cards import LARGE, Shown, first_page
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import (
    read_or_reason,
    read_value,
    unreadable_reason,
)
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from orchestrator.engine.errors import UNREADABLE, UnknownThing

SHOWN = 20
"""The most decisions on one page."""
COLUMNS = ("old_value", "proposed_value", "final_value")


@dataclass(slots=True)
class ShownValue:
    """Two values side by side, or one alone, as the parts of a review show them."""

    anchor: str
    shown: Shown
    beside: tuple[()] = ()


@dataclass(slots=True)
class ShownDecision:
    """A decision as it was made. `changes` are the values that it was about; `unread`
    is the reason why they are not shown.
    """

    row: Decision
    word: str
    reason: str
    seal: str
    fault: SealFault | None
    changes: list[ShownValue]
    unread: str = ""


@login_required
@require_safe
@refuses_unreadable_filters
def audit_line_page(request: HttpRequest, number: int) -> HttpResponse:
    """Show a line to those who may see it and its run; everybody else gets the 404 of a
    line that does not exist.
    """
    line = _line_for(request.user, number)
    evidence = audit.evidence_of(line)
    first = SHOWN * (read_page(request) - 1)
    decisions = list(evidence.decisions)
    on_page = decisions[first : first + SHOWN]
    unanswered = _unanswered(on_page)
    facts = with_full_names(line.facts, full_names_in([line]))
    shown_decisions = []
    for position, decision in enumerate(on_page):
        shown = _shown(
            position,
            decision,
            evidence.protection,
            unanswered=decision.seen_hash in unanswered,
        )
        shown_decisions.append(shown)
    earlier = 0
    if first:
        earlier = first // SHOWN
    later = 0
    if len(decisions) > first + SHOWN:
        later = first // SHOWN + 2
    context = {
        "line": line,
        "title": kind_name(line.kind),
        "text": sentence_of(line.kind, facts),
        "run_name": audit.run_name_of(line),
        "fault": fault_of(line, PLAIN),
        "seal": bytes(line.seal or b"").hex(),
        "facts": list(_facts(line, evidence)),
        "decisions": shown_decisions,
        "count": len(decisions),
        "earlier": earlier,
        "later": later,
        "event": evidence.event,
        "event_fault": _event_fault(evidence),
        "comment": _comment_in(evidence),
        "comment_fault": _comment_fault(evidence),
        "event_gone": _is_event_missing(line, evidence),
    }
    return render(request, "approvals/audit_line.html", context, section="audit")


def _line_for(user: Any, number: int) -> Any:
    # The database refuses a larger number than its column holds.
    if number > HIGHEST:
        raise Http404("there is no such line")
    try:
        return audit.find_line(user, number)
    except UnknownThing as error:
        raise Http404(error.message) from error


def _comment_in(evidence: audit.LineEvidence) -> str:
    """Return the text of the comment that a line is about; empty for other lines."""
    if evidence.comment is None:
        return ""
    return audit.text_of_comment(evidence.comment)


def _comment_fault(evidence: audit.LineEvidence) -> SealFault | None:
    if evidence.comment is None:
        return None
    return fault_of(evidence.comment, evidence.protection)


def _event_fault(evidence: audit.LineEvidence) -> SealFault | None:
    if evidence.event is None:
        return None
    return fault_of(evidence.event, evidence.protection)


def _is_event_missing(line: Any, evidence: audit.LineEvidence) -> bool:
    """Return whether the line names an event that the run's log no longer has."""
    if evidence.event is not None or line.kind in audit.DECIDED:
        return False
    return audit.number_in(line, "seq") is not None


def _facts(line: Any, evidence: audit.LineEvidence) -> Iterator[tuple[str, Any]]:
    """Yield the facts of the line itself, and those that the run's log has on it."""
    facts = dict(line.facts) if isinstance(line.facts, dict) else {"facts": line.facts}
    # These can be long; the export has them.
    facts.pop("heads", None)
    facts.pop("bad", None)
    facts.pop("token", None)
    if evidence.event is not None:
        payload = read_or_reason(evidence.event, "payload") or {}
        # A payload that cannot be read is the reason why, as a text.
        if not isinstance(payload, dict):
            payload = {"refused": payload}
        facts |= payload
    for name, fact in facts.items():
        yield name.replace("_", " "), fact


def _unanswered(decisions: Sequence[Decision]) -> set[str]:
    """Return the hashes of the revisions among those that were decided which are
    questions without an answer: null is no value that was proposed there. One query.
    """
    seen = [decision.seen_hash for decision in decisions]
    writes = [decision.write for decision in decisions]
    hashes: set[str] = set()
    # Writes have an index, hashes have none.
    for row in PendingWrite.objects.filter(write__in=writes, hash__in=seen):
        if pending_writes.is_shown_unanswered(row):
            hashes.add(row.hash)
    return hashes


def _shown(
    number: int, row: Decision, protection: Protection, *, unanswered: bool
) -> ShownDecision:
    shown = ShownDecision(
        row,
        word=VERDICTS.get(row.verdict, row.verdict).capitalize(),
        reason="",
        seal=bytes(row.seal or b"").hex(),
        fault=fault_of(row, protection),
        changes=[],
    )
    sizes = [len(bytes(getattr(row, name))) for name in COLUMNS]
    try:
        shown.reason = str(read_value(row, "reason") or "")
        # Comparing large values would make the page slow.
        if max(sizes) > LARGE:
            shown.unread = (
                f"Its values have {sum(sizes):,} bytes. The API gives them with the"
                " decisions of the run."
            )
        else:
            draw = _answer if unanswered else _changes
            shown.changes = list(draw(f"d{number}", row))
    except UNREADABLE as error:
        shown.unread = f"Its value {unreadable_reason(error)}."
    return shown


def _answer(anchor: str, row: Decision) -> Iterator[ShownValue]:
    """Yield the old value beside the answer, or alone where nobody gave one."""
    old = read_value(row, "old_value")
    if row.final_value:
        final = read_value(row, "final_value")
        change = comparison.compare(old, final, heads=("Before", "Answer"))
    else:
        change = comparison.alone(old)
    yield ShownValue(anchor, first_page(change))


def _changes(anchor: str, row: Decision) -> Iterator[ShownValue]:
    """Yield the old value beside the proposal, and the proposal beside the final value
    if they differ.
    """
    old = read_value(row, "old_value")
    proposed = read_value(row, "proposed_value")
    change = comparison.compare(old, proposed, heads=("Before", "Proposed"))
    yield ShownValue(anchor, first_page(change))
    if not row.final_value or bytes(row.final_value) == bytes(row.proposed_value):
        return
    # An edit: the final value differs from the proposal.
    final = read_value(row, "final_value")
    change = comparison.compare(proposed, final, heads=("Proposed", "Final"))
    yield ShownValue(f"{anchor}-f", first_page(change))
