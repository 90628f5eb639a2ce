"""Requests that wait for people: who must decide, what settled gates apply, and which
writes come back.

Pure. The runner calls this with rows of the database, `play` with objects in memory;
neither decides by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.gates.verdicts import Standing, outcome
from orchestrator.engine.graphs.auto import reservation
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.confirmation import confirmation_policy, is_weaker
from orchestrator.engine.graphs.consideration import (
    asks_for_less,
    consideration_policy,
)
from orchestrator.engine.graphs.effect import APPROVED, REJECTED, SKIPPED
from orchestrator.engine.graphs.gate import (
    PRINCIPALS,
    Gate,
    needs_approval,
    paths_of,
    present,
    recheck,
)
from orchestrator.engine.graphs.tiers import escalated, tiers_in, tiers_policy
from orchestrator.engine.graphs.trace import JOURNALED, is_memory
from orchestrator.engine.graphs.veto import objection
from orchestrator.engine.step.base import Base
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.held_patch import (
    is_patch,
    rejected_patches,
    undecided_patches,
)
from orchestrator.engine.step.output import Output, WriteValue
from orchestrator.engine.step.reduce import Settled, StaysOpen, settleable
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.identity import Task

# As many characters as the column has that keeps a reviewer.
LONGEST_PRINCIPAL = 200


class Revision(Protocol):
    """The newest revision of a write that a gate holds, wherever it is stored."""

    @property
    def write(self) -> UUID:
        """The id of the write."""

    @property
    def channel(self) -> str:
        """The channel that it writes."""

    @property
    def shows(self) -> Iterable[str]:
        """Further channels that a decision on it is bound to."""

    def stands_on(self, base: Base) -> bool:
        """Return whether this base binds like the one that it was made from."""

    def applied(self) -> WriteValue:
        """Return the write that its approval applies."""


R = TypeVar("R", bound=Revision)


@dataclass(frozen=True, slots=True)
class WaitingRequest(Generic[R]):
    """A request that no settlement has applied: its writes by position, and their
    standings.
    """

    task: Task
    writes: Sequence[R]
    standings: Mapping[UUID, Standing]

    @property
    def outcome(self) -> str | None:
        """approved, rejected, skipped or partial once each write is settled; None
        before.
        """
        return outcome(self.standings.values())

    @property
    def last_seq(self) -> int:
        """The number of the decision that settled it."""
        return max((standing.seq for standing in self.standings.values()), default=0)

    @property
    def approved(self) -> list[R]:
        """The writes that a settlement applies."""
        approved: list[R] = []
        for revision in self.writes:
            if self.standings[revision.write].verdict == APPROVED:
                approved.append(revision)
        return approved

    @property
    def binding(self) -> list[R]:
        """The writes whose decision holds only on the values that people saw."""
        binding: list[R] = []
        for revision in self.writes:
            if self.standings[revision.write].verdict in (APPROVED, SKIPPED):
                binding.append(revision)
        return binding


class GateCheck(NamedTuple):
    """The answer of a gate's `needs_approval`: whether people must decide, why, and the
    channels that it read.
    """

    needed: bool
    why: str | None
    reads: tuple[str, ...]


def asks_people(
    compiled: Compiled,
    node: str,
    gate: Gate,
    state: State,
    output: Output,
) -> GateCheck:
    """Return whether people must decide what a task of the node proposed on this state,
    and why.
    """
    # Nobody but people can answer, whatever the gate's function would say.
    if any(write.question is not None for write in output.writes):
        return GateCheck(True, None, ())
    # What the gate's function reads is recorded, for a decision depends on it.
    view, record = compiled.recorded_state(state)
    proposal = compiled.proposal(node, output.writes)
    needed, why = needs_approval(gate, view, proposal)
    # What nobody has to approve would be approved at once.
    if not needed and gate.veto is not None:
        why = objection(gate, view, proposal)
        needed = why is not None
    return GateCheck(needed, why, tuple(sorted(record)))


class Recheck(NamedTuple):
    """The answer of a gate's `recheck`: why what was approved no longer holds (None if
    it does), and the channels that it read.
    """

    why: str | None
    reads: tuple[str, ...]


def recheck_approved(
    compiled: Compiled,
    node: str,
    state: State,
    writes: Sequence[WriteValue],
) -> Recheck:
    """Return what the gate of a node says now, on this state, of writes that it has let
    through.
    """
    gate = compiled.nodes[node].gate
    if gate is None or gate.recheck is None:
        return Recheck(None, ())
    view, record = compiled.recorded_state(state)
    why = recheck(gate, view, compiled.proposal(node, writes))
    return Recheck(why, tuple(sorted(record)))


class Veto(NamedTuple):
    """The answer of a gate's veto: why what would be approved stays open (None if it may
    be approved), and the channels that it read.
    """

    why: str | None
    reads: tuple[str, ...]


def veto_of(
    compiled: Compiled,
    node: str,
    gate: Gate,
    state: State,
    writes: Sequence[WriteValue],
) -> Veto:
    """Return the answer of this gate's veto, on this state, about a node's writes that
    would be approved. Never raises.
    """
    view, record = compiled.recorded_state(state)
    try:
        proposal = compiled.proposal(node, writes)
    except BROKEN as error:
        return Veto(f"its veto was not asked: {described(error)}", ())
    why = objection(gate, view, proposal)
    return Veto(why, tuple(sorted(record)))


class AutoAnswer(NamedTuple):
    """The answer of a gate's automatic policy: why it does not sign (None if it does),
    and the channels that it read.
    """

    why: str | None
    reads: tuple[str, ...]


def auto_of(
    compiled: Compiled,
    node: str,
    name: str,
    state: State,
    writes: Sequence[WriteValue],
) -> AutoAnswer:
    """Return what the automatic policy of this name of a node's gate says, on this state,
    of writes that people would decide. Never raises.
    """
    gate = compiled.nodes[node].gate if node in compiled.nodes else None
    view, record = compiled.recorded_state(state)
    try:
        proposal = compiled.proposal(node, writes)
    except BROKEN as error:
        return AutoAnswer(f"its policy was not asked: {described(error)}", ())
    why = reservation(gate, name, view, proposal)
    return AutoAnswer(why, tuple(sorted(record)))


def is_applied_as_one(
    compiled: Compiled,
    node: str,
    channels: Iterable[str],
) -> bool:
    """Return whether the writes of a node are decided as a whole, whatever its gate
    declares. A journal of memory is.
    """
    return compiled.memory_mode(node) == JOURNALED and any(map(is_memory, channels))


def settle_requests(
    waiting: Iterable[WaitingRequest[R]],
    compiled: Compiled,
    frontier: Frontier,
    state: State,
    stays_open: StaysOpen | None = None,
) -> list[Settled]:
    """Return what the settled ones among these requests apply, in the order of their
    last decisions, without what `stays_open` keeps open.

    A request whose base has moved, or is moved by an earlier one, is left out: it comes
    back. A patch is applied as a whole, at its last decision, and not at all if a gate
    rejected it.
    """
    # A decision counts only on the values that people saw.
    decided: list[WaitingRequest[R]] = []
    for request in waiting:
        if request.outcome and not _has_moved_base(request, compiled, state):
            decided.append(request)

    # A patch needs all of its gates: one that is undecided keeps the others waiting.
    undecided = undecided_patches(frontier, [request.task for request in decided])
    complete: list[WaitingRequest[R]] = []
    for request in decided:
        task = request.task
        if not is_patch(task) or task.visit not in undecided:
            complete.append(request)
    in_order = _in_order(complete, rejected_patches(frontier))
    settled, _ = settleable(compiled, frontier, state, in_order, stays_open)
    return settled


def _has_moved_base(
    request: WaitingRequest[R],
    compiled: Compiled,
    state: State,
) -> bool:
    # A rejected write changes nothing, so it depends on no base.
    return any(_is_moved(revision, compiled, state) for revision in request.binding)


def _in_order(
    decided: Sequence[WaitingRequest[R]], rejected: set[int]
) -> list[Settled]:
    """Return what these requests apply, in the order of their last decisions. A
    rejected patch applies nothing; `rejected` are the numbers of patches that one of
    their gates rejected earlier.
    """
    # A patch may be rejected by a gate that comes after one that approved it, so all
    # requests are looked at before the first is applied.
    rejected = set(rejected)
    last_seq_of_patch: dict[int, int] = {}
    for request in decided:
        if not is_patch(request.task):
            continue
        number = request.task.visit
        last_seq = last_seq_of_patch.get(number, request.last_seq)
        last_seq_of_patch[number] = max(last_seq, request.last_seq)
        if request.outcome == REJECTED:
            rejected.add(number)

    def place(request: WaitingRequest[R]) -> tuple[int, int]:
        # All requests of a patch stand together, where the last of them was decided.
        if is_patch(request.task):
            return last_seq_of_patch[request.task.visit], request.last_seq
        return request.last_seq, request.last_seq

    settled: list[Settled] = []
    # The log numbers decisions in one order, which a recovery reads as well.
    for request in sorted(decided, key=place):
        task = request.task
        if is_patch(task) and task.visit in rejected:
            # The task settles too: the patch waits until no gate is undecided.
            settled.append(Settled(task, (), str(request.outcome), ()))
        else:
            settled.append(as_settled(request))
    return settled


def moved_writes(
    request: WaitingRequest[R],
    compiled: Compiled,
    state: State,
) -> list[R]:
    """Return the writes that this state, about to be committed, re-bases: approvals of
    them come back, a rejection stays.
    """
    moved: list[R] = []
    for revision in request.writes:
        # A rejected write is never applied, so a new base does not matter.
        if request.standings[revision.write].verdict == REJECTED:
            continue
        if _is_moved(revision, compiled, state):
            moved.append(revision)
    return moved


def _is_moved(
    revision: Revision,
    compiled: Compiled,
    state: State,
) -> bool:
    base = Base.read(
        compiled,
        state,
        revision.channel,
        shows=revision.shows,
    )
    return not revision.stands_on(base)


def as_settled(request: WaitingRequest[R]) -> Settled:
    """Return a request whose writes are settled, in the form that a settlement
    applies.
    """
    # A rejected write changes nothing, so it binds nothing.
    shows: set[str] = set()
    for revision in request.binding:
        shows.update(revision.shows)
    return Settled(
        request.task,
        tuple(revision.applied() for revision in request.approved),
        str(request.outcome),
        tuple(sorted(shows)),
    )


class ShownWrite(NamedTuple):
    """A write as templates read it."""

    channel: str
    value: Any
    label: str | None


def texts_after_edit(
    gate: Gate,
    *,
    node: str,
    input: Json,
    state: State,
    writes: Sequence[ShownWrite],
    facts: Sequence[Any],
) -> dict[str, Any]:
    """Return title and facts of a request after an edit of one of its writes; an empty
    dict if none of their templates reads a proposal.

    `writes` as they are now. The request's present `facts` that read no proposal stay.
    """
    channels = {write.channel for write in writes}
    if not reads_proposal(gate, channels):
        return {}
    presented = present(
        gate,
        node=node,
        input=input,
        state=state,
        writes=writes,
    )
    facts_now: list[Any] = []
    # A deployment may have added or removed facts since the request was opened.
    for fact, new, old in zip(
        gate.facts,
        presented["facts"],
        facts,
        strict=False,
    ):
        # A gate with this fact alone shows whether just this one reads the proposal.
        if reads_proposal(Gate(facts=[fact]), channels):
            facts_now.append(new)
        else:
            facts_now.append(old)
    # Without a template for each fact there is no telling which fact is which.
    if len(facts_now) != len(facts):
        facts_now = list(facts)
    return {"title": presented["title"], "facts": facts_now}


def reads_proposal(gate: Gate, channels: set[str]) -> bool:
    """Return whether title or facts of a gate read what is proposed for these
    channels.
    """
    proposals = {*channels, "proposal"}
    if CALL in channels:
        proposals.add("args")
    # A bare path leads to a proposed channel before anything else of its name.
    return any(path.partition(".")[0] in proposals for path in paths_of(gate))


def principals_of(
    compiled: Compiled,
    gate: Gate,
    state: State,
) -> list[str]:
    """Return the principals that a gate asks, sorted. Raises `InvalidValue` if its
    function for reviewers fails or names nobody.
    """
    return reviewers_on(compiled, gate, state).principals


class GateReviewers(NamedTuple):
    """The principals that a gate asks, sorted, and the channels that its function for
    reviewers read to name them.
    """

    principals: list[str]
    reads: tuple[str, ...]


def reviewers_on(
    compiled: Compiled,
    gate: Gate,
    state: State,
) -> GateReviewers:
    """Return the reviewers that a gate asks on this state. Raises `InvalidValue` as
    `principals_of` does.
    """
    named: Any = named_reviewers(compiled, gate)
    view, record = compiled.recorded_state(state)
    if callable(named):
        # The view records which channels the author's function reads.
        try:
            named = named(view)
        except BROKEN as error:
            message = (
                f"{_of_node(compiled, gate)}the reviewers function of a gate failed: "
                f"{described(error)}"
            )
            raise InvalidValue(message) from error
    try:
        # A function may return a generator, which reads the state only now.
        principals = checked_principals(named)
    except InvalidValue as error:
        message = f"{_of_node(compiled, gate)}{error.message}"
        raise InvalidValue(message, **error.facts) from error
    return GateReviewers(principals, tuple(sorted(record)))


def _of_node(compiled: Compiled, gate: Gate) -> str:
    """Return the node of a gate, as the beginning of a message."""
    for name, node in compiled.nodes.items():
        if node.gate is gate:
            return f"node {name}: "
    return ""


def named_reviewers(compiled: Compiled, gate: Gate) -> Any:
    """Return the reviewers that a gate names, else those of its graph: a list, a
    function of the state, or None.
    """
    if gate.reviewers is not None:
        return gate.reviewers
    return compiled.graph.reviewers


def covers(
    compiled: Compiled,
    gate: Gate,
    other: Gate,
) -> bool:
    """Return whether satisfying this gate satisfies the other one too: it asks the same
    people, or some of them, and needs at least as many signatures.
    """
    # Two functions of the input cannot be compared.
    if gate.terms is not other.terms:
        return False
    # The more rejections are needed, the less a single one can stop.
    if gate.quorum < other.quorum or gate.reject_quorum > other.reject_quorum:
        return False
    if other.four_eyes and not gate.four_eyes:
        return False
    lacks = (
        gate.skip > other.skip,
        is_weaker(confirmation_policy(other), confirmation_policy(gate)),
        asks_for_less(consideration_policy(other), consideration_policy(gate)),
        # Each would be asked about its own.
        other.veto not in (None, gate.veto),
    )
    if any(lacks):
        return False
    return _asks_among(compiled, gate, other)


def _asks_among(compiled: Compiled, gate: Gate, other: Gate) -> bool:
    """Return whether a gate asks nobody whom the other one does not ask, or later."""
    mine = named_reviewers(compiled, gate)
    others = named_reviewers(compiled, other)
    if not _are_among(mine, others):
        return False
    # Whom it asks later, the other gate must ask by itself, whenever that is.
    also_asked = set(_escalated(other))
    if not callable(others):
        also_asked.update(others or ())
    return also_asked.issuperset(_escalated(gate))


def _escalated(gate: Gate) -> list[str]:
    """Return whom the tiers of a gate ask too."""
    return escalated(tiers_in(tiers_policy(gate)))


def _are_among(mine: Any, others: Any) -> bool:
    """Return whether all of my reviewers are among the others'; for functions, whether
    both are the same.
    """
    # Whom a function names is known only on a state, so two of them cannot be compared.
    if callable(mine) or callable(others):
        return mine is others
    return set(mine or ()) <= set(others or ())


def checked_principals(named: Any) -> list[str]:
    """Return these principals, sorted. Raises `InvalidValue` for anything else, and for
    an empty list.
    """
    # A text is iterable too, and would be taken for a list of its letters.
    if isinstance(named, str) or not isinstance(named, Iterable):
        raise InvalidValue(
            "reviewers must be a list of user:<name>, group:<name> or "
            f"perm:<app.codename>, as ['group:claims'], not {named!r}"
        )
    principals = sorted({str(principal) for principal in named})
    longest = max(map(len, principals), default=0)
    if longest > LONGEST_PRINCIPAL:
        raise InvalidValue(
            f"a reviewer's name has at most {LONGEST_PRINCIPAL} characters"
        )
    wrong = [name for name in principals if not name.startswith(PRINCIPALS)]
    if wrong or not principals:
        raise InvalidValue(
            "reviewers must name somebody as user:, group: or perm:, "
            f"not {wrong or 'nobody'}"
        )
    return principals
