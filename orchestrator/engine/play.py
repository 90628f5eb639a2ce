"""Plays a graph in memory, for the tests of its author: the same planner, reducer and
gates as in a run, without database or clock. This module only keeps the results, and
decides when people are asked.

Retries come at once, timeouts do not count, and one decider stands for all reviewers,
whatever the quorum. Nobody confirms who they are, and no `recheck` is asked: what a play
leaves out of a gate stands in its result.
"""

import asyncio
import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Protocol

from orchestrator.engine.errors import (
    BROKEN,
    CountersignError,
    DeadlinePassed,
    InvalidValue,
    text_of,
)
from orchestrator.engine.gates.requests import asks_people
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.compile import Compiled, State, compile
from orchestrator.engine.graphs.definition import Definition
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.graphs.trace import Trace
from orchestrator.engine.play_people import (
    RUN,
    Decisions,
    PlayedState,
    Request,
    Reviewers,
    waiting_tasks,
)
from orchestrator.engine.step.context import Context
from orchestrator.engine.step.memory import Memory, Remembering
from orchestrator.engine.step.notes import SCALE, Notes, figure_number
from orchestrator.engine.step.output import (
    WriteValue,
    asked_write,
    call_output,
    require_proposal,
    with_questions,
)
from orchestrator.engine.step.plan import (
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
from orchestrator.engine.step.reduce import (
    HeldWrite,
    Output,
    Result,
    StepResult,
    output_of,
    reduce_step,
    settle_step,
)
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.identity import Task


@dataclass(frozen=True, slots=True)
class Superstep:
    """One round: its `tasks` as (node, visit, index), and the situation after it. `source`
    is "superstep", or "settlement" for a round that applies decisions and runs no
    task.
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
    """The result of a play. `status`: completed, paused, rejected, failed or unknown.
    `gates`: the requests that still wait. `log`: the log lines of nodes, as (level,
    event, facts). `figures`: the sums over finished tasks, by name. `memory`: the
    traces by (namespace, key). `left_out`: what gates ask for and a play does not,
    {node: [name of the option]}: `confirm`, `recheck`.
    """

    status: str
    state: PlayedState
    gates: list[Request] = field(default_factory=list)
    supersteps: list[Superstep] = field(default_factory=list)
    error: ErrorInfo | None = None
    log: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    figures: dict[str, Decimal] = field(default_factory=dict)
    memory: dict[tuple[str, str], Trace] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)


class Saves(Protocol):
    """A store that receives each superstep as soon as it is finished."""

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
    """Play a graph from its input until it ends, fails, or waits for decisions that
    `decisions` does not give.

    At each pause `decisions(request)` is called once for every waiting request and
    returns {write position: (verdict, value)}, verdict being "approve", "reject",
    "skip" or "edit", None to leave it, or "deadline" to let its deadline pass. `store.save`
    receives each `Superstep`. `memory` is the memory from before:
    {namespace: {key: content}}. Raises `InvalidGraph`, and
    `InvalidValue` for an input that does not fit.
    """
    if decisions is not None and not callable(decisions):
        cure = 'give a function of the request, as lambda request: {0: "approve"}'
        raise InvalidValue(
            f"decisions={decisions!r} is no function; {cure}", path="decisions"
        )
    compiled = compile(graph)
    staged_input = compiled.stage_input(input)
    player = _Player(compiled, staged_input, decisions, Remembering(memory))
    return player.play(store, max_supersteps)


def _left_out(compiled: Compiled) -> dict[str, list[str]]:
    """Return which options of gates a play does not act on, by node."""
    left_out: dict[str, list[str]] = {}
    for node in compiled.nodes.values():
        for option in ("confirm", "recheck"):
            if getattr(node.gate, option, None) is not None:
                left_out.setdefault(node.name, []).append(option)
    return left_out


class _Player:
    """One play of a graph, from its input to its end."""

    def __init__(
        self,
        compiled: Compiled,
        input: Json,
        decisions: Decisions | None,
        memory: Remembering,
    ) -> None:
        self.compiled = compiled
        self.input = input
        self.state: State = compiled.fresh_state()
        self.frontier: Frontier = begin(compiled)
        self.reviewers = Reviewers(compiled, input, decisions)
        self.memory = memory
        # Calls that wait for people: the state from which each was prepared.
        self.prepared: dict[Task, State] = {}
        # Calls that were decided: the arguments of each.
        self.args: dict[Task, Json] = {}
        self.played = Played(
            "running",
            self._shown(),
            memory=memory.traces,
            left_out=_left_out(compiled),
        )
        self.log = PlayLog(self.played.log)
        self.number = 0

    def play(
        self,
        store: Saves | None,
        most: int | None,
    ) -> Played:
        while self.played.status == "running":
            saved = len(self.played.supersteps)
            self._play_turn(most)
            if store is not None:
                for superstep in self.played.supersteps[saved:]:
                    store.save(superstep)
        self.played.state = self._shown()
        self.played.gates = self.reviewers.requests(self.state)
        return self.played

    def _play_turn(self, most: int | None) -> None:
        """Play one turn: a settlement comes before the next superstep, and people are
        asked when nothing else can move.
        """
        try:
            if self.reviewers.has_settled():
                self._settle()
                return
            planned = plan(self.compiled, self.frontier)
            if planned.starts:
                check_limits(
                    self.compiled,
                    planned,
                    self.number + 1,
                    most=most,
                )
                self._run_superstep(planned)
                return
        except CountersignError as error:
            self._fail(error)
            return
        try:
            has_settled = self.reviewers.ask(self.state)
        except DeadlinePassed as error:
            self._fail(error)
            return
        if not has_settled:
            self.played.status = ending(self.compiled, self.frontier)

    def _settle(self) -> None:
        settled = self.reviewers.settle(self.frontier, self._seen())
        if settled:
            step = settle_step(self.compiled, self.frontier, self.state, settled)
            self.reviewers.forget(settled)
            for settlement in settled:
                if settlement.starts_call:
                    self.args[settlement.task] = settlement.writes[0].value
            self._commit(step, "settlement", ())
        else:
            # Nothing could be applied, because the bases of all settled writes have
            # moved: they go back to the reviewers.
            self.reviewers.rebase(self._seen())

    def _run_superstep(self, planned: Planned) -> None:
        results: dict[Task, Result] = {}
        for start in planned.starts:
            result = self._run_task(start)
            if result is not None:
                results[start.task] = result
        self._add_figures(results.values())
        # Figures count for every task that ended, even if the superstep does not.
        step = self._reduced(planned, results)
        # The superstep stays open, but people can decide already what it has proposed.
        if step is None:
            self._open_reached_gates(results)
            return
        # A gate that would ask nobody fails the superstep before it counts.
        self.reviewers.require_reviewers(step.held, step.state)
        self.number += 1
        metadata: dict[str, Json] = {}
        for result in results.values():
            if result.output:
                metadata.update(result.output.metadata)
        tasks = tuple(start.task for start in planned.starts)
        self._commit(step, "superstep", tasks, metadata)

    def _reduced(
        self,
        planned: Planned,
        results: Mapping[Task, Result],
    ) -> StepResult | None:
        """Return the step of a superstep, None if it cannot end."""
        # A task that stopped the play has no result, so the superstep cannot end.
        if len(results) < len(planned.starts):
            return None
        try:
            return reduce_step(self.compiled, planned, self.state, results)
        except CountersignError as error:
            self._fail(error)
            return None

    def _open_reached_gates(self, results: Mapping[Task, Result]) -> None:
        """Ask about the gates that an open superstep has reached, on the state as it
        still is.
        """
        held: list[HeldWrite] = []
        for task, result in results.items():
            held += result.held(task)
        self.reviewers.open(held, self._seen(held))

    def _commit(
        self,
        step: StepResult,
        source: str,
        tasks: tuple[Task, ...],
        metadata: dict[str, Json] | None = None,
    ) -> None:
        self.state = step.state
        self.frontier = step.frontier
        # Landed first, for the bases of held writes to memory are read below.
        self.memory.land(
            step.memory,
            run=RUN,
            superstep=self.number,
        )
        seen = self._seen(step.held)
        # In this order, for the base of new requests is the state of this commit.
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
        for result in results:
            output = result.output or Output()
            for name, millionths in output.figures:
                # Added in whole millionths, as in a run, so that the sum is exact.
                total = int(figures.get(name, Decimal(0)) * SCALE) + millionths
                figures[name] = figure_number(total)

    def _seen(self, held: Sequence[HeldWrite] = ()) -> State:
        """Return the state with the memory entries to which gates hold writes, or are
        about to.
        """
        channels = self.reviewers.channels()
        channels += [write.channel for write in held]
        return {**self.state, "memory": self.memory.values(channels)}

    def _shown(self) -> PlayedState:
        return PlayedState(self.compiled, self.input, self.state)

    def _fail(self, error: CountersignError) -> None:
        node = str(error.facts.get("node", ""))
        info = ErrorInfo(node, type(error).__name__, error.message)
        self._stop("failed", info)

    def _stop(
        self,
        status: str,
        error: ErrorInfo,
    ) -> None:
        """Stop the play with this error, unless it has stopped already. An unknown
        outcome outweighs a failure.
        """
        played = self.played
        outweighs = status == "unknown" and played.status != "unknown"
        if played.error is None or outweighs:
            played.status = status
            played.error = error

    def _run_task(self, start: Start) -> Result | None:
        """Return the task's result, None if the run stops at it."""
        node = self.compiled.nodes[start.task.node]
        if node.calls and not start.is_call:
            return self._run_prepared(node, start)
        return self._run_node(node, start)

    def _run_prepared(self, node: Node, start: Start) -> Result | None:
        """Return the result of a task that prepares a call, which runs at once where
        its gate needs nobody.
        """
        proposal = self._run_node(node.preparing, start)
        if proposal is None or proposal.error is not None or proposal.output is None:
            return proposal
        self.prepared[start.task] = self.state
        if proposal.gated:
            return proposal
        self.args[start.task] = proposal.output.writes[0].value
        result = self._run_node(node, replace(start, is_call=True))
        return None if result is None else replace(result, outcome=APPROVED)

    def _run_node(self, node: Node, start: Start) -> Result | None:
        output, error, status = self._attempt_until_done(node, start)
        if error is None and start.is_call:
            # People decided before it ran.
            return Result(output)
        if error is None:
            return self._gated_result(node, output)
        # An unknown outcome is no error: it never takes that edge.
        if status == "failed" and self.compiled.has_error_edge(node.name):
            return Result(error=error)
        self._stop(status, error)
        return None

    def _gated_result(
        self,
        node: Node,
        output: Output,
    ) -> Result:
        if node.gate is None:
            return Result(output)
        check = asks_people(self.compiled, node.name, node.gate, self.state, output)
        if check.needed:
            return Result(output, gated=True)
        return Result(output, outcome=APPROVED)

    def _attempt_until_done(
        self,
        node: Node,
        start: Start,
    ) -> tuple[Output, ErrorInfo | None, str]:
        """Run a task, with the retries of its node. Return its output, or its last
        error with the status failed or unknown.
        """
        for attempt in itertools.count(1):
            try:
                return self._output(node, start, attempt), None, ""
            except BROKEN as error:
                info = ErrorInfo(
                    node.name, type(error).__name__, text_of(error), attempt
                )
                # An attempt that may have acted is not repeated, whatever `retry` says.
                if node.unknown_after(error):
                    return Output(), info, "unknown"
                if not _is_retried(node, attempt, error):
                    return Output(), info, "failed"
        # Never reached: the attempts are counted without end.
        raise AssertionError

    def _output(
        self,
        node: Node,
        start: Start,
        attempt: int,
    ) -> Output:
        memory = Memory(
            self.memory,
            mode=self.compiled.memory_mode(node.name),
            run=RUN,
            node=node.name,
        )
        notes = Notes()
        questions: list[WriteValue] = []

        def ask(channel: Any, prompt: Any, schema: Any) -> None:
            questions.append(
                asked_write(self.compiled, node.name, channel, prompt, schema)
            )

        ctx = Context(
            run_id=RUN,
            key="play",
            line=1,
            task=start.task,
            attempt=attempt,
            read_input=lambda: self.compiled.input_for(self.input),
            # A copy, because the node may change it, and the frontier keeps this very
            # object.
            payload=canonical.loads(canonical.encode(start.payload)),
            args=self._args(start),
            error=start.error,
            open_log=lambda: self.log,
            memory=lambda: memory,
            notes=notes,
            ask=ask,
        )
        state = self.state
        if start.is_call:
            # As people saw it prepared, whatever happened since.
            state = self.prepared[start.task]
        returned = node.fn(self.compiled.state_for(state, node.name), ctx)
        # A plain function may return a coroutine too, so the value decides.
        if inspect.iscoroutine(returned):
            returned = asyncio.run(returned)
        if node.calls and not start.is_call:
            return call_output(self.compiled, node.name, returned)
        output = output_of(self.compiled, node.name, returned)
        if questions:
            output = with_questions(output, questions)
        output = notes.onto(memory.onto(output))
        if not output.writes and not node.calls:
            require_proposal(node, start.task)
        return output

    def _args(self, start: Start) -> Any:
        if not start.is_call:
            return None
        channel = self.compiled.channel_of(start.task.node, CALL)
        return channel.load(self.args[start.task])


def _is_retried(
    node: Node,
    attempt: int,
    error: BaseException,
) -> bool:
    """Return whether another attempt follows the one that ended with this error."""
    retry = node.retry
    if retry is None or attempt >= retry.attempts:
        return False
    return retry.covers(error)


class PlayLog:
    """`ctx.log` of a played node: keeps its lines."""

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
