"""What `play` shows and asks: the state as it stands, waiting requests, and the one who decides them. Only `play`
calls it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.effect import APPROVED, REJECTED
from orchestrator.engine.errors import InvalidValue, UnknownThing
from orchestrator.engine.frontier import Frontier, visit_of
from orchestrator.engine.gate import Gate, outcome_of, present
from orchestrator.engine.identity import Task
from orchestrator.engine.reduce import HeldWrite, Settled, WriteValue, settleable
from orchestrator.engine.trace import is_memory

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
class _Verdict:
    """One decision: for the value (None: rejected), given on these values of the channels that it depends on."""

    outcome: str
    value: Json
    base: list[Json]


class Reviewers:
    """The one who decides: keeps proposals and verdicts, asks at each pause, gives what is settled. The states that it
    is shown have a further partition, `memory`: what is remembered, by channel.
    """

    def __init__(self, compiled: Compiled, input: Json, decisions: Decisions | None) -> None:
        self._compiled = compiled
        self._input = input
        self._decisions = decisions
        self._held: dict[Task, list[HeldWrite]] = {}
        self._verdicts: dict[Task, dict[int, _Verdict]] = {}

    def hold(self, writes: tuple[HeldWrite, ...]) -> None:
        """Take in what gates hold since the last superstep."""
        for write in writes:
            self._held.setdefault(write.task, []).append(write)

    def requests(self, frontier: Frontier, state: State) -> list[Request]:
        """The requests that wait, in declared order."""
        return [self._request(task, state) for task in waiting_tasks(self._compiled, frontier)]

    def decided(self, frontier: Frontier, state: State) -> list[Settled]:
        """Ask each waiting request once; give those that are settled now. What an earlier one moves comes back."""
        tasks = waiting_tasks(self._compiled, frontier)
        for task in tasks:
            self._forget_moved(task, state)
            if self._decisions is not None:
                self._take(task, self._decisions(self._request(task, state)) or {}, state)
        settled = [one for task in tasks if (one := self._settled(task)) is not None]
        applied, back = settleable(self._compiled, frontier, state, settled)
        for one in back:
            self._verdicts[one.task] = {n: v for n, v in self._verdicts[one.task].items() if v.outcome == REJECTED}
        return applied

    def _gate(self, task: Task) -> Gate:
        gate = self._compiled.nodes[task.node].gate
        assert gate is not None
        return gate

    def _request(self, task: Task, state: State) -> Request:
        held, verdicts = self._held[task], self._verdicts.get(task, {})
        shown = present(self._gate(task), node=task.node, input=self._input, state=state, writes=held)
        writes = (
            RequestWrite(
                position=n,
                channel=write.channel,
                label=shown["writes"][n]["label"],
                value=write.value,
                current=_value(state, write.channel),
                verdict=verdicts[n].outcome if n in verdicts else None,
            )
            for n, write in enumerate(held)
        )
        return Request(*task, title=shown["title"], facts=shown["facts"], writes=tuple(writes))

    def _base(self, task: Task, write: HeldWrite, state: State) -> list[Json]:
        own = [write.channel] if self._compiled.channels[write.channel].bound else []
        return [_value(state, channel) for channel in (*own, *self._gate(task).shows)]

    def _forget_moved(self, task: Task, state: State) -> None:
        kept = self._verdicts.get(task, {})
        moved = [n for n, v in kept.items() if v.base != self._base(task, self._held[task][n], state)]
        for n in moved:
            if kept[n].outcome != REJECTED:
                del kept[n]

    def _take(self, task: Task, answers: Mapping[int, Any], state: State) -> None:
        for position, answer in answers.items():
            if position not in range(len(self._held[task])):
                raise UnknownThing(f"{task} has no write at position {position}", task=str(task))
            write = self._held[task][position]
            verdict, value = (answer, None) if isinstance(answer, str) else (*answer, None)[:2]
            if verdict not in VERDICTS:
                raise InvalidValue(f"{verdict!r} is no verdict; say approve, reject or edit", task=str(task))
            final = self._compiled.channels[write.channel].stage(value) if verdict == "edit" else write.value
            outcome = REJECTED if verdict == "reject" else APPROVED
            base = self._base(task, write, state)
            self._verdicts.setdefault(task, {})[position] = _Verdict(outcome, final, base)

    def _settled(self, task: Task) -> Settled | None:
        held, verdicts = self._held[task], self._verdicts.get(task, {})
        rejected = any(verdict.outcome == REJECTED for verdict in verdicts.values())
        if self._gate(task).all_or_nothing and rejected:
            return Settled(task, (), REJECTED)
        if len(verdicts) < len(held):
            return None
        approved = [n for n in range(len(held)) if verdicts[n].outcome == APPROVED]
        writes = tuple(WriteValue(held[n].channel, verdicts[n].value, held[n].label) for n in approved)
        return Settled(task, writes, outcome_of([verdict.outcome for verdict in verdicts.values()]))


def waiting_tasks(compiled: Compiled, frontier: Frontier) -> list[Task]:
    """The gated tasks, in declared order."""
    return sorted(_gated(frontier), key=compiled.task_order)


def _gated(frontier: Frontier) -> Iterator[Task]:
    for key, parts in frontier.waiting.items():
        node, visit = visit_of(key)
        yield from (Task(node, visit, n) for n, part in enumerate(parts) if part.status == "gated")


def _value(state: State, channel: str) -> Json:
    if is_memory(channel):
        return state["memory"].get(channel)
    return state["artifacts" if channel in state["artifacts"] else "scratch"][channel]
