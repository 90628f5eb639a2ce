"""The authority on which a node acts: whether the decisions that let it still count in
the moment in which it would begin.

The journal calls this in the transaction of an intent, under the run's lock. Nothing
that is looked at here can change before that transaction ends.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

from approvals.gates.acted_on import LetThrough, let_through
from approvals.gates.request_state import RequestState, require_all_decisions
from approvals.permissions import is_reviewer, principals_kept
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import Recheck, recheck_approved
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.effect import APPROVED


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


@frozen
class Judge:
    """Judges the authority of tasks on one state. `who_changed` returns the sentence on
    who changed which of these channels without a signature, for a recheck that read
    them.
    """

    compiled: Compiled
    state: State
    who_changed: Callable[[Collection[str]], str]

    def require(self, acting: ActingRun, tasks: Sequence[Task]) -> None:
        """Raise `NotAuthorised` if one of these tasks must not begin. In the caller's
        transaction, which holds the run's row; some queries for each gate and for each
        person who signed there, whatever the number of tasks and writes. Nothing is
        read if none of them acts on the authority of a gate.

        Raises `TamperedRow`, `WrongKey`.
        """
        gates: dict[str, None] = {}
        for task in tasks:
            gates.update(dict.fromkeys(self._authority(task)))
        if not gates:
            return
        # Each row that is left verifies, so only the count shows that one was deleted.
        require_all_decisions(acting.id, acting.decisions)
        losses_by_gate = self._losses_by_gate(acting, gates)
        losses: dict[Task, Loss] = {}
        for task in tasks:
            for gate in self._authority(task):
                if gate in losses_by_gate:
                    losses.setdefault(task, losses_by_gate[gate])
        if losses:
            raise NotAuthorised(losses)

    def _authority(self, task: Task) -> Sequence[str]:
        return self.compiled.nodes[task.node].authority

    def _losses_by_gate(
        self, acting: ActingRun, gates: Collection[str]
    ) -> dict[str, Loss]:
        """Return why what passed these gates must not be acted on, where it must not."""
        through = {gate: let_through(acting.id, acting.line, gate) for gate in gates}
        principals = principals_kept(_signers(through.values()))
        losses: dict[str, Loss] = {}
        for gate, passed in through.items():
            loss = self._loss_at(gate, passed, principals)
            if loss is not None:
                losses[gate] = loss
        return losses

    def _loss_at(
        self,
        gate: str,
        passed: Sequence[LetThrough],
        principals: Mapping[int, Sequence[str]],
    ) -> Loss | None:
        """Return why what passed a gate must not be acted on; None if it may be."""
        if not passed:
            return Loss(gate, f"nothing was approved at the gate of {gate}")
        reasons: list[str] = []
        reads: set[str] = set()
        for through in passed:
            reasons += lost_signatures(through.request, principals)
            answer = self._recheck(gate, through)
            reads.update(answer.reads)
            if answer.why is not None:
                reasons.append(f"recheck of {gate}: {answer.why}")
        unsigned = self.who_changed(reads)
        if unsigned:
            reasons.append(unsigned)
        if not reasons:
            return None
        why = "; ".join(dict.fromkeys(reasons))
        return Loss(gate, why, tuple(passed), tuple(sorted(reads)))

    def _recheck(self, gate: str, through: LetThrough) -> Recheck:
        return recheck_approved(self.compiled, gate, self.state, through.writes)


def _signers(through: Iterable[Sequence[LetThrough]]) -> set[int]:
    """Return the ids of all whose approvals count for what passed these gates."""
    signers: set[int] = set()
    for passed in through:
        for of_task in passed:
            for by in _approvers(of_task.request):
                signers.update(by)
    return signers


def _approvers(state: RequestState | None) -> list[list[int]]:
    """Return the people whose approvals count, for each approved write. What a gate
    needed nobody for, or a deadline approved, has none: the system does not lose its
    rights.
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
    for signer in signers:
        held = principals.get(signer, ())
        name = names.get(signer, str(signer))
        if not held:
            lost.append(f"{name}'s signature does not count any more: not active")
        elif not is_reviewer(signer, state.request, principals=held):
            lost.append(
                f"{name}'s signature does not count any more: "
                f"not a reviewer of {state.request.node}"
            )
    return lost


def _names(state: RequestState) -> dict[int, str]:
    """Return the names under which people signed, by their ids."""
    names: dict[int, Any] = {}
    for decision in state.decisions:
        if decision.by_id is not None:
            names[decision.by_id] = decision.by_name
    return names
