"""The receipt of a signing: a stable address whose meaning never changes.

The signer keeps the right to see their verdicts and what became of them. The values
that they were about are shown to those who may see the run, as everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Exists, OuterRef
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from approvals import inbox, permissions
from approvals.display import comparison
from approvals.display.value_types import ValueType, type_of_channel, type_of_item
from approvals.exported_receipt import export_receipt, find_exportable
from approvals.models import (
    NO_AUTO,
    NO_STANDING,
    NO_VETO,
    VETO,
    ApprovalRequest,
    Decision,
    Receipt,
    RequestStatus,
)
from approvals.people.standing_policies import limits_in_words
from approvals.results.earlier_askings import EffectEnding, endings_of
from approvals.results.effect_results import effect_results
from approvals.views.asked_before import ending_in_words
from approvals.views.inbox import name_of, names_of, time_of
from approvals.views.page import read_page, refuses_unreadable_filters, render
from approvals.views.people.comment_box import (
    ShownComment,
    comments_of_requests,
)
from approvals.views.reports import Reported, reported_on
from approvals.views.write_cards import LARGE, Shown, first_page
from checkpoints import versions
from checkpoints.core.plural import counted
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value, unreadable_reason
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import UNREADABLE, UnknownThing
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.write import named_effect, stored_form
from orchestrator.engine.registry import ASKING

PAGE = 20
"""The most writes on one page of a receipt."""
LOOKS = {
    "approve": ("Approved", "check"),
    "edit": ("Edited", "pen"),
    "reject": ("Rejected", "x"),
    "skip": ("Skipped", "slash"),
}
SETTLED_BY = {"approve": "approved", "reject": "rejected", "skip": "skipped"}
"""The state of a write that is settled by a verdict. Where a write is in it, the
receipt need not add to the verdict.
"""
CAME_BACK = {
    "edit": "Came back: somebody edited it after you opened it.",
    "rebase": "Came back: its current value moved after it was proposed.",
    "texts": (
        "Came back: an edit of another write changed the title or the facts beside it."
    ),
    "withdrawn": "Not counted: the question was withdrawn.",
}
CLOSED = (
    "You may not see this run any more, so your receipt shows your verdicts without"
    " what they were about."
)
KEPT = (
    "Your edit is what is proposed now. It counts as nobody's approval: under four eyes"
    " somebody else must sign it."
)
EXCLUDED = (
    "Not counted: you had edited this write, and under four eyes somebody else must"
    " approve or reject it."
)


@dataclass(slots=True)
class SignedWrite:
    """One write of the receipt. `shown` is the value that was signed, beside the
    proposal if they differ, and `effect` the one that the write named itself. `before`:
    the people who had signed the same revision, with
    their verdicts.
    """

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
    effect: str = ""
    shown: Shown | None = None
    differs: bool = False
    unread: str = ""
    beside: tuple[()] = ()
    decision: UUID | None = None
    confirmed_by: str = ""
    delegator: str = ""
    before: list[str] = field(default_factory=list)
    reported: Reported | None = None

    @property
    def anchor(self) -> str:
        return f"w{self.number}"

    @property
    def against(self) -> bool:
        """Return whether nothing may happen after this verdict."""
        return self.verdict in ("reject", "skip")


@login_required
@require_safe
@refuses_unreadable_filters
def receipt_page(request: HttpRequest, receipt_id: UUID) -> HttpResponse:
    """Show what was signed, what came back, and where to go on: to the signer, and to
    those who may read the audit log and see the run. A signer who may no longer see the
    run gets verdicts and results alone.
    """
    receipt, sees_run = _readable_receipt(request.user, receipt_id)
    run = receipt.run
    number = read_page(request)
    start = (number - 1) * PAGE
    lines = _lines(receipt, start) if sees_run else _verdicts(receipt, start)
    _add_decisions(lines, receipt)
    askings = _requests_of(receipt, run)
    if sees_run:
        _add_what_followed(lines, askings, receipt)

    results = [line["result"] for line in receipt.lines]
    came_back = "came_back" in results
    still_open = sees_run and _has_open_request(run)
    earlier = number - 1 if number > 1 else None
    later = number + 1 if start + PAGE < len(receipt.lines) else None
    context = {
        "receipt": receipt,
        "fault": fault_of(receipt, protection_of(run)),
        "run": run if sees_run else None,
        "lines": lines,
        "title": _title(results),
        "count": len(receipt.lines),
        "earlier": earlier,
        "later": later,
        "came_back": came_back,
        "still_open": still_open,
        "now": _now(askings, sees_run, came_back, still_open),
        "comments": _comments_on(askings, sees_run=sees_run),
        "came_of_it": _came_of_it(askings, sees_run=sees_run),
        "answers": _answers_in_words(askings, sees_run=sees_run),
        "next": inbox.waiting_for(request.user, first=1, beside=run.id).first(),
    }
    return render(request, "approvals/receipt.html", context, section="reviews")


def _readable_receipt(user: Any, receipt_id: UUID) -> tuple[Receipt, bool]:
    """Return the receipt, and whether the person may see its run. Raises `Http404`."""
    receipt = Receipt.objects.select_related("by", "run").filter(id=receipt_id).first()
    if receipt is None:
        raise Http404("there is no such receipt")
    # Rights may have been withdrawn since the signing; the signature remains theirs.
    sees_run = permissions.may_see_run(user, receipt.run)
    if receipt.by_id != user.pk and not _may_read(user, sees_run):
        raise Http404("there is no such receipt")
    return receipt, sees_run


def _may_read(user: Any, sees_run: bool) -> bool:
    """Return whether a person may read the receipts of others."""
    return sees_run and permissions.may(user, "view_audit")


def _add_decisions(lines: Sequence[SignedWrite], receipt: Receipt) -> None:
    """Add to each line the id of its decision, which can be exported, how that was
    confirmed, and for whom it was made.
    """
    decisions = Decision.objects.filter(receipt=receipt)
    columns = ("write", "id", "confirmed_by", "delegator_name")
    by_write = {write: rest for write, *rest in decisions.values_list(*columns)}
    for line in lines:
        # A verdict that did not count has left no decision.
        if UUID(line.write) in by_write:
            columns_of_line = by_write[UUID(line.write)]
            line.decision, line.confirmed_by, line.delegator = columns_of_line


def _add_earlier_signatures(lines: Sequence[SignedWrite], receipt: Receipt) -> None:
    """Add to each line who had signed the same revision before. One query."""
    own = Decision.objects.filter(
        receipt=receipt, write=OuterRef("write"), revision=OuterRef("revision")
    )
    earlier = Decision.objects.filter(
        Exists(own.filter(event_seq__gt=OuterRef("event_seq"))),
        write__in=[line.write for line in lines],
        by__isnull=False,
    )
    signed: dict[str, dict[Any, str]] = {line.write: {} for line in lines}
    for decision in earlier.select_related("by").order_by("event_seq"):
        # Whoever had signed twice counts by what they signed last.
        if decision.by_id != receipt.by_id:
            words = _signer_in_words(decision)
            signed[str(decision.write)][decision.by_id] = words
    for line in lines:
        line.before = list(signed[line.write].values())


def _add_what_followed(
    lines: Sequence[SignedWrite], requests: Sequence[ApprovalRequest], receipt: Receipt
) -> None:
    """Add to each line who had signed before, and what whoever asked reported of it."""
    if any(request.quorum > 1 for request in requests):
        _add_earlier_signatures(lines, receipt)
    reported = reported_on(requests)
    for line in lines:
        line.reported = reported.get(UUID(line.write))


def _signer_in_words(decision: Decision) -> str:
    """Return who signed, for whom, and what: "Ben, for rita (approved)"."""
    word, _ = LOOKS[decision.verdict]
    name = name_of(decision.by)
    if decision.delegator_name:
        name += f", for {decision.delegator_name}"
    return f"{name} ({word.lower()})"


MOST_ASKINGS = 20
"""The most requests of one act whose outcomes a receipt shows."""


def _requests_of(receipt: Receipt, run: Run) -> list[ApprovalRequest]:
    """Return the requests on which a receipt has decisions, as they were asked."""
    signed = Decision.objects.filter(receipt=receipt).values("request")
    rows = ApprovalRequest.objects.filter(id__in=signed).order_by("opened_at", "id")
    requests = list(rows[:MOST_ASKINGS])
    for request in requests:
        request.run = run
    return requests


def _came_of_it(
    requests: Sequence[ApprovalRequest], *, sees_run: bool
) -> list[tuple[str, bool]]:
    """Return what came of what was signed: a sentence for each effect, and whether
    a person should look at it. Errors are values of the run, for those who may see it.
    """
    came_of_it: list[tuple[str, bool]] = []
    results = effect_results(requests)
    for request in requests:
        endings = [EffectEnding(result) for result in results[request.id]]
        if sees_run:
            endings = endings_of(request, results[request.id])
        for ending in endings:
            came_of_it.append((ending_in_words(ending), ending.is_bad))
    return came_of_it


SAID = {
    VETO: "The veto of the gate kept {writes} open",
    NO_VETO: "The veto of the gate let {writes} pass",
    NO_AUTO: "The policy of the gate left {writes} to people",
    "approve": "The policy of the gate approved {writes}",
}
"""The words of what the functions of a gate have answered, by verdict."""
SAID_STANDING = {
    NO_AUTO: "Standing policies left {writes} to people",
    "approve": "{signer}{within} approved {writes}",
}
"""The same of standing policies."""


def _answers_in_words(
    requests: Sequence[ApprovalRequest], *, sees_run: bool
) -> list[tuple[str, bool]]:
    """Return what the automatic policies and vetoes of these requests have answered: a
    sentence for each time, and whether it keeps something open; without reasons for
    whoever may not see the run. One query, none for gates with neither. Each request
    has its run.
    """
    answering = {"auto", "standing", "veto"}
    by_id = {row.id: row for row in requests if row.policy.keys() & answering}
    if not by_id:
        return []
    rows = Decision.objects.filter(request__in=by_id, checked__isnull=False)
    by_time: dict[tuple[object, ...], list[Decision]] = {}
    for row in rows.order_by("event_seq"):
        key = (row.request_id, row.at, row.verdict, row.signer_name)
        by_time.setdefault(key, []).append(row)
    sentences: list[tuple[str, bool]] = []
    for answers in by_time.values():
        first = answers[0]
        request = next(row for row in by_id.values() if row.id == first.request_id)
        words = _words_of_answer(first).format(
            writes=counted(len(answers), "write"),
            signer=_signer(first),
            within=_limits_of(first, sees_run=sees_run),
        )
        reason = _reason_of(request, first) if sees_run else ""
        end = f": {reason}" if reason else "."
        sentence = f"{words} at {time_of(first.at)}{end}"
        sentences.append((sentence, first.verdict == VETO))
    return sentences


def _words_of_answer(answer: Decision) -> str:
    """Return the words of an answer, without who signed and how many writes."""
    if answer.standing or answer.by_name == NO_STANDING:
        return SAID_STANDING[answer.verdict]
    return SAID[answer.verdict]


def _limits_of(answer: Decision, *, sees_run: bool) -> str:
    """Return the limits and the end of a standing policy that signed, in parentheses."""
    if not answer.standing or not sees_run:
        return ""
    limits = limits_in_words(answer.standing["limits"])
    until = f"until {str(answer.standing.get('ends', ''))[:10]}"
    return f" ({', '.join(filter(None, [limits, until]))})"


def _signer(answer: Decision) -> str:
    """Return who answered, as the beginning of a sentence."""
    name = answer.signer_name
    return name[:1].upper() + name[1:]


def _reason_of(request: ApprovalRequest, answer: Decision) -> str:
    try:
        sealed_rows.verify_row(answer, protection_of(request.run))
        return str(read_value(answer, "reason") or "")
    except UNREADABLE as error:
        return f"its reason {unreadable_reason(error)}"


def _comments_on(
    requests: Sequence[ApprovalRequest], *, sees_run: bool
) -> Sequence[ShownComment]:
    """Return the newest comments on these requests, none for whoever may not see the
    run.
    """
    if not requests or not sees_run:
        return ()
    return comments_of_requests(requests[0].run, requests)


def _has_open_request(run: Run) -> bool:
    requests = ApprovalRequest.objects.filter(run=run, status=RequestStatus.OPEN)
    return requests.exists()


@login_required
@require_safe
def receipt_file(request: HttpRequest, decision: UUID) -> HttpResponse:
    """Return one decision as a signed file, to those for whom `find_exportable` finds
    it; others get 404. A HEAD exports nothing.
    """
    try:
        # An export leaves a line in the audit log, which a HEAD must not.
        if request.method == "HEAD":
            find_exportable(decision, by=request.user)
            return HttpResponse(content_type="application/json")
        file = export_receipt(decision, by=request.user)
    except UnknownThing as error:
        raise Http404(error.message) from error
    except UNREADABLE as error:
        return HttpResponse(
            f"{error.message}\n", status=409, content_type="text/plain; charset=utf-8"
        )
    headers = {"Content-Disposition": f'attachment; filename="receipt-{decision}.json"'}
    return HttpResponse(file, content_type="application/json", headers=headers)


def _title(results: Sequence[str]) -> str:
    """Return how many decisions counted and how many did not, and why."""
    # A kept edit was signed as well, though it approves nothing.
    signed = results.count("counted") + results.count("kept")
    decisions = "1 decision" if signed == 1 else f"{signed} decisions"
    parts = [f"{decisions} signed"]
    words = {
        "kept": "does not count as an approval",
        "excluded": "not counted",
        "came_back": "came back",
        "already": "already settled",
    }
    for result, word in words.items():
        if result in results:
            parts.append(f"{results.count(result)} {word}")
    return ", ".join(parts)


def _now(
    requests: Sequence[ApprovalRequest],
    sees_run: bool,
    came_back: bool,
    still_open: bool,
) -> str:
    """Return how the run goes on, for those who may see it."""
    if not sees_run:
        return CLOSED
    if came_back:
        return (
            "What came back has changed since you opened it. Nothing was signed for it:"
            " look at it and decide again."
        )
    if still_open:
        return "The run keeps waiting for what is still undecided."
    if any(request.graph == ASKING for request in requests):
        return "Everything is decided. Whoever asked acts on what was approved."
    return "Everything is decided. The run continues on its own."


def _lines(receipt: Receipt, start: int) -> list[SignedWrite]:
    """Return the lines of a page with the signed revisions and what the nodes had
    proposed. One query for both; large values are left out.
    """
    entries = receipt.lines[start : start + PAGE]
    # A line of the receipt has the hash of the revision, not its value.
    writes = [entry["write"] for entry in entries]
    rows = PendingWrite.objects.filter(
        run=receipt.run_id, write__in=writes, size__lte=LARGE
    )
    revisions = {(str(row.write), row.revision): row for row in rows}
    context = _Context(
        revisions,
        _names_in(receipt),
        protection_of(receipt.run),
        versions.graph_for(receipt.run),
    )
    lines = []
    for number, entry in enumerate(entries, start=start + 1):
        lines.append(_line(number, entry, context))
    return lines


def _verdicts(receipt: Receipt, start: int) -> list[SignedWrite]:
    """Return the lines without anything of the run: no label, no value, no row of it is
    read.
    """
    names = _names_in(receipt)
    lines = []
    entries = receipt.lines[start : start + PAGE]
    for number, entry in enumerate(entries, start=start + 1):
        lines.append(_plain(number, entry, names, label=f"Write {number}"))
    return lines


def _names_in(receipt: Receipt) -> dict[str, str]:
    """Return the names of the people whom the receipt mentions, by account."""
    accounts: list[str] = []
    for entry in receipt.lines:
        accounts += entry.get("by") or ()
    return names_of(accounts)


@dataclass(frozen=True, slots=True)
class _Context:
    """The data that the lines of a receipt are drawn with: the revisions of its writes,
    people by account, and their graph.
    """

    revisions: Mapping[tuple[str, int], PendingWrite]
    names: Mapping[str, str]
    protection: Protection
    compiled: Compiled | None


def _line(number: int, entry: dict[str, Any], context: _Context) -> SignedWrite:
    label = entry.get("label") or entry["write"]
    line = _plain(number, entry, context.names, label=label)
    row = context.revisions.get((line.write, entry["revision"]))
    if row is None:
        return line
    first = context.revisions.get((line.write, 1))
    # The proposal is missing if it is too large to be compared.
    rows = [row] if first is None else [row, first]
    try:
        # Otherwise anyone who can change a row could have another value shown as signed.
        sealed_rows.verify_rows(rows, context.protection)
        _fill(line, row, first, context)
    except UNREADABLE as error:
        line.unread = f"Its value {unreadable_reason(error)}."
    return line


def _plain(
    number: int,
    entry: dict[str, Any],
    names: Mapping[str, str],
    *,
    label: str,
) -> SignedWrite:
    word, icon = LOOKS[entry["verdict"]]
    return SignedWrite(
        number,
        write=entry["write"],
        hash=entry["hash"],
        result=entry["result"],
        word=word,
        icon=icon,
        verdict=entry["verdict"],
        text=_text(entry, names),
        label=label,
    )


def _fill(
    line: SignedWrite,
    row: PendingWrite,
    first: PendingWrite | None,
    context: _Context,
) -> None:
    """Add the value that was signed, beside the proposal where they differ."""
    shown = read_value(row, "shown") or {}
    line.label = str(shown.get("label") or line.label)
    line.as_proposed = str(shown.get("as_proposed") or "")
    line.effect = named_effect(stored_form(shown))
    # Other verdicts signed no value that could be shown.
    if line.result not in ("counted", "kept"):
        return
    value = read_value(row, "value")
    declared = _declared(row, shown, context.compiled)
    is_question = "ask" in shown
    line.word = _word(line, is_question)
    is_edited = row.author_id is not None and not is_question
    line.differs = first is not None and is_edited
    # An edited value is shown with the changes that people made to the proposal.
    if first is not None and line.differs:
        proposed = read_value(first, "value")
        change = comparison.compare(
            proposed, value, heads=("Proposed", "Signed"), declared=declared
        )
    else:
        change = comparison.alone(value, declared=declared)
    line.shown = first_page(change)


def _declared(
    row: PendingWrite, shown: Mapping[str, Any], compiled: Compiled | None
) -> ValueType:
    """Return the type of a write's value; the caller's type for a question without a
    graph.
    """
    if compiled is not None and compiled.name == ASKING:
        return type_of_item(stored_form(shown))
    return type_of_channel(compiled, row.node, row.channel)


def _word(line: SignedWrite, is_question: bool) -> str:
    """Return the word of a verdict: a question is answered, not edited."""
    return "Answered" if is_question and line.verdict == "edit" else line.word


def _text(entry: dict[str, Any], names: Mapping[str, str]) -> str:
    """Return what became of a verdict."""
    if entry["result"] == "counted":
        return _counted(entry)
    # Nothing was signed, since the write is not what this person saw.
    if entry["result"] == "came_back":
        return CAME_BACK.get(
            entry.get("why", ""), "Came back: it changed after you opened it."
        )
    if entry["result"] == "kept":
        return KEPT
    if entry["result"] == "excluded":
        return EXCLUDED
    people = [names[account] for account in entry.get("by") or ()]
    by = ", ".join(people) or "the system"
    return f"Already {entry.get('why') or 'settled'}, by {by}."


def _counted(entry: dict[str, Any]) -> str:
    """Return how far the write is, where its verdict does not already imply it."""
    sentences = []
    settled = entry.get("settled")
    if settled:
        if settled != SETTLED_BY.get(entry["verdict"]):
            together = " together with another" if entry.get("rejected_with") else ""
            sentences.append(f"Counts. This write is {settled}{together}.")
    elif entry["verdict"] != "reject" and entry.get("needed", 0) > 1:
        sentences.append(
            f"Counts: {entry['signatures']} of {entry['needed']} signatures."
        )
    else:
        sentences.append("Counts. This write needs more signatures.")
    if entry.get("again"):
        sentences.append("Your earlier verdict on it is replaced: you count once.")
    return " ".join(sentences)
