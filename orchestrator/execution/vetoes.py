"""Vetoes in a slice: each gate that people have settled is asked once more, before what
they approved is applied.

Gates are applied one after another, so each veto sees the state that those before it
make.
"""

from collections.abc import Sequence

from approvals.answers.vetoes import VetoAnswer, reasons_shown
from approvals.gates.request_state import RequestState
from approvals.gates.settlement import Settlement, settle_gates
from approvals.models import ApprovalRequest
from checkpoints.core.visible_text import LONGEST_JOB_ERROR
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import veto_of
from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.graphs.veto import with_veto_of
from orchestrator.engine.step.reduce import state_before
from orchestrator.execution.memory import State
from orchestrator.execution.secrets import hide_secrets, writable
from orchestrator.execution.session import Session

DECIDES = "that its veto lets this pass"


@frozen
class Vetted:
    """What a settlement applies once vetoes were asked, and their answers: also those of
    gates that it does not apply, because what they hold stays open.
    """

    settlement: Settlement
    answers: Sequence[VetoAnswer]

    @property
    def let_pass(self) -> list[VetoAnswer]:
        """Return the answers about what is applied."""
        return [answer for answer in self.answers if not answer.why]

    @property
    def closed(self) -> list[ApprovalRequest]:
        """Return the requests that are settled no longer: applied, or open again."""
        vetoed = [answer.state.request for answer in self.answers if answer.why]
        return [*self.settlement.requests, *vetoed]


def vetted_settlement(session: Session, state: State) -> Vetted:
    """Return what is applied on this state, with memory as gates see it. A gate that its
    veto keeps open is left out, and the ones behind it are asked on the state without it.
    Raises as `settle_gates` does.
    """
    waiting = session.settled_gates()
    refused: list[VetoAnswer] = []
    while True:
        settlement = settle_gates(
            waiting,
            session.graph,
            session.frontier,
            state,
            session.lease.protection,
        )
        answers = _answers(session, settlement, waiting)
        objections = [answer for answer in answers if answer.why]
        if not objections:
            return Vetted(settlement, [*refused, *answers])
        refused.append(objections[0])
        waiting = [gate for gate in waiting if gate is not objections[0].state]


def _answers(
    session: Session, settlement: Settlement, waiting: Sequence[RequestState]
) -> list[VetoAnswer]:
    """Return the answers of the vetoes of what a settlement applies, up to the first that
    keeps something open.
    """
    by_task = {gate.task: gate for gate in waiting}
    answers: list[VetoAnswer] = []
    for position, settled in enumerate(settlement.settled):
        gate = by_task[settled.task]
        # The policy says whether people signed under a veto, not the graph of today.
        if not settled.writes or "veto" not in gate.request.policy:
            continue
        answer = _answer(session, settlement, position, gate)
        answers.append(answer)
        if answer.why:
            break
    return answers


def _answer(
    session: Session, settlement: Settlement, position: int, gate: RequestState
) -> VetoAnswer:
    settled = settlement.settled
    seen = state_before(
        session.graph,
        session.frontier,
        session.head.payload.state,
        settled,
        position,
    )
    policy = gate.request.policy
    guard = policy.get("gate") or gate.request.node
    node = session.graph.nodes.get(guard)
    declared = node.gate if node is not None else None
    # A deployment gives no veto to people who were asked under another.
    asking = with_veto_of(declared or Gate(), policy)
    veto = veto_of(session.graph, guard, asking, seen, settled[position].writes)
    why = hide_secrets(writable(veto.why or ""))[:LONGEST_JOB_ERROR]
    if not why:
        # Nobody may lift a veto by a value that they set themselves, unless those who
        # sign have seen who did.
        unsigned = session.unsigned_change(veto.reads, DECIDES)
        if unsigned not in reasons_shown(gate):
            why = unsigned
    return VetoAnswer(gate, why, veto.reads)
