"""Random graphs, what their nodes return and what people say; and the rounds that a
slow model of the rules expects.
"""

import copy
from typing import Annotated, Any

from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Command, Gate, Graph, Send, Write
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.play_people import waiting_tasks
from orchestrator.engine.step.frontier import ErrorInfo, Frontier
from orchestrator.engine.step.reduce import Result, Settled, output_of
from tests.engine import reference
from tests.engine.reference import Model, Spec

NAMES = ["a", "b", "c", "d", "e", "f"]
BUDGET = 120
"""Tasks that a run may have, for loops of any-joins multiply."""


class Nothing(BaseModel):
    """No input."""


class State(BaseModel):
    """What ran."""

    log: Annotated[list[str], Append] = []


@st.composite
def graphs(draw: Any) -> tuple[list[Spec], list[str]]:
    """Nodes with every kind of way out, mended so that the graph is legal; and where
    START leads.
    """
    names = NAMES[: draw(st.integers(2, len(NAMES)))]
    ends = st.sampled_from([*names, END])
    some = st.lists(ends, max_size=2, unique=True)
    inner = st.lists(st.sampled_from(names), max_size=2, unique=True)
    specs = [_spec(draw, name, ends, some, inner) for name in names]
    starts = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return specs, _reaching_all(specs, starts)


def _spec(draw: Any, name: str, ends: Any, some: Any, inner: Any) -> Spec:
    rare = st.sampled_from([False, False, True])
    spec = Spec(
        name,
        join=draw(st.sampled_from(["all", "all", "any"])),
        gated=draw(rare),
        plain=draw(some),
    )
    spec.branch = draw(st.lists(ends, min_size=2, max_size=2)) if draw(rare) else []
    spec.error = draw(some) if draw(rare) else []
    spec.goto = draw(some) if draw(rare) else []
    spec.sends = draw(inner) if draw(rare) else []
    if spec.gated:
        spec.when = {
            outcome: draw(some) for outcome in ("approved", "rejected", "partial")
        }
    covered = (
        spec.branch
        or spec.goto
        or (spec.when.get("approved") and spec.when.get("partial"))
    )
    if not spec.plain and not covered:
        spec.plain = [END]
    return spec


def _reaching_all(specs: list[Spec], starts: list[str]) -> list[str]:
    """The starts, with each node added that nothing leads to; and a way to END."""
    for spec in specs:
        model = Model(specs, starts, 0)
        if not any(model.path(start, spec.name, "") for start in starts):
            starts = [*starts, spec.name]
    if not any(
        END in target
        for spec in specs
        for target in (spec.plain, spec.branch, spec.goto, *spec.when.values())
    ):
        specs[-1].plain.append(END)
    return starts


def plain(spec: Spec, node: Any) -> tuple[Any, dict[str, Any]]:
    """The node as it is, without options."""
    return node, {}


def built(
    specs: list[Spec], starts: list[str], seed: int, *, equipped: Any = plain
) -> Graph:
    """The graph for the engine, whose nodes throw the same dice as the model.
    `equipped` may give them effects.
    """
    graph = Graph("random", input=Nothing, state=State)
    for spec in specs:
        gate = (
            Gate(reviewers=["user:ann"], needs_approval=_guard(seed))
            if spec.gated
            else None
        )
        node, options = equipped(spec, _node(spec, seed))
        options |= {"gate": gate, "approve": "writes" if gate else None}
        graph.node(
            spec.name, join=spec.join, goto=spec.goto, sends=spec.sends, **options
        )(node)
    for start in starts:
        graph.edge(START, start)
    for spec in specs:
        for target in spec.plain:
            graph.edge(spec.name, target)
        if spec.branch:
            graph.branch(
                spec.name,
                _router(spec, seed),
                {f"l{n}": target for n, target in enumerate(spec.branch)},
            )
        for outcome, targets in (*spec.when.items(), ("error", spec.error)):
            for target in targets:
                graph.edge(spec.name, target, when=outcome)
    return graph


def _guard(seed: int) -> Any:
    return lambda state, proposal: (
        not reference.passes(seed, proposal.writes[0].value[0])
    )


def _router(spec: Spec, seed: int) -> Any:
    return lambda state: reference.label(seed, spec.name, len(state.log))


def _node(spec: Spec, seed: int) -> Any:
    def node(state: Any, ctx: Any) -> Command:
        does = reference.behaviour(seed, spec, tuple(ctx.task))
        if does.fails:
            raise RuntimeError(str(ctx.task))
        entry = reference.entry_of(
            tuple(ctx.task), ctx.payload, ctx.error.message if ctx.error else None
        )
        writes = [Write("log", [entry])] + (
            [Write("log", [entry + " again"])] if spec.gated else []
        )
        return Command(
            update=writes, goto=does.goto, send=[Send(*send) for send in does.sends]
        )

    return node


def reviewer(seed: int) -> Any:
    """The one who decides, as the model does."""
    asked: dict[Any, int] = {}

    def decide(request: Any) -> Any:
        asked[request.task] = asked.get(request.task, 0) + 1
        answer = reference.verdicts(seed, tuple(request.task), asked[request.task])
        return answer and {
            position: (verdict, None) for position, verdict in answer.items()
        }

    return decide


def modelled(model: Model) -> tuple[list[Any], str, int]:
    """The model's rounds, how it ended, and how many supersteps it took."""
    rounds: list[Any] = []
    tasks = number = 0
    while True:
        before = copy.deepcopy(model)
        ran = model.superstep()
        if ran:
            tasks = tasks + len(ran)
            number = number + 1
            if tasks > BUDGET:
                model.__dict__ = before.__dict__
                return rounds, "failed", number - 1
        elif not model.settlement():
            status = (
                "paused"
                if model.waiting
                else "rejected"
                if model.rejected
                else "completed"
            )
            return rounds, status, number
        rounds.append(
            (
                ran,
                model.pending(),
                model.skipped(),
                model.waiting_tasks(),
                list(model.log),
            )
        )


def result_of(compiled: Compiled, start: Any) -> Result:
    """How a task of a random graph ended."""
    try:
        return Result(
            _output(compiled, start), gated=compiled.nodes[start.task.node].gated
        )
    except RuntimeError as error:
        return Result(error=ErrorInfo(start.task.node, "RuntimeError", str(error)))


def some_settled(compiled: Compiled, frontier: Frontier, seed: int) -> list[Settled]:
    """Half of what waits, decided one way or another."""
    content = ["approved", "rejected", "partial"]
    tasks = waiting_tasks(compiled, frontier)
    chosen = tasks[: max(1, len(tasks) // 2)] if tasks else []
    return [
        Settled(task, (), content[(seed + task.visit + task.index) % 3])
        for task in chosen
    ]


def _output(compiled: Compiled, start: Any) -> Any:
    """What the node returns. Raises `RuntimeError` where it fails."""

    class Ctx:
        task = start.task
        payload = start.payload
        error = start.error

    return output_of(
        compiled, start.task.node, compiled.nodes[start.task.node].fn(None, Ctx())
    )
