"""What floor 2 knows of a run, examined: decisions, requests and receipts against their seals, the log and each other.

An examiner of `checkpoints.verification`; reads only.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Model

from approvals.gates import request_state, waivers
from approvals.models import ApprovalRequest, Decision, Receipt, RequestReviewer, RequestStatus
from checkpoints.db.pages import pages
from checkpoints.models import PendingWrite, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.verification import Fault, Subject
from checkpoints.verification.line_facts import facts_of
from orchestrator.engine.errors import CountersignError, TamperedRow

_LINES = ("request_opened", "decision_signed", waivers.LINE, "write_rebased", "texts_changed", "request_settled")
_CLOSED = {"applied": "gate_applied", "withdrawn": "request_withdrawn", "expired": "request_expired"}
"""The line that says what became of a request, by its status."""
_DECIDED = {False: "decision_signed", True: waivers.LINE}
"""The line that a decision names, by whether it says that none was needed."""
_JUDGED = (RequestStatus.OPEN, RequestStatus.SETTLED, RequestStatus.APPLIED)
"""Statuses that follow from the decisions; the others say that nobody decides any more."""


def approvals(subject: Subject) -> Iterator[Fault]:
    """Decisions, then what the log says of decisions, requests and writes, then requests and receipts."""
    yield from _decisions(subject)
    yield from _lines(subject)
    yield from _requests(subject)
    yield from subject.seals_of(Receipt.objects.filter(run=subject.run.id))


def _decisions(subject: Subject) -> Iterator[Fault]:
    run, count = subject.run, 0
    for page in pages(Decision.objects.filter(run=run.id), "id"):
        count += len(page)
        made = RunEvent.objects.filter(run=run.id, type__in=_DECIDED.values(), seq__in={row.event_seq for row in page})
        lines = set(made.values_list("seq", "type"))
        for row in page:
            fault = subject.seal_of(row)
            said = (row.event_seq, _DECIDED[row.verdict == waivers.VERDICT]) in lines
            if fault is None and not said and row.event_seq not in subject.removed.events:
                fault = subject.fault(row, f"has no line {row.event_seq} in the log")
            if fault is not None:
                yield fault
        yield from _missing(subject, Receipt, {row.receipt_id for row in page if row.receipt_id})
    if count != run.decisions:
        yield subject.fault(run, f"counts {run.decisions} decisions, but {count} are there")


def _missing(subject: Subject, model: type[Model], ids: set[UUID]) -> Iterator[Fault]:
    there = set(model._base_manager.filter(run=subject.run.id, id__in=ids).values_list("id", flat=True))
    for one in sorted(ids - there):
        yield subject.gone(model, f"{subject.run.id} {one}")


def _lines(subject: Subject) -> Iterator[Fault]:
    """Each line about an act of people has its rows."""
    for page in pages(RunEvent.objects.filter(run=subject.run.id, type__in=_LINES), "seq"):
        logged = [(line, facts) for line in page if (facts := _facts(subject, line)) is not None]
        yield from _signed(subject, [line for line, _ in logged if line.type == "decision_signed"])
        unasked = {UUID(one) for _, facts in logged for one in facts.get("decisions", ())}
        yield from _missing(subject, Decision, unasked)
        requests = {UUID(facts["request"]) for _, facts in logged if "request" in facts}
        yield from _missing(subject, ApprovalRequest, requests)
        yield from _revised(subject, [one for line, facts in logged for one in _revisions(line, facts)])


def _facts(subject: Subject, line: RunEvent) -> dict[str, Any] | None:
    """What a line says; None where it cannot be read, which the log's own examiner has named."""
    return facts_of(subject, line) if subject.seal_of(line) is None else None


def _signed(subject: Subject, lines: Sequence[RunEvent]) -> Iterator[Fault]:
    numbers = {line.seq for line in lines}
    there = set(Decision.objects.filter(run=subject.run.id, event_seq__in=numbers).values_list("event_seq", flat=True))
    for line in lines:
        if line.seq not in there:
            by = line.actor or "the system"
            yield subject.gone(Decision, f"{subject.run.id} of {by} on {line.task}, signed in line {line.seq},")


def _revisions(line: RunEvent, facts: dict[str, Any]) -> list[tuple[UUID, int]]:
    """The revisions of writes that a line speaks of."""
    if line.type == "request_opened":
        return [(UUID(write), 1) for write in facts["writes"]]
    return [(UUID(facts["write"]), facts["revision"])] if "revision" in facts else []


def _revised(subject: Subject, named: Sequence[tuple[UUID, int]]) -> Iterator[Fault]:
    rows = PendingWrite.objects.filter(run=subject.run.id, write__in={write for write, _ in named})
    there = set(rows.values_list("write", "revision"))
    for write, revision in dict.fromkeys(named):
        if (write, revision) not in there:
            yield subject.gone(PendingWrite, f"{subject.run.id} {write} {revision}")


def _requests(subject: Subject) -> Iterator[Fault]:
    for page in pages(ApprovalRequest.objects.filter(run=subject.run.id), "id"):
        asked: dict[UUID, list[str]] = {row.id: [] for row in page}
        for request, name in RequestReviewer.objects.filter(request__in=page).values_list("request_id", "principal"):
            asked[request].append(name)
        for row in page:
            fault = subject.seal_of(row) or _unknown_status(subject, row) or _reviewers(subject, row, asked[row.id])
            fault = fault or _closed(subject, row) or _stands(subject, row)
            if fault is not None:
                yield fault


def _unknown_status(subject: Subject, row: ApprovalRequest) -> Fault | None:
    if row.status in set(RequestStatus):
        return None
    return subject.fault(row, f"has the status {row.status!r}, which is none")


def _reviewers(subject: Subject, row: ApprovalRequest, principals: list[str]) -> Fault | None:
    # Of an imported run nobody is asked here.
    if sorted(principals) == ([] if subject.run.imported else sorted(row.policy["reviewers"])):
        return None
    return subject.fault(row, "names other reviewers than the policy that it was opened under")


def _closed(subject: Subject, row: ApprovalRequest) -> Fault | None:
    """The fault of a request that is closed without a line that says so, or open in spite of one."""
    lines = RunEvent.objects.filter(run=subject.run.id, task=row.task, type__in=_CLOSED.values())
    logged, needed = set(lines.values_list("type", flat=True)), _CLOSED.get(row.status)
    if needed is not None and needed not in logged and subject.removed.events.last <= (row.settled_seq or 0):
        return subject.fault(row, f"says {row.status}, but no line of the log does")
    # A task of the same name on a line that was left has lines of its own.
    if needed is None and logged and subject.run.line == 1:
        return subject.fault(row, f"says {row.status}, but the log says {', '.join(sorted(logged))}")
    return None


def _stands(subject: Subject, row: ApprovalRequest) -> Fault | None:
    """The fault of a request whose status and outcome do not follow from its decisions."""
    if row.status not in _JUDGED:
        return None
    try:
        [asked] = request_state.load_states([row], subject.protection)
    except TamperedRow as error:
        # What is wrong with another row is named there.
        return subject.refused(row, error) if error.facts.get("row") == sealed_rows.name_of(row) else None
    except CountersignError:
        return None
    if row.status != RequestStatus.OPEN and not row.outcome:
        return subject.fault(row, f"says {row.status}, but nothing of what came of it")
    logged = row.outcome or None if row.status != RequestStatus.OPEN else None
    if asked.outcome != logged or (row.status == RequestStatus.OPEN and row.outcome):
        follows = asked.outcome or "nothing yet"
        return subject.fault(row, f"says {row.status} {row.outcome}, but from its decisions follows {follows}")
    return None if logged is None or _settled(subject, row) else subject.fault(row, "has no line that settled it")


def _settled(subject: Subject, row: ApprovalRequest) -> bool:
    """Whether the line that a settled request names is there, of the moment that it says; or was removed."""
    if (row.settled_seq or 0) in subject.removed.events:
        return True
    line = RunEvent.objects.filter(run=subject.run.id, seq=row.settled_seq or 0, type="request_settled").first()
    return line is not None and line.at == row.settled_at
