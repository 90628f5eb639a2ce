"""Examines what `approvals` stores about a run: decisions, requests and receipts
against their seals, the log and each other.

One of the examiners of `checkpoints.verification`; reads only.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Model

from approvals import list_columns
from approvals.delegations import BROUGHT_BACK, those_brought_back
from approvals.gates import deadline_faults, request_state, waivers
from approvals.gates.confirmation_faults import unconfirmed
from approvals.models import (
    NO_VETO,
    ApprovalRequest,
    Decision,
    Delegation,
    Door,
    DoorMessage,
    Passkey,
    Receipt,
    RequestClaim,
    RequestReviewer,
    RequestStatus,
    StandingPolicy,
    Webhook,
)
from approvals.people.comment_faults import faults_of_comments
from approvals.people.standing_faults import faults_of_standing_policies
from approvals.silence import tier_faults
from checkpoints.core.outcome_lines import REPORTED
from checkpoints.db.pages import pages
from checkpoints.models import PendingWrite, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN, Protection
from checkpoints.verification import LIST_DIFFERS, Fault, Subject
from checkpoints.verification.line_facts import facts_of
from orchestrator.engine.errors import CountersignError, TamperedRow
from orchestrator.engine.graphs.auto import window_by, window_end
from orchestrator.engine.graphs.effect import APPROVED, REJECTED
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.step.held_patch import PATCH

_EVENTS_OF_PEOPLE = (
    "request_opened",
    "decision_signed",
    waivers.LINE,
    "write_rebased",
    "texts_changed",
    "request_settled",
    REPORTED,
)
_CLOSING_EVENTS = {
    "applied": "gate_applied",
    "withdrawn": "request_withdrawn",
    "expired": "request_expired",
}
"""The event that records how a request was closed, by its status."""
OF_INSTALLATION: tuple[type[Model], ...] = (
    Delegation,
    Door,
    DoorMessage,
    Passkey,
    RequestClaim,
    StandingPolicy,
    Webhook,
)
"""The tables with sealed rows that belong to no single run's record."""
_DECISION_EVENTS = ("decision_signed", waivers.LINE)
_STATUSES_OF_DECISIONS = (
    RequestStatus.OPEN,
    RequestStatus.SETTLED,
    RequestStatus.APPLIED,
)
"""Statuses that follow from the decisions; the others mean that decisions are closed.
"""


def approvals(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of decisions, then of what the log says about decisions,
    requests and writes, then of requests, receipts and comments.
    """
    yield from _faults_of_decisions(subject)
    yield from _rows_missing_for_events(subject)
    yield from _faults_of_requests(subject)
    yield from subject.seals_of(Receipt.objects.filter(run=subject.run.id))
    yield from faults_of_comments(subject)


# Decisions.


def faults_of_seals(model: type[Model]) -> Iterator[SealFault]:
    """Yield the faults of those rows of the installation that do not match their seals."""
    for page in pages(model._default_manager.all(), "id"):
        for row in page:
            fault = fault_of(row, Protection(getattr(row, "encrypted", False)))
            if fault is not None:
                yield fault


def _faults_of_decisions(subject: Subject) -> Iterator[Fault]:
    run = subject.run
    count = 0
    for page in pages(Decision.objects.filter(run=run.id), "id"):
        count += len(page)
        events = _events_of_decisions(subject, page)
        sound: list[Decision] = []
        for row in page:
            fault = subject.seal_of(row) or _missing_event(subject, row, events)
            if fault is not None:
                yield fault
            else:
                sound.append(row)
        yield from unconfirmed(subject, sound)
        yield from _faults_of_delegations(subject, page)
        yield from faults_of_standing_policies(subject, page)
        receipts = {row.receipt_id for row in page if row.receipt_id}
        yield from _missing(subject, Receipt, receipts)
    if count != run.decisions:
        yield subject.fault(
            run, f"counts {run.decisions} decisions, but {count} are there"
        )


def _events_of_decisions(
    subject: Subject, decisions: Sequence[Decision]
) -> set[tuple[int, str]]:
    """Return (number, type) of the events of these decisions that the log has."""
    events = RunEvent.objects.filter(
        run=subject.run.id,
        type__in=_DECISION_EVENTS,
        seq__in={row.event_seq for row in decisions},
    )
    return set(events.values_list("seq", "type"))


def _missing_event(
    subject: Subject, row: Decision, events: Collection[tuple[int, str]]
) -> Fault | None:
    """Return the fault of a decision without an event, unless that was removed."""
    kind = waivers.LINE if row.verdict == waivers.VERDICT else "decision_signed"
    if (row.event_seq, kind) in events or row.event_seq in subject.removed.events:
        return None
    return subject.fault(row, f"has no line {row.event_seq} in the log")


def _faults_of_delegations(
    subject: Subject, decisions: Sequence[Decision]
) -> Iterator[Fault]:
    """Yield a fault for each decision made for another person who never let its person
    decide. Two queries, none if there is no such decision.
    """
    # Policies of another installation stay there.
    if subject.run.imported:
        return
    ids = {row.delegation for row in decisions} - {None}
    if not ids:
        return
    by_id = Delegation.objects.in_bulk(list(ids))
    brought_back = those_brought_back(list(by_id.values()))
    for row in decisions:
        if row.delegation is not None:
            delegation = by_id.get(row.delegation)
            reason = _fault_of_delegation(row, delegation, brought_back)
            if reason:
                yield subject.fault(row, reason)


def _fault_of_delegation(
    row: Decision, delegation: Delegation | None, brought_back: Collection[Delegation]
) -> str:
    """Return what is wrong with the delegation under which a decision was made; empty
    if nothing is.
    """
    if delegation is None:
        return f"has no delegation {row.delegation}"
    fault = fault_of(delegation, PLAIN)
    if fault is not None:
        return f"was made by a delegation that does not verify: {fault.reason}"
    if not _is_by_delegation(row, delegation):
        return "was made by a delegation of other people"
    if delegation in brought_back:
        return f"was made by a delegation that does not verify: {BROUGHT_BACK}"
    return ""


def _is_by_delegation(row: Decision, delegation: Delegation) -> bool:
    return (
        delegation.delegate_id == row.by_id
        and delegation.delegator_id == row.delegator_id
    )


def _missing(subject: Subject, model: type[Model], ids: set[UUID]) -> Iterator[Fault]:
    """Yield a fault for each of these ids that has no row in the run."""
    rows = model._base_manager.filter(run=subject.run.id, id__in=ids)
    existing = set(rows.values_list("id", flat=True))
    for missing_id in sorted(ids - existing):
        yield subject.missing_row(model, f"{subject.run.id} {missing_id}")


# Events of people's acts, each of which has its rows.


def _rows_missing_for_events(subject: Subject) -> Iterator[Fault]:
    events = RunEvent.objects.filter(run=subject.run.id, type__in=_EVENTS_OF_PEOPLE)
    for page in pages(events, "seq"):
        signed: list[RunEvent] = []
        decisions: set[UUID] = set()
        requests: set[UUID] = set()
        revisions: list[tuple[UUID, int]] = []
        for event in page:
            facts = _readable_facts(subject, event)
            if facts is None:
                continue
            if event.type == "decision_signed":
                signed.append(event)
            decisions.update(map(UUID, facts.get("decisions", ())))
            if "request" in facts:
                requests.add(UUID(facts["request"]))
            revisions += _revisions_of(event, facts)

        yield from _decisions_missing(subject, signed)
        yield from _missing(subject, Decision, decisions)
        yield from _missing(subject, ApprovalRequest, requests)
        yield from _revisions_missing(subject, revisions)


def _readable_facts(subject: Subject, event: RunEvent) -> dict[str, Any] | None:
    """Return the facts of an event; None if they cannot be read, which the log's own
    examiner has reported.
    """
    if subject.seal_of(event) is not None:
        return None
    return facts_of(subject, event)


def _revisions_of(event: RunEvent, facts: dict[str, Any]) -> list[tuple[UUID, int]]:
    """Return the revisions of writes that an event mentions."""
    if event.type == "request_opened":
        return [(UUID(write), 1) for write in facts["writes"]]
    if "revision" in facts:
        return [(UUID(facts["write"]), facts["revision"])]
    return []


def _decisions_missing(subject: Subject, events: Sequence[RunEvent]) -> Iterator[Fault]:
    decisions = Decision.objects.filter(
        run=subject.run.id, event_seq__in={event.seq for event in events}
    )
    existing = set(decisions.values_list("event_seq", flat=True))
    for event in events:
        if event.seq in existing:
            continue
        by = event.actor or "the system"
        yield subject.missing_row(
            Decision,
            f"{subject.run.id} of {by} on {event.task}, signed in line {event.seq},",
        )


def _revisions_missing(
    subject: Subject, revisions: Sequence[tuple[UUID, int]]
) -> Iterator[Fault]:
    rows = PendingWrite.objects.filter(
        run=subject.run.id, write__in={write for write, _ in revisions}
    )
    existing = set(rows.values_list("write", "revision"))
    for write, revision in dict.fromkeys(revisions):
        if (write, revision) not in existing:
            yield subject.missing_row(
                PendingWrite, f"{subject.run.id} {write} {revision}"
            )


# Requests.


def _faults_of_requests(subject: Subject) -> Iterator[Fault]:
    for page in pages(ApprovalRequest.objects.filter(run=subject.run.id), "id"):
        reviewers, differing = _reviewers_of(page)
        differing |= list_columns.differing_viewers(subject.run, page)
        for row in page:
            fault = _fault_of_request(subject, row, reviewers.get(row.id, []))
            if fault is None and row.id in differing:
                fault = _not_copied(subject, row)
            if fault is not None:
                yield fault


def _reviewers_of(
    page: Sequence[ApprovalRequest],
) -> tuple[dict[UUID, list[str]], set[UUID]]:
    """Return the reviewers of each request, and the requests that lists may
    misrepresent.
    """
    reviewers: dict[UUID, list[str]] = {}
    differing: set[UUID] = set()
    named = RequestReviewer.objects.filter(request__in=page)
    rows = list_columns.with_copied(named)
    columns = ("request_id", "principal", "is_copied", "graph", "run_status")
    for request_id, principal, is_copied, graph, status in rows.values_list(*columns):
        reviewers.setdefault(request_id, []).append(principal)
        # While a migration is on its way the rows of an older version have no copies.
        lacks_copies = graph is None or status is None
        is_older = lacks_copies and bool(list_columns.missing_triggers())
        if not (is_copied or is_older):
            differing.add(request_id)
    return reviewers, differing


def _fault_of_request(
    subject: Subject, row: ApprovalRequest, reviewers: list[str]
) -> Fault | None:
    """Return the first fault of a request. One is enough: the others follow from it."""
    return (
        subject.seal_of(row)
        or _unknown_status(subject, row)
        or _other_reviewers(subject, row, reviewers)
        or _wrongly_closed(subject, row)
        or _contradicting_decisions(subject, row)
        or tier_faults.wrong_tiers(subject, row)
        or deadline_faults.unmet_deadline(subject, row)
        or deadline_faults.unmet_tier(subject, row)
    )


def _unknown_status(subject: Subject, row: ApprovalRequest) -> Fault | None:
    if row.status in set(RequestStatus):
        return None
    return subject.fault(row, f"has the status {row.status!r}, which is none")


def _other_reviewers(
    subject: Subject, row: ApprovalRequest, reviewers: list[str]
) -> Fault | None:
    # Nobody here is asked about an imported run.
    expected = [] if subject.run.imported else row.reviewers_now
    if sorted(reviewers) == sorted(expected):
        return None
    return subject.fault(
        row, "names other reviewers than the policy that it was opened under"
    )


def _not_copied(subject: Subject, row: ApprovalRequest) -> Fault:
    """Return the fault of a request that lists show otherwise than it is. The copies
    are no record, and are rebuilt: the run is as it was written.
    """
    reason = (
        "stands in lists otherwise than it is, so that inboxes may lack it;"
        " manage.py migrate makes up for it"
    )
    return replace(subject.fault(row, reason), code=LIST_DIFFERS)


def _wrongly_closed(subject: Subject, row: ApprovalRequest) -> Fault | None:
    """Return the fault of a request that is closed without an event that says so, or
    open in spite of one.
    """
    events = RunEvent.objects.filter(
        run=subject.run.id, task=row.task, type__in=_CLOSING_EVENTS.values()
    )
    logged = set(events.values_list("type", flat=True))
    if row.ordinal:
        logged = _without_earlier(subject, row, logged)
    closing_event = _CLOSING_EVENTS.get(row.status)
    if closing_event is not None:
        # The closing event comes after the decision that settled the request, so it may
        # have been removed if the removed events reach past that decision.
        maybe_removed = subject.removed.events.last > (row.settled_seq or 0)
        if closing_event in logged or maybe_removed:
            return None
        return subject.fault(row, f"says {row.status}, but no line of the log does")
    # A task of the same name on a line that was left has separate events.
    if logged and subject.run.line == 1:
        return subject.fault(
            row, f"says {row.status}, but the log says {', '.join(sorted(logged))}"
        )
    return None


def _without_earlier(
    subject: Subject, row: ApprovalRequest, logged: set[str]
) -> set[str]:
    """Return the types of the events that close this request: a task that asks again
    has the events of its earlier requests as well.
    """
    if row.status in (RequestStatus.EXPIRED, RequestStatus.WITHDRAWN):
        return _closing_of(subject, row, _CLOSING_EVENTS[row.status])
    earlier = {"request_expired"}
    # An earlier one may have been withdrawn, when it was re-opened; this one was not.
    if not _closing_of(subject, row, "request_withdrawn"):
        earlier.add("request_withdrawn")
    if row.status != RequestStatus.APPLIED and _was_applied_before(row):
        earlier.add("gate_applied")
    return logged - earlier


def _was_applied_before(row: ApprovalRequest) -> bool:
    """Return whether the same task had an earlier request that was applied: people are
    asked again about what it acts on.
    """
    earlier = ApprovalRequest.objects.filter(
        run=row.run_id,
        line=row.line,
        node=row.node,
        visit=row.visit,
        index=row.index,
        ordinal__lt=row.ordinal,
    )
    return earlier.filter(status=RequestStatus.APPLIED).exists()


def _closing_of(subject: Subject, row: ApprovalRequest, closing: str) -> set[str]:
    """Return the type of the event of this type that records that this very request was
    closed; nothing if there is none.
    """
    events = RunEvent.objects.filter(run=subject.run.id, task=row.task, type=closing)
    for event in events:
        facts = _readable_facts(subject, event)
        if facts is not None and facts["request"] == str(row.id):
            return {event.type}
    return set()


def _contradicting_decisions(subject: Subject, row: ApprovalRequest) -> Fault | None:
    """Return the fault of a request whose status and outcome do not follow from its
    decisions.
    """
    # A deadline or a withdrawal closes a request whatever was decided in it.
    if row.status not in _STATUSES_OF_DECISIONS:
        return None
    try:
        [state] = request_state.load_states([row], subject.protection)
    except TamperedRow as error:
        # A fault of another row is reported with that row.
        if error.facts.get("row") != sealed_rows.name_of(row):
            return None
        return subject.refused(row, error)
    # The same holds for a row whose key is missing: it cannot be judged now.
    except CountersignError:
        return None
    return None if state.was_closed else _fault_of_state(subject, row, state)


def _fault_of_state(
    subject: Subject, row: ApprovalRequest, state: request_state.RequestState
) -> Fault | None:
    """Return the fault of a request whose rows are whole, but do not fit together."""
    if row.status == RequestStatus.OPEN:
        fault = _fault_of_open(subject, row, state.outcome)
    else:
        fault = _fault_of_settled(subject, row, state.outcome)
    return (
        fault
        or deadline_faults.wrong_decision(subject, state)
        or _unasked_veto(subject, state)
        or _unanswered_approval(subject, state)
        or _unknown_policy(subject, state)
        or _early_signature(subject, state)
    )


def _unknown_policy(
    subject: Subject, state: request_state.RequestState
) -> Fault | None:
    """Return the fault of a decision of a policy that the request was not opened under."""
    policy = state.request.policy
    for decision in state.decisions:
        # What is kept of an earlier request was decided under the policy of that one.
        is_own = decision.request_id == state.request.id
        is_permitted = policy.get("standing") if decision.standing else "auto" in policy
        if is_own and decision.by_policy and not is_permitted:
            reason = "is that of a policy, but the request has no such policy"
            return subject.fault(decision, reason)
    return None


def _early_signature(
    subject: Subject, state: request_state.RequestState
) -> Fault | None:
    """Return the fault of what a policy signed before its window was over."""
    if not window_by(state.request.policy):
        return None
    ends: dict[tuple[UUID, int], datetime | None] = {}
    # Earlier revisions too: a policy may have signed one of them.
    writes = [row.write for row in state.writes]
    for row in PendingWrite.objects.filter(write__in=writes):
        ends[row.write, row.revision] = window_end(state.request.policy, row.staged_at)
    for decision in state.decisions:
        end = ends.get((decision.write, decision.revision))
        if end is not None and decision.by_policy and decision.at < end:
            return subject.fault(decision, "was made before its window was over")
    return None


def _unanswered_approval(
    subject: Subject, state: request_state.RequestState
) -> Fault | None:
    """Return the fault of an approval of a question that has no answer."""
    unanswered: set[tuple[UUID, int]] = set()
    for row in state.writes:
        # Most writes have a value, which is looked at first.
        if read_value(row, "value") is None and is_unanswered(read_value(row, "shown")):
            unanswered.add((row.write, row.revision))
    for decision in state.decisions:
        is_approval = decision.verdict == "approve"
        if is_approval and (decision.write, decision.revision) in unanswered:
            return subject.fault(decision, "approves a question that nobody answered")
    return None


def _unasked_veto(subject: Subject, state: request_state.RequestState) -> Fault | None:
    """Return the fault of a request that was applied though its veto has not let each
    approved write pass.
    """
    row = state.request
    if row.status != RequestStatus.APPLIED or "veto" not in row.policy:
        return None
    let_pass: dict[UUID, int] = {}
    for answer in state.answers:
        if answer.verdict == NO_VETO:
            let_pass[answer.write] = answer.event_seq
    for write, standing in state.standings.items():
        if standing.verdict != APPROVED or let_pass.get(write, 0) >= standing.seq:
            continue
        # Nothing of a patch is applied that one of its gates rejected.
        if _is_of_rejected_patch(row):
            return None
        return subject.fault(row, "was applied, but its veto was not asked")
    return None


def _is_of_rejected_patch(row: ApprovalRequest) -> bool:
    """Return whether people have rejected the patch of this request at another gate. One
    query if it is of a patch.
    """
    if row.node != PATCH:
        return False
    siblings = ApprovalRequest.objects.filter(
        run=row.run_id, line=row.line, node=PATCH, visit=row.visit
    )
    # Each is examined separately: its outcome must follow from its decisions.
    rejected = siblings.filter(status=RequestStatus.APPLIED, outcome=REJECTED)
    return rejected.exists()


def _fault_of_open(
    subject: Subject, row: ApprovalRequest, outcome: str | None
) -> Fault | None:
    if outcome is None and not row.outcome:
        return None
    return _other_outcome(subject, row, outcome)


def _fault_of_settled(
    subject: Subject, row: ApprovalRequest, outcome: str | None
) -> Fault | None:
    if not row.outcome:
        return subject.fault(row, f"says {row.status}, but nothing of what came of it")
    if outcome != row.outcome:
        return _other_outcome(subject, row, outcome)
    if not _has_settling_event(subject, row):
        return subject.fault(row, "has no line that settled it")
    return None


def _other_outcome(
    subject: Subject, row: ApprovalRequest, outcome: str | None
) -> Fault:
    return subject.fault(
        row,
        f"says {row.status} {row.outcome}, but from its decisions follows "
        f"{outcome or 'nothing yet'}",
    )


def _has_settling_event(subject: Subject, row: ApprovalRequest) -> bool:
    """Return whether the log has the event that a settled request names, of the moment
    that the request records; or had it and it was removed.
    """
    seq = row.settled_seq or 0
    if seq in subject.removed.events:
        return True
    event = RunEvent.objects.filter(
        run=subject.run.id, seq=seq, type="request_settled"
    ).first()
    return event is not None and event.at == row.settled_at
