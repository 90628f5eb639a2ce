"""The people of a `play`: the state that they are shown, waiting requests, and the
decider. Only `play` calls it.

Requests, revisions and decisions are kept here in memory; their outcome is worked out
by the same functions that the runner calls.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from orchestrator.engine.errors import DeadlinePassed, InvalidValue, UnknownThing
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.gates.requests import (
    ShownWrite,
    WaitingRequest,
    auto_of,
    is_applied_as_one,
    moved_writes,
    principals_of,
    settle_requests,
    texts_after_edit,
    veto_of,
)
from orchestrator.engine.gates.verdicts import (
    AUTOMATIC,
    NOT_SKIPPABLE,
    VETO,
    Given,
    Held,
    Policy,
    judge,
)
from orchestrator.engine.graphs.call import is_call
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.confirmation import (
    confirmation_needed,
    confirmation_policy,
)
from orchestrator.engine.graphs.effect import REJECTED
from orchestrator.engine.graphs.gate import Gate, present, present_edit
from orchestrator.engine.graphs.limit import require_within_limits
from orchestrator.engine.graphs.question import (
    NO_VALUE,
    NOT_ANSWERED,
    is_unanswered,
    require_fitting,
    shown_of,
)
from orchestrator.engine.graphs.write import require_fitting_form, shown_form
from orchestrator.engine.step.base import Base
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.output import WriteValue
from orchestrator.engine.step.reduce import HeldWrite, Settled
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.functions import name_of
from orchestrator.engine.values.identity import Task, write_id
from orchestrator.engine.values.ops import same

RUN = UUID(int=0)
"""The run id of everything that is played."""
DEADLINE = "deadline"
"""The answer of a decider who lets the deadline pass."""
DECIDER = 1
"""The person who stands for all reviewers."""
VERDICTS = ("approve", "reject", "edit", "skip")
MOST_VETOES = 10
"""How often a veto may keep one request open before its decider is asked no more."""


class PlayedState(dict[str, Any]):
    """A state of the play: the stored JSON by partition (`state["scratch"]`) or by
    channel (`state["notes"]`), and as attributes the values that a node would see
    (`state.notes`).
    """

    def __init__(
        self,
        compiled: Compiled,
        input: Json,
        state: State,
    ) -> None:
        super().__init__(
            input=input,
            scratch=state["scratch"],
            artifacts=state["artifacts"],
        )
        self._compiled = compiled

    def __missing__(self, channel: str) -> Json:
        return {**self["scratch"], **self["artifacts"]}[channel]

    def __getattr__(self, channel: str) -> Any:
        # A copy in the making has no `_compiled` yet, and would look for it forever.
        if channel.startswith("_"):
            raise AttributeError(channel)
        plain = {"scratch": self["scratch"], "artifacts": self["artifacts"]}
        return getattr(self._compiled.state_for(plain), channel)


@dataclass(frozen=True, slots=True)
class RequestWrite:
    """A write to decide: the proposed and the present value of its channel, as JSON;
    `verdict` if it has one already; `unanswered` where people are asked for its value.
    """

    position: int
    channel: str
    label: str
    value: Json
    current: Json
    verdict: str | None = None
    unanswered: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """A gate that one task reached."""

    node: str
    visit: int
    index: int
    title: str
    facts: list[dict[str, Json]]
    writes: tuple[RequestWrite, ...]

    @property
    def task(self) -> Task:
        return Task(self.node, self.visit, self.index)


Decisions = Callable[[Request], Mapping[int, Any] | str | None]


@dataclass(slots=True)
class _HeldRevision:
    """A held write at its newest revision."""

    write: UUID
    channel: str
    label: str
    value: Json
    base: Base
    original: Json
    shown: dict[str, Json]
    revision: int = 1

    @property
    def shows(self) -> Iterable[str]:
        return self.base.shows

    def stands_on(self, base: Base) -> bool:
        return base.binding() == self.base.binding()

    def applied(self) -> WriteValue:
        return WriteValue(self.channel, self.value, self.label, self.base.version)


@dataclass(slots=True)
class _PlayedRequest:
    """A request that no settlement has applied. `shown` is fixed when it is opened;
    `seen_by_policy` are the revisions about which its automatic policy was asked.
    """

    task: Task
    shown: dict[str, Any]
    policy: Policy
    writes: list[_HeldRevision]
    decisions: list[Given] = field(default_factory=list)
    vetoes: int = 0
    seen_by_policy: set[tuple[UUID, int]] = field(default_factory=set)

    def answered(self) -> list[_HeldRevision]:
        """Return the writes that have a value."""
        return [write for write in self.writes if not is_unanswered(write.shown)]

    def stands(self) -> WaitingRequest[_HeldRevision]:
        """Return the request with the standing of each of its writes."""
        held = [
            Held(write.write, write.revision, channel=write.channel)
            for write in self.writes
        ]
        standings = judge(held, self.decisions, self.policy)
        return WaitingRequest(self.task, self.writes, standings)


class Reviewers:
    """The decider: keeps requests and decisions, and is asked at each pause. The states
    that it is shown have a further partition, `memory`: the content of the memory
    channels, as {value, version}.
    """

    def __init__(
        self,
        compiled: Compiled,
        input: Json,
        decisions: Decisions | None,
    ) -> None:
        self._compiled = compiled
        self._input = input
        self._decisions = decisions
        self._waiting: dict[Task, _PlayedRequest] = {}
        self._seq = 0

    def channels(self) -> list[str]:
        """Return the channels that the writes of its requests change."""
        channels: list[str] = []
        for request in self._waiting.values():
            channels += [write.channel for write in request.writes]
        return channels

    def require_reviewers(
        self,
        held: Sequence[HeldWrite],
        state: State,
    ) -> None:
        """Raise `InvalidValue` if a gate that is reached would ask nobody."""
        for node in dict.fromkeys(write.task.node for write in held):
            principals_of(self._compiled, self._gate_on_run(node), state)

    def open(
        self,
        held: Sequence[HeldWrite],
        state: State,
    ) -> None:
        """Open requests for the writes that gates have held since the last superstep,
        on this state. Raises `InvalidValue`.
        """
        self.require_reviewers(held, state)
        by_task: dict[Task, list[HeldWrite]] = {}
        for write in held:
            by_task.setdefault(write.task, []).append(write)
        for task, writes in by_task.items():
            self._waiting[task] = self._new_request(task, writes, state)
            self._ask_policy(self._waiting[task], state)

    def _new_request(
        self,
        task: Task,
        held: list[HeldWrite],
        state: State,
    ) -> _PlayedRequest:
        gate = self._gate_on_run(task.node)
        shown = present(
            gate,
            node=task.node,
            input=self._input,
            state=state,
            writes=held,
        )
        channels = [write.channel for write in held]
        as_one = is_applied_as_one(self._compiled, task.node, channels)
        revisions: list[_HeldRevision] = []
        for write in held:
            shown_write = shown["writes"][write.position]
            shown_write |= shown_of(write.question) | shown_form(write.form)
            base = Base.read(
                self._compiled,
                state,
                write.channel,
                shows=gate.shows,
            )
            revisions.append(
                _HeldRevision(
                    write=write_id(RUN, 1, task, write.position),
                    channel=write.channel,
                    label=shown_write["label"],
                    value=write.value,
                    base=base,
                    original=write.value,
                    shown=shown_write,
                )
            )
        # One decider represents all reviewers, so a single answer settles a write.
        policy = Policy(
            all_or_nothing=gate.all_or_nothing or as_one,
            needs={channel: show.needs for channel, show in gate.writes.items()},
            skip=gate.skip,
        )
        return _PlayedRequest(task, shown, policy, revisions)

    def rebase(self, state: State) -> None:
        """Take in the state that a commit makes: writes whose base it moves come back."""
        for request in self._waiting.values():
            for write in moved_writes(request.stands(), self._compiled, state):
                # Decisions on the older revision stop counting: they saw another base.
                write.revision += 1
                write.base = Base.read(
                    self._compiled,
                    state,
                    write.channel,
                    shows=write.shows,
                )
        # What came back, and what a person edited before a veto kept it open.
        for request in self._waiting.values():
            self._ask_policy(request, state)

    def requests(self, state: State) -> list[Request]:
        """Return the requests that wait, in declared order."""
        return [self._shown_request(request, state) for request in self._undecided()]

    def ask(self, state: State) -> bool:
        """Ask about each waiting request once; all answers are one act. Returns whether
        a request is settled now.
        """
        # Settled only when all were asked, so that no answer changes what another sees.
        if self._decisions is not None:
            for request in self._undecided():
                if request.vetoes >= MOST_VETOES:
                    continue
                answered = self._decisions(self._shown_request(request, state))
                if answered == DEADLINE:
                    self._pass_deadline(request)
                else:
                    self._take_answers(request, _answers_of(answered), state)
        return self.has_settled()

    def has_settled(self) -> bool:
        """Return whether a settled request waits to be applied."""
        return any(request.stands().outcome for request in self._waiting.values())

    def settle(
        self,
        frontier: Frontier,
        state: State,
    ) -> list[Settled]:
        """Return what settled requests apply to this state, without those that their veto
        keeps open.
        """
        vetoed: list[_PlayedRequest] = []

        def stays_open(settlement: Settled, seen: State) -> bool:
            why = self._objection(settlement, seen)
            if why is not None:
                vetoed.append(self._waiting[settlement.task])
            return why is not None

        waiting = [request.stands() for request in self._waiting.values()]
        settled = settle_requests(waiting, self._compiled, frontier, state, stays_open)
        for request in vetoed:
            self._keep_open(request)
        return settled

    def _objection(self, settlement: Settled, seen: State) -> str | None:
        """Return why a gate's veto keeps open what this would apply on this state."""
        node = settlement.task.node
        gate = self._gate(node)
        if gate.veto is None:
            return None
        return veto_of(self._compiled, node, gate, seen, settlement.writes).why

    def _ask_policy(self, request: _PlayedRequest, state: State) -> None:
        """Sign by the automatic policy of a gate the open revisions about which it was
        not asked before. Only where it decides alone: beside it a decider stands for
        all others.
        """
        gate = self._gate(request.task.node)
        if gate.auto is None or gate.quorum > 1:
            return
        standings = request.stands().standings
        proposed: list[_HeldRevision] = []
        unseen: list[_HeldRevision] = []
        # Only a person can answer what the node has asked.
        for write in request.answered():
            standing = standings[write.write]
            if standing.verdict != REJECTED:
                proposed.append(write)
            revision = (write.write, write.revision)
            # A settled write counts as unseen once a veto has opened it again.
            if not standing.settled and revision not in request.seen_by_policy:
                unseen.append(write)
                request.seen_by_policy.add(revision)
        if unseen:
            self._let_policy_sign(request, state, proposed, unseen)

    def _let_policy_sign(
        self,
        request: _PlayedRequest,
        state: State,
        proposed: Sequence[_HeldRevision],
        writes: Sequence[_HeldRevision],
    ) -> None:
        """Ask the automatic policy about the proposal. If it agrees, add its approval
        to each of these writes that no person has to confirm.
        """
        gate = self._gate(request.task.node)
        answer = auto_of(
            self._compiled,
            request.task.node,
            name_of(gate.auto),
            state,
            [write.applied() for write in proposed],
        )
        if answer.why is not None:
            return
        policy = confirmation_policy(gate)
        for write in writes:
            if not confirmation_needed(policy, write.channel, [write.value]):
                self._add(request, write, "approve", by=AUTOMATIC)

    def _keep_open(self, request: _PlayedRequest) -> None:
        """Note a veto of what was approved. What a deadline approved is rejected then."""
        request.vetoes += 1
        standings = request.stands().standings
        at_deadline = {row.write for row in request.decisions if row.by_deadline}
        for write in request.writes:
            if standings[write.write].verdict == REJECTED:
                continue
            self._add(request, write, VETO)
            if write.write in at_deadline:
                self._add(request, write, "reject", by_deadline=True)

    def _add(
        self,
        request: _PlayedRequest,
        write: _HeldRevision,
        verdict: str,
        *,
        by_deadline: bool = False,
        by: int | None = None,
    ) -> None:
        """Add what no person decided."""
        self._seq += 1
        request.decisions.append(
            Given(
                write.write,
                write.revision,
                verdict,
                by,
                self._seq,
                by_deadline=by_deadline,
            )
        )

    def forget(self, settled: Sequence[Settled]) -> None:
        """Remove requests that were applied."""
        for settlement in settled:
            del self._waiting[settlement.task]

    def _undecided(self) -> list[_PlayedRequest]:
        undecided: list[_PlayedRequest] = []
        for request in self._waiting.values():
            if request.stands().outcome is None:
                undecided.append(request)
        undecided.sort(key=lambda request: self._compiled.task_order(request.task))
        return undecided

    def _gate(self, node: str) -> Gate:
        gate = self._compiled.nodes[node].gate
        assert gate is not None
        return gate

    def _gate_on_run(self, node: str) -> Gate:
        """Return the gate of a node as its terms, if it has any, put it for this input."""
        return gate_on_run(self._compiled, self._gate(node), self._input)

    def _shown_request(
        self,
        request: _PlayedRequest,
        state: State,
    ) -> Request:
        standings = request.stands().standings
        writes: list[RequestWrite] = []
        for position, write in enumerate(request.writes):
            writes.append(
                RequestWrite(
                    position=position,
                    channel=write.channel,
                    label=write.label,
                    value=write.value,
                    current=_current_value(write, state),
                    verdict=standings[write.write].verdict or None,
                    unanswered=is_unanswered(write.shown),
                )
            )
        return Request(
            *request.task,
            title=request.shown["title"],
            facts=request.shown["facts"],
            writes=tuple(writes),
        )

    def _take_answers(
        self,
        request: _PlayedRequest,
        answers: Mapping[int, Any],
        state: State,
    ) -> None:
        """Count the answers about open writes. Settled writes stay as they are."""
        standings = request.stands().standings
        decided_before = len(request.decisions)
        edited: set[UUID] = set()
        for position, answer in answers.items():
            _refuse_unknown_position(request, position)
            if answer is None:
                continue
            write = request.writes[position]
            # Checked even for a settled write: a wrong answer is always a mistake.
            verdict, value = _verdict_of(answer, request.task)
            if standings[write.write].settled:
                continue
            _require_decidable(request, write, verdict)
            self._count(request, write, verdict, value)
            if verdict == "edit":
                edited.add(write.write)
        if edited:
            self._show_anew(request, state, edited, decided_before)

    def _pass_deadline(self, request: _PlayedRequest) -> None:
        """Decide the open writes of a request by its deadline. Raises `InvalidValue` if
        its gate has none, and `DeadlinePassed` if the run fails by it.
        """
        gate = self._gate_on_run(request.task.node)
        if gate.deadline is None:
            raise InvalidValue(
                f"the gate of {request.task} has no deadline", task=str(request.task)
            )
        if gate.on_deadline == "fail":
            raise DeadlinePassed(
                f"nobody decided at the gate of {request.task.node} before its deadline",
                node=request.task.node,
            )
        standings = request.stands().standings
        for write in request.writes:
            if standings[write.write].settled:
                continue
            # Silence answers nothing.
            verdict = "reject" if "ask" in write.shown else gate.on_deadline
            self._add(request, write, verdict, by_deadline=True)

    def _show_anew(
        self,
        request: _PlayedRequest,
        state: State,
        edited: set[UUID],
        decided_before: int,
    ) -> None:
        """Update title and facts after an edit. If they change, the other writes come
        back, except rejected ones. Decisions that came with the edit, from the number
        `decided_before` on, count for the new revisions.
        """
        if not self._update_texts(request, state):
            return
        standings = request.stands().standings
        back: set[UUID] = set()
        for write in request.writes:
            is_rejected = standings[write.write].verdict == REJECTED
            # The edited ones have a new revision already.
            if write.write not in edited and not is_rejected:
                back.add(write.write)
                write.revision += 1
        for number, decision in enumerate(request.decisions):
            # Whoever answers in one act has seen the edit, so these answers stay valid.
            if number >= decided_before and decision.write in back:
                request.decisions[number] = replace(
                    decision, revision=decision.revision + 1
                )

    def _update_texts(
        self,
        request: _PlayedRequest,
        state: State,
    ) -> bool:
        """Make title and facts from the writes as they are now. Return whether that
        changed them.
        """
        before = _texts(request)
        writes = [
            ShownWrite(write.channel, write.value, None) for write in request.writes
        ]
        request.shown |= texts_after_edit(
            self._gate_on_run(request.task.node),
            node=request.task.node,
            input=self._input,
            state=state,
            writes=writes,
            facts=request.shown["facts"],
        )
        return not same(before, _texts(request))

    def _count(
        self,
        request: _PlayedRequest,
        write: _HeldRevision,
        verdict: str,
        value: Any,
    ) -> None:
        # Staged first, so that a value that does not fit changes nothing.
        if verdict == "edit":
            node = request.task.node
            channel = self._compiled.channel_of(node, write.channel)
            value = channel.stage(value)
            is_asked = "ask" in write.shown
            task = str(request.task)
            require_fitting(write.shown, write.channel, value, task=task)
            require_fitting_form(write.shown, write.channel, value, task=task)
            require_within_limits(
                write.shown,
                write.channel,
                proposed=NO_VALUE if is_asked else write.original,
                edited=value,
                task=str(request.task),
            )
            write.value = value
            write.revision += 1
            write.shown = present_edit(
                self._gate(request.task.node),
                write.channel,
                write.value,
                original=write.original,
                shown=write.shown,
            )
            write.label = str(write.shown["label"])
        self._seq += 1
        request.decisions.append(
            Given(write.write, write.revision, verdict, DECIDER, self._seq)
        )


def _texts(request: _PlayedRequest) -> dict[str, Json]:
    return {"title": request.shown["title"], "facts": request.shown["facts"]}


def _refuse_unknown_position(request: _PlayedRequest, position: Any) -> None:
    if position in range(len(request.writes)):
        return
    positions = [f"{n} ({write.channel})" for n, write in enumerate(request.writes)]
    message = (
        f"{request.task} has no write at position {position!r}; "
        f"it has {', '.join(positions)}"
    )
    raise UnknownThing(message, task=str(request.task))


def _require_decidable(
    request: _PlayedRequest, write: _HeldRevision, verdict: str
) -> None:
    if verdict == "skip" and not request.policy.skip:
        raise InvalidValue(NOT_SKIPPABLE, task=str(request.task))
    if verdict == "approve" and is_unanswered(write.shown):
        raise InvalidValue(f"{write.channel}: {NOT_ANSWERED}", task=str(request.task))


def _answers_of(answered: Any) -> Mapping[int, Any]:
    """Return the answers of `decisions` about a request: {position: answer}; nothing
    for None. Raises `InvalidValue`.
    """
    if answered is None:
        return {}
    if isinstance(answered, Mapping):
        return answered
    cure = (
        'answer a dict by position of the write, as {0: "approve"}, '
        'None to leave the request, or "deadline" to let its deadline pass'
    )
    raise InvalidValue(f"decisions(request) answered {answered!r}; {cure}")


def _verdict_of(answer: Any, task: Task) -> tuple[str, Any]:
    """Return the verdict on one write, and its value if it is an edit. Raises
    `InvalidValue`.
    """
    parts: tuple[Any, ...] = (answer,)
    if isinstance(answer, list | tuple):
        parts = tuple(answer)
    # Only an edit needs a value.
    if len(parts) == 1 and isinstance(parts[0], str) and parts[0] != "edit":
        parts = (parts[0], None)
    if len(parts) != 2:
        cure = 'say "approve", "reject", "skip" or ("edit", value)'
        raise InvalidValue(
            f"{answer!r} is no answer on a write of {task}; {cure}", task=str(task)
        )
    verdict, value = parts
    if verdict not in VERDICTS:
        raise InvalidValue(
            f"{verdict!r} is no verdict; say approve, reject, edit or skip",
            task=str(task),
        )
    return verdict, value


def waiting_tasks(compiled: Compiled, frontier: Frontier) -> list[Task]:
    """Return the gated tasks, in declared order."""
    return sorted(frontier.gated(), key=compiled.task_order)


def _current_value(write: _HeldRevision, state: State) -> Json:
    """Return the value that the write would change. A value that binds is shown as it
    was when the write was made.
    """
    # A decision is bound to exactly this value, so no other may be shown.
    if write.base.bound:
        return write.base.value
    channel = write.channel
    # A call changes no channel by itself.
    if is_call(channel):
        return None
    partition = "artifacts" if channel in state["artifacts"] else "scratch"
    return state[partition][channel]
