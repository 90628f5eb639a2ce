"""The authority on which a node acts: whether the decisions that let it still count in
the moment in which it would begin.

The journal calls this in the transaction of an intent, under the run's lock. Nothing
that is looked at here can change before that transaction ends.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol
from uuid import UUID

from django.db import DatabaseError, transaction

from approvals.gates.acted_on import (
    ActedGate,
    LetThrough,
    approved_calls_of,
    let_through,
    renewals,
)
from approvals.gates.request_state import RequestState, require_all_decisions
from approvals.permissions import is_reviewer, principals_kept
from orchestrator.engine import Task
from orchestrator.engine.errors import described
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import Recheck, recheck_approved
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
    """Why nothing may be done on the authority of a gate, and what it had let through;
    nothing if there was no approval at all. `reads` are the channels that its recheck
    read.
    """

    gate: str
    why: str
    through: tuple[LetThrough, ...] = ()
    reads: tuple[str, ...] = ()


class NotAuthorised(Exception):
    """Some tasks must not begin: `losses` says why, by task."""

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
        calls among them for which their own gate has just needed nobody.

        In the caller's transaction, which holds the run's row; some queries for each
        gate and for each person who signed there, whatever the number of tasks and
        writes. Nothing is read if none of them acts on the authority of a gate.

        Raises `TamperedRow`, `WrongKey`.
        """
        places = self._places(tasks)
        if not places:
            return
        # Each row that is left verifies, so only the count shows that one was deleted.
        require_all_decisions(acting.id, acting.decisions)
        through = _let_through(acting, dict.fromkeys(chain(*places.values())), waived)
        renewed = renewals(acting.id, acting.line, tasks)
        principals = principals_kept(_signers(through.values(), renewed.values()))
        rechecks: dict[ActedGate, _Recheck] = {}
        for place, passed in through.items():
            rechecks[place] = self._recheck(place.gate, passed)
        losses: dict[Task, Loss] = {}
        for task, acted_gates in places.items():
            for place in acted_gates:
                renewal = renewed.get((task, place.gate))
                loss = self._loss(rechecks[place], through[place], renewal, principals)
                if loss is not None:
                    losses.setdefault(task, loss)
        if losses:
            raise NotAuthorised(losses)

    def _places(self, tasks: Sequence[Task]) -> dict[Task, list[ActedGate]]:
        """Return what each of these tasks acts on, without those that act on no gate: of
        its own gate what that decided about itself.
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
        principals: Mapping[int, Sequence[str]],
    ) -> Loss | None:
        """Return why a task must not act on what passed a gate; None if it may. Where
        people were asked again, their answer counts instead.
        """
        gate = recheck.gate
        if not passed:
            return Loss(gate, f"nothing was approved at the gate of {gate}")
        requests = [through.request for through in passed]
        reasons = [*recheck.reasons]
        if renewal is not None:
            requests = [renewal]
        elif recheck.unsigned:
            # Who was asked again has seen who changed what.
            reasons.append(recheck.unsigned)
        for request in requests:
            reasons += lost_signatures(request, principals)
        if not reasons:
            return None
        why = "; ".join(dict.fromkeys(reasons))
        return Loss(gate, why, tuple(passed), recheck.reads)

    def _recheck(self, gate: str, passed: Sequence[LetThrough]) -> "_Recheck":
        reasons: list[str] = []
        reads: set[str] = set()
        for through in passed:
            answer = self._recheck_one(gate, through)
            reads.update(answer.reads)
            if answer.why is not None:
                reasons.append(f"recheck of {gate}: {answer.why}")
        return _Recheck(
            gate, tuple(reasons), tuple(sorted(reads)), self.who_changed(reads)
        )

    def _recheck_one(self, gate: str, through: LetThrough) -> Recheck:
        try:
            # Should it query and fail, the transaction of the intent goes on.
            with transaction.atomic():
                return recheck_approved(self.compiled, gate, self.state, through.writes)
        except DatabaseError as error:
            return Recheck(f"its recheck failed: {described(error)}", ())


@frozen
class _Recheck:
    """The answers of a gate's recheck: why what it had let through does not hold, the
    channels that it read, and the sentence on who changed one of these without a
    signature.
    """

    gate: str
    reasons: tuple[str, ...]
    reads: tuple[str, ...]
    unsigned: str


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
            # The decision that nobody was needed is written with the superstep.
            through[place] = [LetThrough(task, (waived[task],))]
        else:
            own_calls[task] = place
    approved = approved_calls_of(acting.id, acting.line, own_calls)
    for task, place in own_calls.items():
        through[place] = approved.get(task, [])
    return through


def _signers(
    through: Iterable[Sequence[LetThrough]], renewed: Iterable[RequestState]
) -> set[int]:
    """Return the ids of all whose approvals count for what passed these gates, and in
    the requests in which people were asked again.
    """
    requests: list[RequestState | None] = [*renewed]
    for passed in through:
        requests += [of_task.request for of_task in passed]
    signers: set[int] = set()
    for request in requests:
        for by in _approvers(request):
            signers.update(by)
    return signers


def _approvers(state: RequestState | None) -> list[list[int]]:
    """Return the people whose approvals count, for each approved write. What a gate
    needed nobody for, or a deadline approved, has none: the system does not lose its
    rights. Nor has what was signed in another installation.
    """
    if state is None:
        return []
    approvers: list[list[int]] = []
    for standing in state.standings.values():
        if standing.verdict == APPROVED:
            approvers.append([by for by in standing.by if by is not None])
    return approvers


def lost_signatures(
    state: RequestState | None, principals: Mapping[int, Sequence[str]]
) -> list[str]:
    """Return a sentence for each person whose approval does not count any more.
    `principals` are those that people hold now, by their ids.
    """
    if state is None:
        return []
    signers: dict[int, None] = {}
    for by in _approvers(state):
        signers.update(dict.fromkeys(by))
    names = _names(state)
    lost: list[str] = []
    for decision in state.decisions:
        if decision.by_id is None and not decision.by_deadline:
            lost.append(f"{decision.by_name} signed in another installation")
    for signer in signers:
        held = principals.get(signer, ())
        name = names.get(signer, str(signer))
        if not held:
            lost.append(f"{name}'s signature does not count any more: not active")
        elif not is_reviewer(signer, state.request, principals=held):
            lost.append(
                f"{name}'s signature does not count any more: "
                f"not a reviewer of {state.request.policy.get('gate') or state.request.node}"
            )
    return lost


def _names(state: RequestState) -> dict[int, str]:
    """Return the names under which people signed, by their ids."""
    names: dict[int, Any] = {}
    for decision in state.decisions:
        if decision.by_id is not None:
            names[decision.by_id] = decision.by_name
    return names
