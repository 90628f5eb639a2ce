"""Policies in a slice: each open request with a revision about which its gate's automatic
policy, or the standing policies at it, were not asked is decided by one, or left to people.
"""

from approvals.answers.policies import PolicyAnswer, prepare_policies
from approvals.answers.standing_signers import REPEATED, StandingSigners
from approvals.gates.request_state import RequestState
from checkpoints.core.visible_text import LONGEST_JOB_ERROR
from checkpoints.ledger import commit as ledger
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.gates.requests import auto_of
from orchestrator.engine.graphs.effect import REJECTED
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.step.output import WriteValue
from orchestrator.execution.secrets import hide_secrets, writable
from orchestrator.execution.session import Session, retry_when_log_moved

DECIDES = "that its policy signs"
BROUGHT_IN = "a person brought it in"
WITHDRAWN = "its gate permits no standing policies any more"


def ask_policies(session: Session) -> bool:
    """Ask the policies of the requests that wait for them, and commit what they answer.
    Returns True: the slice still has the run.
    """
    retry_when_log_moved(session.lease, lambda: _ask(session))
    return True


def _ask(session: Session) -> None:
    waiting = session.unasked_of_policies()
    # A person may have decided in the meantime.
    if not waiting:
        return
    lease = session.lease
    at = session.moment_of(waiting)
    signers = StandingSigners(waiting, session.way)
    answers = [_answer(session, state, signers) for state in waiting]
    first_seq = ledger.first_appended_seq(lease)
    rows = prepare_policies(
        lease,
        answers,
        first_seq=first_seq,
        at=at,
    )
    ledger.append_events(
        lease,
        rows.events,
        inside=rows.insert,
        decided=len(rows.decisions),
        at=at,
    )
    # The next look has to see what is settled now.
    lease.moved = True


def _answer(
    session: Session, state: RequestState, signers: StandingSigners
) -> PolicyAnswer:
    """Return what the policy of a request's gate says of what is proposed there now."""
    request = state.request
    if "auto" not in request.policy:
        return _answer_of_standing(session, state, signers)
    name = str(request.policy["auto"])
    node = session.graph.nodes.get(request.node)
    # What a call returned needs no approval, unless a person says what it was.
    if request.kind != "call" and node is not None and node.calls:
        return PolicyAnswer(state, BROUGHT_IN, name, ())
    answer = auto_of(
        session.graph,
        request.node,
        name,
        session.head.payload.state,
        _proposed(state),
    )
    why = writable(answer.why or "")
    why = hide_secrets(why)[:LONGEST_JOB_ERROR]
    # Nobody makes a policy sign by a value that they set themselves.
    why = why or session.unsigned_change(answer.reads, DECIDES)
    return PolicyAnswer(state, why, name, answer.reads)


def _answer_of_standing(
    session: Session, state: RequestState, signers: StandingSigners
) -> PolicyAnswer:
    """Return which standing policies may sign what is proposed at a gate now, or why none
    may.
    """
    request = state.request
    node = session.graph.nodes.get(request.node)
    why = ""
    # What a call returned needs no approval, unless a person says what it was.
    if request.kind != "call" and node is not None and node.calls:
        why = BROUGHT_IN
    elif node is None or node.gate is None or not node.gate.standing:
        why = WITHDRAWN
    elif signers.was_signed_elsewhere(state):
        why = REPEATED
    # A proposal may come from any of it, and no function says from which.
    why = why or session.unsigned_change(tuple(session.graph.channels), DECIDES)
    usable = [] if why else signers.usable_for(request)
    return PolicyAnswer(state, why, "", (), usable)


def _proposed(state: RequestState) -> list[WriteValue]:
    """Return the writes that may still be applied, as they are now, without what nobody
    has answered yet: that has no value which a policy could judge.
    """
    writes: list[WriteValue] = []
    for row in state.writes:
        if state.standings[row.write].verdict == REJECTED:
            continue
        # Without an answer there is no value yet.
        if is_unanswered(read_value(row, "shown")):
            continue
        value = read_value(row, "value")
        label = row.label or None
        writes.append(WriteValue(row.channel, value, label))
    return writes
