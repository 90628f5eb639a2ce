"""Gates whose deadline fails the run: the run fails when the deadline has closed their
requests. When it is resumed, people are asked about the same proposals again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from approvals.gates.deadline_jobs import time_of
from approvals.gates.new_requests import (
    Moment,
    NewRequests,
    ReachedGate,
    patch_gate,
    prepare_requests,
)
from approvals.gates.request_state import (
    RequestState,
    kept_from,
    load_states,
    why_of,
)
from approvals.gates.settlement import State, rebase_writes
from approvals.gates.stored_proposals import Presented, proposal_of, revisions_of
from approvals.models import ApprovalRequest, Decision
from checkpoints.ledger import commit as ledger
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import Gate, Task
from orchestrator.engine.errors import DeadlinePassed
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.graphs.auto import window_by, with_auto_of
from orchestrator.engine.graphs.consideration import considered_by
from orchestrator.engine.graphs.gate import Show
from orchestrator.engine.graphs.review_claim import claim_time
from orchestrator.engine.graphs.tiers import tiers_by
from orchestrator.engine.graphs.veto import with_veto_of
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.execution import memory as execution_memory
from orchestrator.execution.session import Session, retry_when_log_moved

MOST_REJECTIONS = 5
"""The most rejections that a new request tells of."""


def fail_or_ask_again(session: Session) -> bool:
    """Open the requests again since whose deadlines the run was resumed. Returns True:
    the slice still has the run. Raises `DeadlinePassed`, with which the run fails, if
    the deadline of one has come since.
    """
    for expired in session.expired:
        request = expired.request
        if not expired.asks_again:
            raise DeadlinePassed(
                f"nobody decided at the gate of {request.node} before its deadline, "
                f"{request.deadline:%Y-%m-%d %H:%M} UTC",
                node=request.node,
                request=str(request.id),
            )
    retry_when_log_moved(session.lease, lambda: _ask_again(session))
    return True


def _ask_again(session: Session) -> None:
    # The expired requests may have changed with the log.
    session.open_requests()
    opening = _opening(session)
    ledger.append_events(session.lease, opening.events, inside=opening.insert)
    # The next look has to see the new requests.
    session.lease.moved = True


@frozen
class _ClosedRequest:
    """A request that expired, as people were asked it: its state, and the first and the
    newest revision of each of its writes, by position.
    """

    state: RequestState
    first: list[PendingWrite]
    newest: list[PendingWrite]

    @property
    def request(self) -> ApprovalRequest:
        return self.state.request


def _opening(session: Session) -> NewRequests:
    lease = session.lease
    all_closed = [
        _closed_request(session, expired.request) for expired in session.expired
    ]
    state = _state_reviewers_see(session, all_closed)
    reached: dict[Task, ReachedGate] = {}
    held: list[HeldWrite] = []
    presented = Presented(
        session.input, session.head.payload.state, lease.protection.encrypted
    )
    for closed in all_closed:
        task = closed.state.task
        settled = _settled_positions(session, closed, state)
        # Settled writes stay unchanged, including edits; all others return to the
        # proposal.
        rows: list[PendingWrite] = []
        for first, newest in zip(closed.first, closed.newest, strict=True):
            rows.append(newest if first.position in settled else first)
        gate = _gate_of(session, closed.request)
        # Nor does a deadline take back what a person has said.
        if _rejections(closed.state, settled):
            gate = replace(gate, auto=None, standing=False, auto_after=None)
        reached[task] = _reached(closed, gate, settled)
        if _declared_gate(session, closed.request) is None:
            # Nothing else still says what people were shown.
            reached[task] = replace(reached[task], shown=_as_shown(rows))
        held += proposal_of(task, gate, rows, presented)
    moment = Moment(
        state,
        lease.superstep,
        session.input,
        # The database's clock decides when windows end.
        lease.now(),
        unsigned=session.unsigned_change,
    )
    return prepare_requests(lease, session.graph, reached, held, moment)


def _closed_request(session: Session, request: ApprovalRequest) -> _ClosedRequest:
    """Return what people were asked. Raises `TamperedRow`, `WrongKey`."""
    [state] = load_states([request], session.lease.protection)
    first, newest = revisions_of(request, session.lease.protection)
    return _ClosedRequest(state, first, newest)


def _state_reviewers_see(
    session: Session, all_closed: Sequence[_ClosedRequest]
) -> State:
    """Return the state of the head, with what memory holds where these writes go."""
    held: list[HeldWrite] = []
    for closed in all_closed:
        for row in closed.first:
            held.append(HeldWrite(closed.state.task, row.position, row.channel, None))
    channels = execution_memory.held_channels([], held)
    return execution_memory.memory_values(
        session.lease.protection, session.head.payload.state, channels
    )


def _settled_positions(
    session: Session, closed: _ClosedRequest, state: State
) -> frozenset[int]:
    """Return the positions of the writes that people had settled before the deadline,
    without those whose bound base has moved since: they are asked about again.
    """
    rebased = rebase_writes(
        [closed.state],
        session.graph,
        state,
        at=session.lease.now(),
        protection=session.lease.protection,
    )
    moved = {row.write for row in rebased.rows}
    positions: list[int] = []
    for row in closed.state.writes:
        if closed.state.standings[row.write].settled and row.write not in moved:
            positions.append(row.position)
    return frozenset(positions)


def _gate_of(session: Session, request: ApprovalRequest) -> Gate:
    """Return the gate that asks: the one that the request names, else its node's own,
    with the rules that the request was opened under. A deployment changes none of them:
    a gate that it removed asks by its old title, and one whose deadline it removed gives
    as much time as before.
    """
    policy = request.policy
    gate = _declared_gate(session, request)
    if gate is None:
        gate = Gate(title=_literal(str(read_value(request, "title") or "")))
    gate = _without_terms(session, gate)
    return replace(
        with_veto_of(gate, policy),
        deadline=gate.deadline or time_of(request),
        quorum=policy["quorum"],
        reject_quorum=policy["reject_quorum"],
        four_eyes=policy["four_eyes"],
        all_or_nothing=policy["all_or_nothing"],
        shows=policy["shows"],
        writes=_shows_of(gate, policy),
        on_deadline=policy["on_deadline"],
        confirm=policy.get("confirm"),
        confirm_above=policy.get("confirm_above"),
        considered=considered_by(policy),
        exclusive=policy.get("exclusive", False),
        claim_for=claim_time(policy),
        tiers=tiers_by(policy),
        skip=policy.get("skip", False),
        auto=with_auto_of(gate, policy).auto,
        standing=policy.get("standing", False),
        auto_after=window_by(policy),
    )


def _without_terms(session: Session, gate: Gate) -> Gate:
    """Return a gate with the facts that its terms name. The request says what else they
    asked for when it was opened, and how long it gave people.
    """
    if gate.terms is None:
        return gate
    facts = gate_on_run(session.graph, gate, session.input).facts
    return replace(gate, terms=None, facts=facts, deadline=None)


def _declared_gate(session: Session, request: ApprovalRequest) -> Gate | None:
    """Return the gate that asked, as this version declares it; None if it was removed."""
    node = session.graph.nodes.get(request.policy.get("gate") or request.node)
    return None if node is None else node.gate


def _as_shown(rows: Sequence[PendingWrite]) -> dict[str, Any]:
    """Return what people were shown of these revisions, in the form of `present`."""
    title = ""
    facts: list[Any] = []
    writes: list[dict[str, Any]] = []
    for row in rows:
        shown = dict(read_value(row, "shown") or {})
        # Both are the same beside each write of a request.
        title = shown.pop("title", title)
        facts = shown.pop("facts", facts)
        writes.append(shown)
    return {"title": title, "facts": facts, "writes": writes, "notes": []}


def _literal(text: str) -> str:
    """Return the template that says just this text."""
    return text.replace("{", "{{").replace("}", "}}")


def _shows_of(gate: Gate, policy: Mapping[str, Any]) -> dict[str, Show]:
    """Return how a gate shows writes, with what a request's policy asks of them."""
    needs: Mapping[str, Sequence[str]] = policy.get("needs", {})
    # The amounts that are compared with its limit, if it has one.
    money: Mapping[str, str] = policy.get("confirm_money", {})
    channels = {*gate.writes, *policy["reason_required"], *needs, *money}
    shows: dict[str, Show] = {}
    for channel in sorted(channels):
        show = gate.writes.get(channel, Show())
        if "confirm_money" in policy:
            show = replace(show, money=money.get(channel))
        shows[channel] = replace(
            show,
            reason_required=channel in policy["reason_required"],
            needs=needs.get(channel, ()),
        )
    return shows


def _why(closed: _ClosedRequest, settled: Collection[int]) -> str | None:
    """Return why people are asked, and who had rejected what when time ran out: nobody
    should approve it without knowing. Raises `TamperedRow`, `WrongKey`.
    """
    rejections = _rejections(closed.state, settled)
    sentences = _in_sentences(closed.state, rejections)
    hidden = len(sentences) - MOST_REJECTIONS
    if hidden > 0:
        sentences[MOST_REJECTIONS:] = [f"{hidden} more rejections"]
    why = why_of(closed.request)
    if why:
        sentences.insert(0, why)
    return ". ".join(sentences) or None


def _rejections(state: RequestState, settled: Collection[int]) -> list[Decision]:
    """Return the last decision of each person on each write that is asked about again,
    where it is a rejection. What stays `settled` is not asked about, by position.
    """
    last: dict[tuple[Any, Any], Decision] = {}
    for decision in sorted(state.decisions, key=attrgetter("event_seq")):
        if not decision.by_deadline:
            last[decision.write, decision.by_name] = decision
    rejections: list[Decision] = []
    for decision in last.values():
        if decision.verdict == "reject" and decision.position not in settled:
            rejections.append(decision)
    return rejections


def _in_sentences(state: RequestState, rejections: Iterable[Decision]) -> list[str]:
    """Return a sentence for each rejection: who rejected what, when, and why. Raises
    `TamperedRow`, `WrongKey`.
    """
    label_by_write = {row.write: row.label or row.channel for row in state.writes}
    sentences: list[str] = []
    for decision in rejections:
        sentence = (
            f"{decision.by_name} had rejected {label_by_write[decision.write]} at "
            f"{decision.at:%Y-%m-%d %H:%M} UTC, before the deadline"
        )
        reason = read_value(decision, "reason")
        sentences.append(f"{sentence}: {reason}" if reason else sentence)
    return sentences


def _kept_from(request: ApprovalRequest, settled: Collection[int]) -> dict[int, int]:
    """Return, by position of a settled write, the ordinal of the first request of its
    task whose decisions on it count in the one that asks again.
    """
    earlier = kept_from(request.policy)
    # What an earlier deadline did not keep was asked about again, as it was proposed:
    # decisions before this request are about another value.
    return {position: earlier.get(position, request.ordinal) for position in settled}


def _reached(
    closed: _ClosedRequest, gate: Gate, settled: frozenset[int]
) -> ReachedGate:
    request = closed.request
    policy = request.policy
    why = _why(closed, settled)
    guard = policy.get("gate") or request.node
    reads = policy.get("reads")
    if request.node == PATCH:
        channels = [row.channel for row in closed.newest]
        gate = patch_gate(gate, channels, why, guard=guard).gate
    return ReachedGate(
        gate,
        why,
        all_or_nothing=policy["all_or_nothing"],
        input_hash=request.input_hash,
        prepared_from=request.prepared_from,
        guard=guard,
        reads=reads,
        # Later changes must not be attributed to other people.
        reviewers=policy["reviewers"],
        ordinal=request.ordinal + 1,
        revisions={row.position: row.revision + 1 for row in closed.newest},
        kept_from=_kept_from(request, settled),
    )
