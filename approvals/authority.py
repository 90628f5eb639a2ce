"""The authority on which a node acts: whether the decisions that permit it still count
at the moment when it would begin.

The journal calls this in the transaction of an intent, under the run's lock. What is
read here cannot change before that transaction ends.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Protocol
from uuid import UUID

from django.db import DatabaseError, transaction

from approvals.delegations import is_taken_back, kept_delegations
from approvals.gates.acted_on import (
    ActedGate,
    LetThrough,
    approved_calls_of,
    let_through,
    renewals,
)
from approvals.gates.request_state import RequestState, require_all_decisions
from approvals.models import ApprovalRequest, Decision, Delegation, StandingPolicy
from approvals.permissions import is_reviewer, principals_kept
from approvals.policies_in_force import kept_policies
from orchestrator.engine import Task
from orchestrator.engine.errors import described
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import (
    AutoAnswer,
    Recheck,
    auto_of,
    recheck_approved,
)
from orchestrator.engine.gates.verdicts import AUTOMATIC
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.engine.step.output import WriteValue


class ActingRun(Protocol):
    """The run in which nodes act, as its lease has it."""

    @property
    def id(self) -> UUID: ...
    @property
    def line(self) -> int: ...
    @property
    def decisions(self) -> int: ...


@frozen
class Loss:
    """Why a gate's authority was lost, and what the gate had let through; empty if
    there was no approval at all. `reads` are the channels that its recheck read.
    """

    gate: str
    why: str
    through: tuple[LetThrough, ...] = ()
    reads: tuple[str, ...] = ()


class NotAuthorised(Exception):
    """Raised when tasks must not begin: `losses` says why, by task."""

    def __init__(self, losses: Mapping[Task, Loss]) -> None:
        super().__init__(", ".join(map(str, losses)))
        self.losses = losses


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the authority of tasks on one state. `who_changed` returns the sentence on
    who changed which of these channels without a signature, for a recheck that read
    them. `first_visits`: the first visit of each node that was judged on this state.
    """

    compiled: Compiled
    state: State
    who_changed: Callable[[Collection[str]], str]
    first_visits: dict[str, int] = field(default_factory=dict)

    def require(
        self,
        acting: ActingRun,
        tasks: Sequence[Task],
        waived: Mapping[Task, WriteValue],
    ) -> None:
        """Raise `NotAuthorised` if one of these tasks must not begin. `waived` are the
        calls whose own gate has just waived approval.

        In the caller's transaction, which holds the run's row; some queries for each
        gate and for each person who signed there, however many tasks and writes there
        are. Nothing is read if none of them acts on the authority of a gate.

        Raises `TamperedRow`, `WrongKey`.
        """
        places = self._places(tasks)
        if not places:
            return
        # The remaining rows all verify, so only the count shows that one was deleted.
        require_all_decisions(acting.id, acting.decisions)
        through = _let_through(acting, dict.fromkeys(chain(*places.values())), waived)
        renewed = renewals(acting.id, acting.line, tasks)
        requests = _requests_in(through.values(), renewed.values())
        rights = _rights_kept(requests)
        rechecks: dict[ActedGate, _Recheck] = {}
        for place, passed in through.items():
            rechecks[place] = self._recheck(place.gate, passed)
        losses: dict[Task, Loss] = {}
        for task, acted_gates in places.items():
            for place in acted_gates:
                renewal = renewed.get((task, place.gate))
                loss = self._loss(rechecks[place], through[place], renewal, rights)
                if loss is not None:
                    losses.setdefault(task, loss)
        if losses:
            raise NotAuthorised(losses)

    def _places(self, tasks: Sequence[Task]) -> dict[Task, list[ActedGate]]:
        """Return what each of these tasks acts on, for those that act on a gate. If
        that is the gate of the task itself, it is the decision about the task.
        """
        for task in tasks:
            visit = self.first_visits.get(task.node, task.visit)
            self.first_visits[task.node] = min(visit, task.visit)
        places: dict[Task, list[ActedGate]] = {}
        for task in tasks:
            goes_on = task.visit > self.first_visits[task.node]
            for gate in self.compiled.nodes[task.node].authority:
                own_call = task if gate == task.node else None
                place = ActedGate(gate, task.node, task.visit, own_call, goes_on)
                places.setdefault(task, []).append(place)
        return places

    def _loss(
        self,
        recheck: "_Recheck",
        passed: Sequence[LetThrough],
        renewal: RequestState | None,
        rights: "_Rights",
    ) -> Loss | None:
        """Return why a task must not act on what a gate let through; None if it may.
        Where people were asked again, their answer counts instead.
        """
        gate = recheck.gate
        if not passed:
            return Loss(gate, f"nothing was approved at the gate of {gate}")
        requests = [through.request for through in passed]
        reasons = [*recheck.reasons]
        if renewal is not None:
            requests = [renewal]
        else:
            # Whoever was asked again has seen who changed what, and signed instead of a
            # policy.
            reasons += [*recheck.of_policy, *filter(None, [recheck.unsigned])]
        for request in requests:
            reasons += lost_signatures(request, rights)
        if not reasons:
            return None
        why = "; ".join(dict.fromkeys(reasons))
        return Loss(gate, why, tuple(passed), recheck.reads)

    def _recheck(self, gate: str, passed: Sequence[LetThrough]) -> "_Recheck":
        reasons: list[str] = []
        of_policy: list[str] = []
        reads: set[str] = set()
        for through in passed:
            answer = self._ask(recheck_approved, through, gate)
            reads.update(answer.reads)
            if answer.why is not None:
                reasons.append(f"recheck of {gate}: {answer.why}")
            # A policy's signature counts only as long as it would sign again.
            for name in _policies_that_signed(through.request):
                policy = self._ask(auto_of, through, gate, name)
                reads.update(policy.reads)
                if policy.why is not None:
                    of_policy.append(f"policy of {gate}: {policy.why}")
        return _Recheck(
            gate,
            tuple(reasons),
            tuple(of_policy),
            tuple(sorted(reads)),
            self.who_changed(reads),
        )

    def _ask(
        self,
        ask: Callable[..., Recheck | AutoAnswer],
        through: LetThrough,
        *which: str,
    ) -> Recheck | AutoAnswer:
        try:
            # If it queries and fails, the transaction of the intent must go on.
            with transaction.atomic():
                return ask(self.compiled, *which, self.state, through.writes)
        except DatabaseError as error:
            what = "policy" if ask is auto_of else "recheck"
            return Recheck(f"its {what} failed: {described(error)}", ())


@frozen
class _Recheck:
    """The answers of a gate's recheck: why what it had let through does not hold, also
    `of_policy` where its automatic policy had signed that, the channels that were read,
    and the sentence on who changed one of these without a signature.
    """

    gate: str
    reasons: tuple[str, ...]
    of_policy: tuple[str, ...]
    reads: tuple[str, ...]
    unsigned: str


def _policies_that_signed(state: RequestState | None) -> list[str]:
    """Return the names of the automatic policies whose approvals count for a request.
    What a deadline kept may be of another than the request names, or of one where it
    names none.
    """
    if state is None:
        return []
    name_by_write: dict[UUID, str] = {}
    for decision in sorted(state.decisions, key=attrgetter("event_seq")):
        by = state.standings[decision.write].by
        # A standing policy is not a function; it is judged as the right of its maker.
        if decision.standing:
            continue
        if decision.by_policy and decision.verdict == "approve" and AUTOMATIC in by:
            name_by_write[decision.write] = str(
                (decision.checked or {}).get("policy", "")
            )
    return list(dict.fromkeys(name_by_write.values()))


def _let_through(
    acting: ActingRun,
    places: Iterable[ActedGate],
    waived: Mapping[Task, WriteValue],
) -> dict[ActedGate, Sequence[LetThrough]]:
    """Return what these gates have let through."""
    through: dict[ActedGate, Sequence[LetThrough]] = {}
    own_calls: dict[Task, ActedGate] = {}
    for place in places:
        task = place.own_call
        if task is None:
            through[place] = let_through(acting.id, acting.line, place)
        elif task in waived:
            # The decision that no approval was needed is written with the superstep.
            through[place] = [LetThrough(task, (waived[task],))]
        else:
            own_calls[task] = place
    approved = approved_calls_of(acting.id, acting.line, own_calls)
    for task, place in own_calls.items():
        through[place] = approved.get(task, [])
    return through


def _requests_in(
    through: Iterable[Sequence[LetThrough]], renewed: Iterable[RequestState]
) -> list[RequestState]:
    """Return the requests whose approvals count for what passed these gates, with those
    in which people were asked again.
    """
    requests: list[RequestState] = [*renewed]
    for passed in through:
        for of_task in passed:
            if of_task.request is not None:
                requests.append(of_task.request)
    return requests


@frozen
class _Rights:
    """The rights that people hold now: their principals by their own right, by their
    ids; the delegations by which some of them signed for others, and the standing
    policies that signed and are in force, by id.
    """

    principals: Mapping[int, Sequence[str]]
    delegations: Mapping[UUID, Delegation] = field(default_factory=dict)
    policies: Mapping[UUID, StandingPolicy] = field(default_factory=dict)


def _rights_kept(requests: Sequence[RequestState]) -> _Rights:
    """Return what the people whose approvals count in these requests hold. None of
    these rights can be revoked before the open transaction ends.
    """
    people: set[int] = set()
    delegations: set[UUID] = set()
    policies: set[UUID] = set()
    for request in requests:
        for decision in _approvals(request):
            people.update(_people_of(decision))
            if decision.delegation is not None:
                delegations.add(decision.delegation)
            if decision.standing:
                policies.add(UUID(decision.standing["id"]))
    return _Rights(
        principals_kept(people), kept_delegations(delegations), kept_policies(policies)
    )


def _people_of(decision: Decision) -> list[int]:
    """Return the ids of the person who decided and of the person they decided for."""
    ids = (decision.by_id, decision.delegator_id)
    return [person for person in ids if person is not None]


def _approvals(state: RequestState | None) -> list[Decision]:
    """Return the decisions of people and of standing policies that count for what was
    approved. What a gate waived, or a deadline approved, has none: the system does not
    lose its rights. Neither has what was signed in another installation.
    """
    if state is None:
        return []
    approvals: list[Decision] = []
    for write, standing in state.standings.items():
        if standing.verdict == APPROVED:
            counting = _counting_decisions(state, write, standing.seq)
            approvals += [counting[by] for by in standing.by if by in counting]
    return approvals


def _counting_decisions(
    state: RequestState, write: UUID, last: int
) -> dict[int | None, Decision]:
    """Return the last decision of each person on a write up to this number of the log,
    and that of the last standing policy.
    """
    counting: dict[int | None, Decision] = {}
    for decision in sorted(state.decisions, key=attrgetter("event_seq")):
        is_before = decision.event_seq <= last
        has_right = decision.by_id is not None or decision.standing
        if is_before and decision.write == write and has_right:
            counting[decision.voter] = decision
    return counting


def lost_signatures(state: RequestState | None, rights: _Rights) -> list[str]:
    """Return a sentence for each approval that no longer counts."""
    if state is None:
        return []
    lost: list[str] = []
    for decision in state.decisions:
        is_of_gate = decision.by_deadline or decision.by_policy
        if decision.by_id is None and not is_of_gate:
            lost.append(f"{decision.by_name} signed in another installation")
    for decision in _approvals(state):
        why = _why_lost(decision, state, rights)
        if why:
            lost.append(
                f"{decision.signer_name}'s signature does not count any more: {why}"
            )
    return list(dict.fromkeys(lost))


def _why_lost(decision: Decision, state: RequestState, rights: _Rights) -> str:
    """Return why an approval no longer counts; empty if it does."""
    # Where a deadline kept the verdict, the people to whom its tiers had escalated were
    # reviewers of the request that it closed.
    request = state.request_of(decision)
    if decision.standing:
        return _why_not_standing(decision, request, rights)
    if not rights.principals.get(decision.by_id or 0):
        return "not active"
    if decision.delegation is None:
        return _why_no_reviewer(decision.by_id, request, rights)
    return _why_not_for_another(decision, request, rights)


def _why_no_reviewer(
    person: int | None, request: ApprovalRequest, rights: _Rights
) -> str:
    held = rights.principals.get(person or 0, ())
    if is_reviewer(person, request, principals=held):
        return ""
    gate = request.policy.get("gate") or request.node
    return f"not a reviewer of {gate}"


def _why_not_standing(
    decision: Decision, request: ApprovalRequest, rights: _Rights
) -> str:
    """Return why what a standing policy signed no longer counts. Its remaining uses do
    not matter: what it signed is one of those already counted.
    """
    policy = rights.policies.get(UUID(decision.standing["id"]))
    if policy is None or policy.by_id != decision.delegator_id:
        return "it is not in force any more"
    name = decision.delegator_name
    if not rights.principals.get(policy.by_id):
        return f"{name}, who made it, is not active"
    why = _why_no_reviewer(policy.by_id, request, rights)
    return f"{name}, who made it, is {why}" if why else ""


def _why_not_for_another(
    decision: Decision, request: ApprovalRequest, rights: _Rights
) -> str:
    """Return why an approval that was made for another person no longer counts. The
    approval stays valid when the delegation has run out, or its delegate has ended it.
    """
    name = decision.delegator_name
    delegation = rights.delegations.get(decision.delegation or UUID(int=0))
    if delegation is None or is_taken_back(delegation):
        return f"{name} lets them decide no more"
    is_same = (
        delegation.delegate_id == decision.by_id
        and delegation.delegator_id == decision.delegator_id
    )
    if not is_same:
        return f"{name} never let them decide"
    if not rights.principals.get(decision.delegator_id or 0):
        return f"{name}, for whom it was made, is not active"
    why = _why_no_reviewer(decision.delegator_id, request, rights)
    return f"{name}, for whom it was made, is {why}" if why else ""
