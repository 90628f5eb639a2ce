"""What `play` shows and asks: the state as it stands, waiting requests, and the one who decides them. Only `play`
calls it.

Requests, revisions and decisions are kept here in memory; what they come to is decided where the runner asks it too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from orchestrator.engine.base import Base
from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.effect import REJECTED
from orchestrator.engine.errors import InvalidValue, UnknownThing
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.gate import Gate, present, present_edit
from orchestrator.engine.identity import Task, write_id
from orchestrator.engine.ops import same
from orchestrator.engine.output import WriteValue
from orchestrator.engine.reduce import HeldWrite, Settled
from orchestrator.engine.requests import (
    ShownWrite,
    WaitingRequest,
    is_applied_as_one,
    moved_writes,
    principals_of,
    settle_requests,
    texts_after_edit,
)
from orchestrator.engine.verdicts import Given, Held, Policy, judge

RUN = UUID(int=0)
"""The run id of everything that is played."""
DECIDER = 1
"""The one who stands for all reviewers."""
VERDICTS = ("approve", "reject", "edit")


class PlayedState(dict[str, Any]):
    """A state that was reached: the stored JSON by partition (`state["scratch"]`), or by channel (`state["notes"]`);
    as attributes the values that a node would see (`state.notes`).
    """

    def __init__(self, compiled: Compiled, input: Json, state: State) -> None:
        super().__init__(input=input, scratch=state["scratch"], artifacts=state["artifacts"])
        self._compiled = compiled

    def __missing__(self, channel: str) -> Json:
        return {**self["scratch"], **self["artifacts"]}[channel]

    def __getattr__(self, channel: str) -> Any:
        if channel.startswith("_"):
            raise AttributeError(channel)
        return getattr(self._compiled.state_for({name: self[name] for name in ("scratch", "artifacts")}), channel)


@dataclass(frozen=True, slots=True)
class RequestWrite:
    """A write to decide: what it proposes and what the channel holds now, as JSON; `verdict` where it has one
    already.
    """

    position: int
    channel: str
    label: str
    value: Json
    current: Json
    verdict: str | None = None


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


Decisions = Callable[[Request], Mapping[int, Any] | None]


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
    """A request that no settlement has applied. `shown` is fixed when it is opened."""

    task: Task
    shown: dict[str, Any]
    policy: Policy
    writes: list[_HeldRevision]
    given: list[Given] = field(default_factory=list)

    def stands(self) -> WaitingRequest[_HeldRevision]:
        """It, with where each of its writes stands."""
        held = [Held(one.write, one.revision) for one in self.writes]
        return WaitingRequest(self.task, self.writes, judge(held, self.given, self.policy))


class Reviewers:
    """The one who decides: keeps requests and decisions, is asked at each pause. The states that it is shown have a
    further partition, `memory`: what the channels of memory hold, as {value, version}.
    """

    def __init__(self, compiled: Compiled, input: Json, decisions: Decisions | None) -> None:
        self._compiled = compiled
        self._input = input
        self._decisions = decisions
        self._asked: dict[Task, _PlayedRequest] = {}
        self._seq = 0

    def channels(self) -> list[str]:
        """What the writes of its requests write."""
        return [write.channel for one in self._asked.values() for write in one.writes]

    def require_reviewers(self, held: Sequence[HeldWrite], state: State) -> None:
        """Raise `InvalidValue` where a gate that is reached would ask nobody."""
        for node in dict.fromkeys(write.task.node for write in held):
            principals_of(self._compiled, self._gate(node), state)

    def open(self, held: Sequence[HeldWrite], state: State) -> None:
        """Ask about what gates have held since the last superstep, on this state. Raises `InvalidValue`."""
        self.require_reviewers(held, state)
        for task in dict.fromkeys(write.task for write in held):
            self._asked[task] = self._opened(task, [write for write in held if write.task == task], state)

    def _opened(self, task: Task, held: list[HeldWrite], state: State) -> _PlayedRequest:
        gate = self._gate(task.node)
        shown = present(gate, node=task.node, input=self._input, state=state, writes=held)
        as_one = is_applied_as_one(self._compiled, task.node, [write.channel for write in held])
        writes = [
            _HeldRevision(
                write=write_id(RUN, 1, task, write.position),
                channel=write.channel,
                label=shown["writes"][write.position]["label"],
                value=write.value,
                base=Base.read(self._compiled, state, write.channel, shows=gate.shows),
                original=write.value,
                shown=shown["writes"][write.position],
            )
            for write in held
        ]
        return _PlayedRequest(task, shown, Policy(all_or_nothing=gate.all_or_nothing or as_one), writes)

    def rebase(self, state: State) -> None:
        """Take in the state that a commit makes: writes whose base it moves come back."""
        for one in self._asked.values():
            for write in moved_writes(one.stands(), self._compiled, state):
                write.revision += 1
                write.base = Base.read(self._compiled, state, write.channel, shows=write.shows)

    def requests(self, state: State) -> list[Request]:
        """The requests that wait, in declared order."""
        return [self._request(one, state) for one in self._open()]

    def ask(self, state: State) -> bool:
        """Ask each waiting request once; all answers are one act. Gives whether a request is settled now."""
        if self._decisions is not None:
            for one in self._open():
                self._take(one, _answers_of(self._decisions(self._request(one, state))), state)
        return self.has_settled()

    def has_settled(self) -> bool:
        """Whether a settled request waits to be applied."""
        return any(one.stands().outcome for one in self._asked.values())

    def settle(self, frontier: Frontier, state: State) -> list[Settled]:
        """What settled requests apply to this state."""
        return settle_requests([one.stands() for one in self._asked.values()], self._compiled, frontier, state)

    def forget(self, settled: Sequence[Settled]) -> None:
        """These are applied."""
        for one in settled:
            del self._asked[one.task]

    def _open(self) -> list[_PlayedRequest]:
        waiting = [one for one in self._asked.values() if one.stands().outcome is None]
        return sorted(waiting, key=lambda one: self._compiled.task_order(one.task))

    def _gate(self, node: str) -> Gate:
        gate = self._compiled.nodes[node].gate
        assert gate is not None
        return gate

    def _request(self, one: _PlayedRequest, state: State) -> Request:
        standings = one.stands().standings
        writes = (
            RequestWrite(
                position=n,
                channel=write.channel,
                label=write.label,
                value=write.value,
                current=write.base.value if write.base.bound else _value(state, write.channel),
                verdict=standings[write.write].verdict or None,
            )
            for n, write in enumerate(one.writes)
        )
        return Request(*one.task, title=one.shown["title"], facts=one.shown["facts"], writes=tuple(writes))

    def _take(self, one: _PlayedRequest, answers: Mapping[int, Any], state: State) -> None:
        """Let the answers count that are about open writes; what is settled stays as it is."""
        standings, revisions = one.stands().standings, [write.revision for write in one.writes]
        answered = len(one.given)
        for position, answer in answers.items():
            if position not in range(len(one.writes)):
                there = ", ".join(f"{n} ({write.channel})" for n, write in enumerate(one.writes))
                message = f"{one.task} has no write at position {position!r}; it has {there}"
                raise UnknownThing(message, task=str(one.task))
            if answer is None:
                continue
            write = one.writes[position]
            verdict, value = _verdict_of(answer, one.task)
            if not standings[write.write].settled:
                self._count(one, write, verdict, value)
        if any(given.verdict == "edit" for given in one.given[answered:]):
            edited = {one.writes[n].write for n, before in enumerate(revisions) if one.writes[n].revision > before}
            self._show_anew(one, state, edited, answered)

    def _show_anew(self, one: _PlayedRequest, state: State, edited: set[UUID], answered: int) -> None:
        """Title and facts after an edit. The other writes come back where these are others now, a rejected one stays;
        what was answered with the edit, from the number `answered` on, counts for what they become.
        """
        before = {name: one.shown[name] for name in ("title", "facts")}
        writes = [ShownWrite(write.channel, write.value, None) for write in one.writes]
        one.shown |= texts_after_edit(
            self._gate(one.task.node),
            node=one.task.node,
            input=self._input,
            state=state,
            writes=writes,
            facts=one.shown["facts"],
        )
        if same(before, {name: one.shown[name] for name in before}):
            return
        standings = one.stands().standings
        back = {w.write for w in one.writes if w.write not in edited and standings[w.write].verdict != REJECTED}
        for write in one.writes:
            write.revision += write.write in back
        one.given[answered:] = [
            replace(given, revision=given.revision + 1) if given.write in back else given
            for given in one.given[answered:]
        ]

    def _count(self, one: _PlayedRequest, write: _HeldRevision, verdict: str, value: Any) -> None:
        if verdict == "edit":
            write.value = self._compiled.channels[write.channel].stage(value)
            write.revision += 1
            shown = present_edit(
                self._gate(one.task.node), write.channel, write.value, original=write.original, shown=write.shown
            )
            write.shown, write.label = shown, str(shown["label"])
        self._seq += 1
        one.given.append(Given(write.write, write.revision, verdict, DECIDER, self._seq))


def _answers_of(answered: Any) -> Mapping[int, Any]:
    """What `decisions` answered about a request: {position: answer}; nothing for None. Raises `InvalidValue`."""
    if answered is None or isinstance(answered, Mapping):
        return answered or {}
    cure = 'answer a dict by position of the write, as {0: "approve"}, or None to leave the request'
    raise InvalidValue(f"decisions(request) answered {answered!r}; {cure}")


def _verdict_of(answer: Any, task: Task) -> tuple[str, Any]:
    """The verdict on one write, and its value where it is an edit. Raises `InvalidValue`."""
    parts: tuple[Any, ...] = tuple(answer) if isinstance(answer, list | tuple) else (answer,)
    if len(parts) == 1 and isinstance(parts[0], str) and parts[0] != "edit":
        parts = (*parts, None)
    if len(parts) != 2:
        cure = 'say "approve", "reject" or ("edit", value)'
        raise InvalidValue(f"{answer!r} is no answer on a write of {task}; {cure}", task=str(task))
    verdict, value = parts
    if verdict not in VERDICTS:
        raise InvalidValue(f"{verdict!r} is no verdict; say approve, reject or edit", task=str(task))
    return verdict, value


def waiting_tasks(compiled: Compiled, frontier: Frontier) -> list[Task]:
    """The gated tasks, in declared order."""
    return sorted(frontier.gated(), key=compiled.task_order)


def _value(state: State, channel: str) -> Json:
    return state["artifacts" if channel in state["artifacts"] else "scratch"][channel]
