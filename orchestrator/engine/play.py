"""Playing a graph in memory, for the tests of its author: the same planner, reducer and gates, without database or
clock. What decides is what decides in a run; only where things are kept, and who is asked when, stands here.

Retries come at once, timeouts do not count, and one decider stands for all reviewers, whatever the quorum.
"""

import asyncio
import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from orchestrator.engine import canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled, State, compile
from orchestrator.engine.context import Context
from orchestrator.engine.definition import Definition
from orchestrator.engine.effect import APPROVED
from orchestrator.engine.errors import BROKEN, CountersignError, InvalidValue, text_of
from orchestrator.engine.identity import Task
from orchestrator.engine.memory import Memory, Remembering
from orchestrator.engine.node import Node
from orchestrator.engine.notes import SCALE, Notes, figure_number
from orchestrator.engine.output import require_proposal
from orchestrator.engine.plan import (
    ErrorInfo,
    Frontier,
    Planned,
    Start,
    begin,
    check_limits,
    ending,
    pending_edges,
    plan,
    skipped,
)
from orchestrator.engine.play_people import RUN, Decisions, PlayedState, Request, Reviewers, waiting_tasks
from orchestrator.engine.reduce import HeldWrite, Output, Result, Step, output_of, reduce_step, settle_step
from orchestrator.engine.requests import asks_people
from orchestrator.engine.trace import Trace


@dataclass(frozen=True, slots=True)
class Superstep:
    """One round: its `tasks` as (node, visit, index), and how things stood after it. `source` is "superstep", or
    "settlement" for the round that applies what was decided, in which no task runs.
    """

    number: int
    source: str
    tasks: tuple[Task, ...]
    state: PlayedState
    pending_edges: list[str]
    skipped: list[str]
    waiting: list[Task]
    metadata: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class Played:
    """How it went. `status`: completed, paused, rejected, failed or unknown. `gates`: the requests that still wait.
    `log`: what nodes logged, as (level, event, facts). `figures`: what tasks that ended added up to, by
    name. `memory`: what is remembered, by (namespace, key).
    """

    status: str
    state: PlayedState
    gates: list[Request] = field(default_factory=list)
    supersteps: list[Superstep] = field(default_factory=list)
    error: ErrorInfo | None = None
    log: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    figures: dict[str, Decimal] = field(default_factory=dict)
    memory: dict[tuple[str, str], Trace] = field(default_factory=dict)


class Saves(Protocol):
    """A store that is told of each superstep as it is finished."""

    def save(self, checkpoint: Any) -> Any: ...


def play(
    graph: Definition,
    input: Any,
    *,
    decisions: Decisions | None = None,
    store: Saves | None = None,
    max_supersteps: int | None = None,
    memory: Mapping[str, Mapping[str, Any]] | None = None,
) -> Played:
    """Play a graph from its input until it ends, fails, or waits for decisions that `decisions` does not give.

    At each pause `decisions(request)` is asked once for every waiting request and answers {write position: (verdict,
    value)}, verdict being "approve", "reject" or "edit", or None to leave it. `store.save` gets each `Superstep`.
    `memory` is what is remembered from before: {namespace: {key: content}}.
    Raises `InvalidGraph`, and `InvalidValue` for an input that does not fit.
    """
    if decisions is not None and not callable(decisions):
        cure = 'give a function of the request, as lambda request: {0: "approve"}'
        raise InvalidValue(f"decisions={decisions!r} is no function; {cure}", path="decisions")
    compiled = compile(graph)
    player = _Player(compiled, compiled.stage_input(input), decisions, Remembering(memory))
    return player.play(store, max_supersteps)


class _Player:
    def __init__(self, compiled: Compiled, input: Json, decisions: Decisions | None, memory: Remembering) -> None:
        self.compiled = compiled
        self.input = input
        self.state: State = compiled.fresh_state()
        self.frontier: Frontier = begin(compiled)
        self.reviewers = Reviewers(compiled, input, decisions)
        self.memory = memory
        self.played = Played("running", self._shown(), memory=memory.traces)
        self.log = PlayLog(self.played.log)
        self.number = 0

    def play(self, store: Saves | None, most: int | None) -> Played:
        while self.played.status == "running":
            before = len(self.played.supersteps)
            self._turn(most)
            if store is not None:
                for superstep in self.played.supersteps[before:]:
                    store.save(superstep)
        self.played.state = self._shown()
        self.played.gates = self.reviewers.requests(self.state)
        return self.played

    def _turn(self, most: int | None) -> None:
        """A settlement comes before the next superstep, and people are asked when nothing else can move."""
        try:
            if self.reviewers.has_settled():
                return self._settlement()
            planned = plan(self.compiled, self.frontier)
            if planned.starts:
                check_limits(self.compiled, planned, self.number + 1, most=most)
                return self._superstep(planned)
        except CountersignError as error:
            return self._fail(error)
        if not self.reviewers.ask(self.state):
            self.played.status = ending(self.compiled, self.frontier)
        return None

    def _settlement(self) -> None:
        settled = self.reviewers.settle(self.frontier, self._seen())
        if settled:
            step = settle_step(self.compiled, self.frontier, self.state, settled)
            self.reviewers.forget(settled)
            self._commit(step, "settlement", ())
        else:
            self.reviewers.rebase(self._seen())

    def _superstep(self, planned: Planned) -> None:
        found = {start.task: self._result(start) for start in planned.starts}
        results = {task: result for task, result in found.items() if result is not None}
        self._add_figures(results.values())
        step = None
        if len(results) == len(found):
            try:
                step = reduce_step(self.compiled, planned, self.state, results)
            except CountersignError as error:
                self._fail(error)
        if step is None:
            # The superstep stays open. Whoever is reached in it is asked, on the state as it still is.
            held = [write for task, result in results.items() for write in result.held(task)]
            return self.reviewers.open(held, self._seen(held))
        self.reviewers.require_reviewers(step.held, step.state)
        self.number += 1
        outputs = [result.output for result in results.values() if result.output]
        metadata = {name: value for output in outputs for name, value in output.metadata}
        return self._commit(step, "superstep", tuple(start.task for start in planned.starts), metadata)

    def _commit(
        self, step: Step, source: str, tasks: tuple[Task, ...], metadata: dict[str, Json] | None = None
    ) -> None:
        self.state, self.frontier = step.state, step.frontier
        self.memory.land(step.memory, run=RUN, superstep=self.number)
        seen = self._seen(step.held)
        self.reviewers.rebase(seen)
        self.reviewers.open(step.held, seen)
        self.played.supersteps.append(
            Superstep(
                number=self.number,
                source=source,
                tasks=tasks,
                state=self._shown(),
                pending_edges=pending_edges(self.frontier),
                skipped=skipped(self.compiled, self.frontier),
                waiting=waiting_tasks(self.compiled, self.frontier),
                metadata=metadata or {},
            )
        )

    def _add_figures(self, results: Iterable[Result]) -> None:
        figures = self.played.figures
        for output in [result.output for result in results if result.output]:
            for name, millionths in output.figures:
                total = int(figures.get(name, Decimal(0)) * SCALE) + millionths
                figures[name] = figure_number(total)

    def _seen(self, held: Sequence[HeldWrite] = ()) -> State:
        """The state with what memory holds, as far as gates hold writes to it, or are about to."""
        channels = [*self.reviewers.channels(), *[write.channel for write in held]]
        return {**self.state, "memory": self.memory.values(channels)}

    def _shown(self) -> PlayedState:
        return PlayedState(self.compiled, self.input, self.state)

    def _fail(self, error: CountersignError) -> None:
        self._stop("failed", ErrorInfo(str(error.facts.get("node", "")), type(error).__name__, error.message))

    def _stop(self, status: str, error: ErrorInfo) -> None:
        """An unknown outcome outweighs a failure; of equals the first is told."""
        if self.played.error is None or (status == "unknown" and self.played.status != "unknown"):
            self.played.status, self.played.error = status, error

    def _result(self, start: Start) -> Result | None:
        """The task's result; none where the run stops at it."""
        node = self.compiled.nodes[start.task.node]
        output, error, status = self._tried(node, start)
        if error is None:
            return self._gated(node, output)
        if status == "failed" and self.compiled.has_error_edge(node.name):
            return Result(error=error)
        self._stop(status, error)
        return None

    def _gated(self, node: Node, output: Output) -> Result:
        if node.gate is None:
            return Result(output)
        needed = asks_people(self.compiled, node.gate, self.state, output).needed
        return Result(output, gated=needed, outcome=None if needed else APPROVED)

    def _tried(self, node: Node, start: Start) -> tuple[Output, ErrorInfo | None, str]:
        """Up to the retries that the node has: its output, or its last error and whether that is failed or unknown."""
        for attempt in itertools.count(1):
            try:
                return self._output(node, start, attempt), None, ""
            except BROKEN as error:
                found = ErrorInfo(node.name, type(error).__name__, text_of(error), attempt)
                if node.unknown_after(error):
                    return Output(), found, "unknown"
                if node.retry is None or attempt >= node.retry.attempts or not node.retry.covers(error):
                    return Output(), found, "failed"
        raise AssertionError

    def _output(self, node: Node, start: Start, attempt: int) -> Output:
        memory = Memory(self.memory, mode=self.compiled.memory_mode(node.name), run=RUN, node=node.name)
        notes = Notes()
        ctx = Context(
            run_id=RUN,
            key="play",
            line=1,
            task=start.task,
            attempt=attempt,
            read_input=lambda: self.compiled.input_for(self.input),
            payload=canonical.loads(canonical.encode(start.payload)),
            error=start.error,
            open_log=lambda: self.log,
            memory=lambda: memory,
            notes=notes,
        )
        returned = node.fn(self.compiled.state_for(self.state, node.name), ctx)
        if inspect.iscoroutine(returned):
            returned = asyncio.run(returned)
        output = notes.onto(memory.onto(output_of(self.compiled, node.name, returned)))
        if not output.writes:
            require_proposal(node, start.task)
        return output


class PlayLog:
    """`ctx.log` of a played node: keeps what it is told."""

    def __init__(self, lines: list[tuple[str, str, dict[str, Any]]]) -> None:
        self._lines = lines

    def debug(self, event: str, **facts: Any) -> None:
        self._lines.append(("debug", event, facts))

    def info(self, event: str, **facts: Any) -> None:
        self._lines.append(("info", event, facts))

    def warning(self, event: str, **facts: Any) -> None:
        self._lines.append(("warning", event, facts))

    def error(self, event: str, **facts: Any) -> None:
        self._lines.append(("error", event, facts))
