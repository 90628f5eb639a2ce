"""The answers of policies, as rows in a runner's slice: a gate's automatic policy, or a
standing policy that a person made, signs once for each revision, as itself and never as a
person, or leaves it to people.

Nothing is written before `insert`, which rides in the commit.
"""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import field, replace
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from approvals.answers.standing_signers import (
    require_reviewers,
    signed_columns,
    signer_of,
)
from approvals.answers.windows import (
    KIND,
    due_writes,
    end_of_window,
    unasked_writes,
)
from approvals.confirmation import needed_for
from approvals.drafts import forget_drafts_of
from approvals.gates.deadline_jobs import due_by_request
from approvals.gates.request_state import RequestState, policy_of
from approvals.models import (
    BY_POLICY,
    NO_AUTO,
    NO_STANDING,
    ApprovalRequest,
    Decision,
    RequestStatus,
    StandingPolicy,
)
from approvals.policies_in_force import take_uses
from approvals.signing import signed_decision
from checkpoints.audit import lines as audit_log
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.models import PendingWrite
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import decrypted
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.verdicts import Held, judge
from orchestrator.engine.gates.verdicts import outcome as outcome_of_request
from orchestrator.engine.graphs.auto import window_by
from orchestrator.engine.graphs.question import is_unanswered

CONFIRMED = "a person must confirm who they are to decide this"
UNANSWERED = "only a person can answer this"
REJECTED = "a person has rejected this"
DECIDED = "a person has decided this before it could be signed by itself"


@frozen
class PolicyAnswer:
    """The answer of a gate's automatic policy on what it was not asked about before: why
    it leaves that to people, empty if it signs; its name, and the channels that it read.
    Where standing policies are asked instead, `usable` are those that may sign.
    """

    state: RequestState
    why: str
    name: str
    reads: Sequence[str]
    usable: Sequence[StandingPolicy] | None = None


@frozen
class PolicyRows:
    """Rows and events that ride in the commit. The events are numbered without a gap;
    `settled` are the requests that are settled by then, with outcome and number; `uses`
    says how often each standing policy signs, `makers` whose right that is, by request.
    """

    lease: Lease
    at: datetime
    events: list[NewEvent] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    settled: list[tuple[RequestState, str, int]] = field(default_factory=list)
    uses: Counter[UUID] = field(default_factory=Counter)
    makers: list[tuple[int, ApprovalRequest]] = field(default_factory=list)

    def insert(self) -> None:
        """Insert the answers and their line of the audit log, and settle what is
        decided now, in the caller's transaction. Raises `ConcurrentUpdate` if a
        standing policy may no longer sign.
        """
        if self.uses:
            require_reviewers(self.makers)
            take_uses(self.uses, run=self.lease.id)
        statements.insert_rows(Decision, self.decisions)
        audit_log.record_act(
            "policy_asked",
            self.lease,
            actor=None,
            # There is no receipt, so the line finds its decisions by their numbers.
            seq=self.decisions[0].event_seq,
            last=self.decisions[-1].event_seq,
            verdicts=dict(Counter(row.verdict for row in self.decisions)),
        )
        for state, outcome, seq in self.settled:
            statements.update_rows(
                ApprovalRequest,
                {"id": state.request.id},
                outcome=outcome,
                status=RequestStatus.SETTLED,
                settled_at=self.at,
                settled_seq=seq,
            )
            forget_drafts_of(self.lease.id, [row.write for row in state.writes])


def prepare_policies(
    lease: Lease, answers: Sequence[PolicyAnswer], *, first_seq: int, at: datetime
) -> PolicyRows:
    """Return the rows of these answers: a decision for each write that the policies were
    asked about, and whose windows are over at this moment. The first event is numbered
    `first_seq`.
    """
    rows = PolicyRows(lease, at)
    added: list[tuple[RequestState, list[Decision]]] = []
    for answer in answers:
        decisions: list[Decision] = []
        rejected = _rejected_writes(answer.state)
        for row in due_writes(answer.state, at):
            why = answer.why or _why_not(answer.state, row, rejected)
            standing: StandingPolicy | None = None
            if answer.usable is not None and not why:
                standing, why = signer_of(answer.state, row, answer.usable, rows.uses)
            if standing is not None:
                rows.uses[standing.id] += 1
                rows.makers.append((standing.by_id, answer.state.request))
            decision, event = _decision(answer, row, why, standing, at)
            decision.event_seq = first_seq + len(rows.events)
            decisions.append(decision)
            rows.events.append(event)
        rows.decisions.extend(decisions)
        added.append((answer.state, decisions))
    # The events of all decisions come first: these are numbered by them.
    for state, decisions in added:
        _settle(rows, state, decisions, first_seq)
    sealed_rows.seal_and_encrypt(rows.decisions, lease.protection)
    return rows


def _decision(
    answer: PolicyAnswer,
    row: PendingWrite,
    why: str,
    standing: StandingPolicy | None,
    at: datetime,
) -> tuple[Decision, NewEvent]:
    request = answer.state.request
    columns: dict[str, Any] = {
        "by_name": f"{BY_POLICY} {request.policy.get('gate') or request.node}",
        "checked": {"reads": sorted(answer.reads), "policy": answer.name},
    }
    if standing is not None:
        columns = signed_columns(standing)
    elif answer.usable is not None:
        columns["by_name"] = NO_STANDING
    return signed_decision(
        request,
        row,
        NO_AUTO if why else "approve",
        at=at,
        proposed_value=decrypted(row, "value"),
        reason=pack_json(why) if why else b"",
        **columns,
    )


def _why_not(state: RequestState, row: PendingWrite, rejected: Container[UUID]) -> str:
    """Return why no policy may sign a write, whatever it would answer; empty if it may.
    Policies sign no `rejected` write.
    """
    if is_unanswered(read_value(row, "shown")):
        return UNANSWERED
    if needed_for(state.request, row):
        return CONFIRMED
    if window_by(state.request.policy) is not None and has_decision(state, row):
        return DECIDED
    return REJECTED if row.write in rejected else ""


def has_decision(state: RequestState, row: PendingWrite) -> bool:
    """Return whether a person has decided this revision of a write."""
    for decision in state.decisions:
        is_current = (decision.write, decision.revision) == (row.write, row.revision)
        if is_current and not (decision.by_policy or decision.by_deadline):
            return True
    return False


def window_ends(state: RequestState) -> dict[UUID, datetime]:
    """Return when the windows of a request's writes end, by write, for those that a
    policy may still sign. A job may put the ends off. One query if there are any.
    """
    ends: dict[UUID, datetime] = {}
    for row in unasked_writes(state):
        end = end_of_window(state, row)
        if end is not None and not has_decision(state, row):
            ends[row.write] = end
    if not ends:
        return ends
    due = due_by_request(KIND, state.request.run_id)
    put_off = due.get(str(state.request.id))
    if put_off is None:
        return ends
    return {write: max(end, put_off) for write, end in ends.items()}


def _rejected_writes(state: RequestState) -> set[UUID]:
    """Return the writes that a person has rejected. An edit of a write starts over; a
    revision that changes only the base or the texts does not. Whoever rejected an
    earlier revision may take that back.
    """
    revisions = {row.write: row.revision for row in state.writes}
    rejections: dict[UUID, list[Decision]] = {}
    for decision in sorted(state.decisions, key=attrgetter("event_seq")):
        if decision.by_policy or decision.by_deadline:
            continue
        write = decision.write
        before = rejections.get(write, [])
        rejections[write] = _rejections_after(decision, before, revisions[write])
    return {write for write, rows in rejections.items() if rows}


def _rejections_after(
    decision: Decision, before: Sequence[Decision], revision: int
) -> list[Decision]:
    """Return which rejections of a write count after a further decision of a person.
    Rejections of the present `revision` stay: they excluded what a policy had signed.
    """
    if decision.verdict == "edit":
        return []
    remaining: list[Decision] = []
    for rejection in before:
        is_own = not _people(rejection).isdisjoint(_people(decision))
        if rejection.revision == revision or not is_own:
            remaining.append(rejection)
    if decision.verdict == "reject":
        remaining.append(decision)
    return remaining


def _people(decision: Decision) -> set[int]:
    """Return the accounts of the people who decided, and for whom."""
    people = {decision.by_id, decision.delegator_id}
    return {person for person in people if person is not None}


def _settle(
    rows: PolicyRows,
    state: RequestState,
    decisions: Sequence[Decision],
    first_seq: int,
) -> None:
    """Note that a request is settled, if these decisions settle it."""
    signed = [row for row in decisions if row.verdict != NO_AUTO]
    request = state.request
    after = replace(state, decisions=(*state.decisions, *signed))
    held: list[Held] = []
    for row in state.writes:
        held.append(Held(row.write, row.revision, row.author_id, row.channel))
    standings = judge(held, after.votes, policy_of(request))
    outcome = outcome_of_request(standings.values())
    if not outcome:
        return
    facts = {"request": str(request.id), "outcome": outcome}
    rows.settled.append((state, outcome, first_seq + len(rows.events)))
    rows.events.append(
        NewEvent("request_settled", facts, node=request.node, task=request.task)
    )
