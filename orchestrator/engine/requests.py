"""What becomes of requests that wait for people: who is asked, what settled gates apply, and which writes come back.

Pure. The runner asks with rows of the database behind it, `play` with what it holds in memory; neither decides by
itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from orchestrator.engine.base import Base
from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.effect import APPROVED, REJECTED
from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.gate import PRINCIPALS, Gate, needs_approval, paths_of, present
from orchestrator.engine.held_patch import is_patch, rejected_patches, undecided_patches
from orchestrator.engine.identity import Task
from orchestrator.engine.output import Output, WriteValue
from orchestrator.engine.reduce import Settled, settleable
from orchestrator.engine.trace import JOURNALED, is_memory
from orchestrator.engine.verdicts import Standing, outcome

LONGEST_PRINCIPAL = 200


class Revision(Protocol):
    """The newest revision of a write that a gate holds, wherever it is kept."""

    @property
    def write(self) -> UUID:
        """Its id."""

    @property
    def channel(self) -> str:
        """What it writes."""

    @property
    def shows(self) -> Iterable[str]:
        """Further channels that a decision on it is bound to."""

    def stands_on(self, base: Base) -> bool:
        """Whether this base binds as the one does that it was made from."""

    def applied(self) -> WriteValue:
        """What its approval applies."""


R = TypeVar("R", bound=Revision)


@dataclass(frozen=True, slots=True)
class WaitingRequest(Generic[R]):
    """A request that no settlement has applied: its writes by position, and how they stand."""

    task: Task
    writes: Sequence[R]
    standings: Mapping[UUID, Standing]

    @property
    def outcome(self) -> str | None:
        """approved, rejected or partial once each write is settled; None before."""
        return outcome(self.standings.values())

    @property
    def last_seq(self) -> int:
        """The number of the decision that settled it."""
        return max((standing.seq for standing in self.standings.values()), default=0)

    @property
    def approved(self) -> list[R]:
        """The writes that a settlement applies."""
        return [one for one in self.writes if self.standings[one.write].verdict == APPROVED]


class Check(NamedTuple):
    """The answer of a gate's `needs_approval`: whether people must decide, why, and the channels that it read."""

    needed: bool
    why: str | None
    reads: tuple[str, ...]


def asks_people(compiled: Compiled, gate: Gate, state: State, output: Output) -> Check:
    """Return whether people must decide what a task proposed on this state, and why."""
    view, record = compiled.recorded_state(state)
    needed, why = needs_approval(gate, view, compiled.proposal(output.writes))
    return Check(needed, why, tuple(sorted(record)))


def is_applied_as_one(compiled: Compiled, node: str, channels: Iterable[str]) -> bool:
    """Whether what a node writes is decided as a whole, whatever its gate says: so is a journal of memory."""
    return compiled.memory_mode(node) == JOURNALED and any(map(is_memory, channels))


def settle_requests(
    asked: Iterable[WaitingRequest[R]], compiled: Compiled, frontier: Frontier, state: State
) -> list[Settled]:
    """What those of these requests that are settled apply, in the order of their last decisions.

    Left out is one whose base has moved, or is moved by an earlier one: it comes back. A patch is applied as a
    whole, in the place of its last decision, and not at all where a gate rejected it.
    """
    ready = [one for one in asked if one.outcome]
    current = [one for one in ready if not any(_is_moved(write, compiled, state) for write in one.approved)]
    undecided = undecided_patches(frontier, [one.task for one in current])
    whole = [one for one in current if not (is_patch(one.task) and one.task.visit in undecided)]
    settled, _ = settleable(compiled, frontier, state, _in_order(whole, rejected_patches(frontier)))
    return settled


def _in_order(decided: Sequence[WaitingRequest[R]], rejected: set[int]) -> list[Settled]:
    """What these requests apply, in the order of their last decisions; of patches that were rejected, also earlier by
    one of their gates (`rejected`, by number), nothing.
    """
    patches = [one for one in decided if is_patch(one.task)]
    rejected = rejected | {one.task.visit for one in patches if one.outcome == REJECTED}
    last_seqs: dict[Task, int] = {}
    for one in decided:
        same = [other for other in patches if other.task.visit == one.task.visit] if is_patch(one.task) else [one]
        last_seqs[one.task] = max(other.last_seq for other in same)
    settled = []
    for one in sorted(decided, key=lambda one: (last_seqs[one.task], one.last_seq)):
        of_rejected = is_patch(one.task) and one.task.visit in rejected
        settled.append(Settled(one.task, (), str(one.outcome), ()) if of_rejected else as_settled(one))
    return settled


def moved_writes(one: WaitingRequest[R], compiled: Compiled, state: State) -> list[R]:
    """The writes that this state, about to be committed, re-bases: approvals of them come back, a rejection stays."""
    return [
        write
        for write in one.writes
        if one.standings[write.write].verdict != REJECTED and _is_moved(write, compiled, state)
    ]


def _is_moved(write: Revision, compiled: Compiled, state: State) -> bool:
    return not write.stands_on(Base.read(compiled, state, write.channel, shows=write.shows))


def as_settled(one: WaitingRequest[R]) -> Settled:
    """A request whose writes are settled, as a settlement applies it."""
    shows = {name for write in one.approved for name in write.shows}
    return Settled(one.task, tuple(write.applied() for write in one.approved), str(one.outcome), tuple(sorted(shows)))


class ShownWrite(NamedTuple):
    """A write as templates read it."""

    channel: str
    value: Any
    label: str | None


def texts_after_edit(
    gate: Gate, *, node: str, input: Json, state: State, writes: Sequence[ShownWrite], facts: Sequence[Any]
) -> dict[str, Any]:
    """Title and facts of a request of which a write was edited; empty where no template of them reads a proposal.
    `writes` as they are now; of the `facts` that it has, those stay that read none.
    """
    channels = {one.channel for one in writes}
    if not reads_proposal(gate, channels):
        return {}
    made = present(gate, node=node, input=input, state=state, writes=writes)
    again = [
        new if reads_proposal(Gate(facts=[fact]), channels) else old
        for fact, new, old in zip(gate.facts, made["facts"], facts, strict=False)
    ]
    return {"title": made["title"], "facts": again if len(again) == len(facts) else list(facts)}


def reads_proposal(gate: Gate, channels: set[str]) -> bool:
    """Whether title or facts of a gate read what is proposed for these channels."""
    return any(path.partition(".")[0] in {*channels, "proposal"} for path in paths_of(gate))


def principals_of(compiled: Compiled, gate: Gate, state: State) -> list[str]:
    """Whom a gate asks, sorted. Raises `InvalidValue` where its function for reviewers fails or names nobody."""
    return reviewers_on(compiled, gate, state).principals


class Reviewers(NamedTuple):
    """Whom a gate asks, sorted, and the channels that its function for reviewers read to say so."""

    principals: list[str]
    reads: tuple[str, ...]


def reviewers_on(compiled: Compiled, gate: Gate, state: State) -> Reviewers:
    """Return whom a gate asks on this state. Raises `InvalidValue` as `principals_of` does."""
    named: Any = named_reviewers(compiled, gate)
    view, record = compiled.recorded_state(state)
    if callable(named):
        try:
            named = named(view)
        except BROKEN as error:
            message = f"{_of_node(compiled, gate)}the reviewers function of a gate failed: {described(error)}"
            raise InvalidValue(message) from error
    try:
        # A function may return a generator, which reads the state only now.
        principals = _checked(named)
    except InvalidValue as error:
        raise InvalidValue(f"{_of_node(compiled, gate)}{error.message}", **error.facts) from error
    return Reviewers(principals, tuple(sorted(record)))


def _of_node(compiled: Compiled, gate: Gate) -> str:
    """Begin a sentence on a gate with its node."""
    names = [name for name, node in compiled.nodes.items() if node.gate is gate]
    return f"node {names[0]}: " if names else ""


def named_reviewers(compiled: Compiled, gate: Gate) -> Any:
    """Return the reviewers that a gate names, else those of its graph: a list, a function of the state, or None."""
    return gate.reviewers if gate.reviewers is not None else compiled.graph.reviewers


def covers(compiled: Compiled, gate: Gate, other: Gate) -> bool:
    """Return whether whoever satisfies this gate satisfies the other one too: it asks the same people, or fewer, and
    as many of them.
    """
    as_strict = gate.quorum >= other.quorum and gate.reject_quorum <= other.reject_quorum
    as_strict = as_strict and (gate.four_eyes or not other.four_eyes)
    return as_strict and _same_people(named_reviewers(compiled, gate), named_reviewers(compiled, other))


def _same_people(mine: Any, others: Any) -> bool:
    """Return whether all of my reviewers are among the others'; of functions, whether both are the same."""
    if callable(mine) or callable(others):
        return mine is others
    return {*(mine or ())} <= {*(others or ())}


def _checked(named: Any) -> list[str]:
    if isinstance(named, str) or not isinstance(named, Iterable):
        must = "reviewers must be a list of user:<name>, group:<name> or perm:<app.codename>"
        raise InvalidValue(f"{must}, as ['group:claims'], not {named!r}")
    principals = sorted({str(p) for p in named})
    wrong = [p for p in principals if not p.startswith(PRINCIPALS)]
    if any(len(p) > LONGEST_PRINCIPAL for p in principals):
        raise InvalidValue(f"a reviewer's name has at most {LONGEST_PRINCIPAL} characters")
    if wrong or not principals:
        raise InvalidValue(f"reviewers must name somebody as user:, group: or perm:, not {wrong or 'nobody'}")
    return principals
