"""Vetoes in a slice: each gate that people have settled is asked once more, before what
they approved is applied.

Gates are applied one after another, so each veto sees the state that those before it
make.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import field

from approvals.answers.vetoes import VetoAnswer, reasons_shown
from approvals.gates.request_state import RequestState
from approvals.gates.settlement import Settlement, settle_gates
from approvals.models import ApprovalRequest
from checkpoints.conf import conf
from checkpoints.core.visible_text import LONGEST_JOB_ERROR
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import Veto, veto_of
from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.graphs.veto import with_veto_of
from orchestrator.engine.step.output import WriteValue
from orchestrator.engine.step.reduce import Settled
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.memory import State
from orchestrator.execution.secrets import hide_secrets, writable
from orchestrator.execution.session import Session

DECIDES = "that its veto lets this pass"


@frozen
class Vetted:
    """The gates that a settlement applies once vetoes were asked, and all answers: also
    those of gates that it does not apply, because their writes stay open.
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


def vetted_settlement(session: Session, heart: Heartbeat, state: State) -> Vetted:
    """Return what is applied on this state, with memory as gates see it. A gate that
    its veto keeps open is left out, and later ones are asked on the state without it.
    Raises as `settle_gates` does.
    """
    waiting = session.settled_gates()
    asking = _Asking(session, heart, {gate.task: gate for gate in waiting})
    settlement = settle_gates(
        waiting,
        session.graph,
        session.frontier,
        state,
        session.lease.protection,
        asking.stays_open,
    )
    applied = {settled.task for settled in settlement.settled}
    # When a patch stays open, its writes that other vetoes passed are asked again too.
    answers: list[VetoAnswer] = []
    for answer in asking.answers:
        if answer.why or answer.state.task in applied:
            answers.append(answer)
    return Vetted(settlement, answers)


@frozen
class _Asking:
    """The vetoes of a session's settled gates, and what they have answered so far."""

    session: Session
    heart: Heartbeat
    gates: Mapping[Task, RequestState]
    answers: list[VetoAnswer] = field(default_factory=list)

    def stays_open(self, settled: Settled, state: State) -> bool:
        """Return whether its veto keeps a gate open on this state."""
        gate = self.gates[settled.task]
        # The policy says whether people signed under a veto, not the graph of today.
        if "veto" not in gate.request.policy:
            return False
        veto = self._answered(gate.request, state, settled.writes)
        why = hide_secrets(writable(veto.why or ""))[:LONGEST_JOB_ERROR]
        if not why:
            # Nobody may lift a veto by a value that they set themselves, unless those
            # who sign have seen who did.
            unsigned = self.session.unsigned_change(veto.reads, DECIDES)
            if unsigned and unsigned not in reasons_shown(gate):
                why = unsigned
        self.answers.append(VetoAnswer(gate, why, veto.reads))
        return bool(why)

    def _answered(
        self, request: ApprovalRequest, state: State, writes: Sequence[WriteValue]
    ) -> Veto:
        """Return what the veto of a request says. If it never returns, the run is given
        back once the time of the gate's node is over.
        """
        graph = self.session.graph
        guard = request.policy.get("gate") or request.node
        node = graph.nodes.get(guard)
        declared = node.gate if node is not None else None
        # A deployment gives no veto to people who were asked under another.
        gate = with_veto_of(declared or Gate(), request.policy)

        # This thread cannot be interrupted; the heartbeat acts instead.
        self.heart.busy_until = time.monotonic() + _seconds_for(node)
        try:
            return veto_of(graph, guard, gate, state, writes)
        finally:
            self.heart.busy_until = math.inf


def _seconds_for(node: Node | None) -> float:
    if node is None or node.timeout is None:
        return conf().node_timeout
    return float(node.timeout)
