"""Random graphs, played by the engine and by a slow model of the rules side by side: they must agree in every round."""

import copy
from dataclasses import replace
from typing import Annotated, Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Command, Gate, Graph, Played, Send, Write, canonical, play
from orchestrator.engine.compile import Compiled, compile
from orchestrator.engine.plan import ErrorInfo, Frontier, begin, plan
from orchestrator.engine.play_people import waiting_tasks
from orchestrator.engine.reduce import Result, Settled, output_of, reduce_step, settle_step
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
    """Nodes with every kind of way out, mended so that the graph is legal; and where START leads."""
    names = NAMES[: draw(st.integers(2, len(NAMES)))]
    ends = st.sampled_from([*names, END])
    some = st.lists(ends, max_size=2, unique=True)
    inner = st.lists(st.sampled_from(names), max_size=2, unique=True)
    specs = [_spec(draw, name, ends, some, inner) for name in names]
    starts = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return specs, _reaching_all(specs, starts)


def _spec(draw: Any, name: str, ends: Any, some: Any, inner: Any) -> Spec:
    rare = st.sampled_from([False, False, True])
    spec = Spec(name, join=draw(st.sampled_from(["all", "all", "any"])), gated=draw(rare), plain=draw(some))
    spec.branch = draw(st.lists(ends, min_size=2, max_size=2)) if draw(rare) else []
    spec.error = draw(some) if draw(rare) else []
    spec.goto = draw(some) if draw(rare) else []
    spec.sends = draw(inner) if draw(rare) else []
    if spec.gated:
        spec.when = {outcome: draw(some) for outcome in ("approved", "rejected", "partial")}
    covered = spec.branch or spec.goto or (spec.when.get("approved") and spec.when.get("partial"))
    if not spec.plain and not covered:
        spec.plain = [END]
    return spec


def _reaching_all(specs: list[Spec], starts: list[str]) -> list[str]:
    """The starts, with each node added that nothing leads to; and a way to END."""
    for spec in specs:
        model = Model(specs, starts, 0)
        if not any(model.path(start, spec.name, "") for start in starts):
            starts = [*starts, spec.name]
    if not any(END in target for spec in specs for target in (spec.plain, spec.branch, spec.goto, *spec.when.values())):
        specs[-1].plain.append(END)
    return starts


def plain(spec: Spec, node: Any) -> tuple[Any, dict[str, Any]]:
    """The node as it is, without options."""
    return node, {}


def built(specs: list[Spec], starts: list[str], seed: int, *, equipped: Any = plain) -> Graph:
    """The graph for the engine, whose nodes throw the same dice as the model. `equipped` may give them effects."""
    graph = Graph("random", input=Nothing, state=State)
    for spec in specs:
        gate = Gate(reviewers=["user:ann"], needs_approval=_guard(seed)) if spec.gated else None
        node, options = equipped(spec, _node(spec, seed))
        options |= {"gate": gate, "approve": "writes" if gate else None}
        graph.node(spec.name, join=spec.join, goto=spec.goto, sends=spec.sends, **options)(node)
    for start in starts:
        graph.edge(START, start)
    for spec in specs:
        for target in spec.plain:
            graph.edge(spec.name, target)
        if spec.branch:
            graph.branch(spec.name, _router(spec, seed), {f"l{n}": target for n, target in enumerate(spec.branch)})
        for outcome, targets in (*spec.when.items(), ("error", spec.error)):
            for target in targets:
                graph.edge(spec.name, target, when=outcome)
    return graph


def _guard(seed: int) -> Any:
    return lambda state, proposal: not reference.passes(seed, proposal.writes[0].value[0])


def _router(spec: Spec, seed: int) -> Any:
    return lambda state: reference.label(seed, spec.name, len(state.log))


def _node(spec: Spec, seed: int) -> Any:
    def node(state: Any, ctx: Any) -> Command:
        does = reference.behaviour(seed, spec, tuple(ctx.task))
        if does.fails:
            raise RuntimeError(str(ctx.task))
        entry = reference.entry_of(tuple(ctx.task), ctx.payload, ctx.error.message if ctx.error else None)
        writes = [Write("log", [entry])] + ([Write("log", [entry + " again"])] if spec.gated else [])
        return Command(update=writes, goto=does.goto, send=[Send(*send) for send in does.sends])

    return node


def reviewer(seed: int) -> Any:
    """The one who decides, as the model does."""
    asked: dict[Any, int] = {}

    def decide(request: Any) -> Any:
        asked[request.task] = asked.get(request.task, 0) + 1
        answer = reference.verdicts(seed, tuple(request.task), asked[request.task])
        return answer and {position: (verdict, None) for position, verdict in answer.items()}

    return decide


def modelled(model: Model) -> tuple[list[Any], str, int]:
    """The model's rounds, how it ended, and how many supersteps it took."""
    rounds: list[Any] = []
    tasks = number = 0
    while True:
        before = copy.deepcopy(model)
        ran = model.superstep()
        if ran:
            tasks, number = tasks + len(ran), number + 1
            if tasks > BUDGET:
                model.__dict__ = before.__dict__
                return rounds, "failed", number - 1
        elif not model.settlement():
            status = "paused" if model.waiting else "rejected" if model.rejected else "completed"
            return rounds, status, number
        rounds.append((ran, model.pending(), model.skipped(), model.waiting_tasks(), list(model.log)))


def shown(played: Played) -> list[Any]:
    """The same of the engine."""
    return [
        (list(map(tuple, s.tasks)), s.pending_edges, s.skipped, list(map(tuple, s.waiting)), s.state["log"])
        for s in played.supersteps
    ]


MANY = settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@MANY
@given(graphs(), st.integers(0, 2**32))
def test_the_engine_plays_every_graph_as_the_rules_say(made: tuple[list[Spec], list[str]], seed: int) -> None:
    specs, starts = made
    rounds, status, supersteps = modelled(Model(specs, starts, seed))
    played = play(built(specs, starts, seed), {}, decisions=reviewer(seed), max_supersteps=supersteps)
    event(f"ends {status}")
    assert shown(played) == rounds
    assert played.status == status


@MANY
@given(graphs(), st.integers(0, 2**32))
def test_no_token_is_lost_and_no_join_starts_without_one(made: tuple[list[Spec], list[str]], seed: int) -> None:
    specs, starts = made
    compiled = compile(built(specs, starts, seed))
    frontier, tasks = begin(compiled), 0
    while (planned := plan(compiled, frontier)).starts and tasks < BUDGET:
        tasks += len(planned.starts)
        for node in compiled.nodes:
            taken = sum(
                frontier.tokens.get(e.id, 0) - planned.frontier.tokens.get(e.id, 0) for e in compiled.incoming[node]
            )
            started = {start.task.visit for start in planned.starts if start.task.node == node and not start.is_send}
            holding = sum(e.id in frontier.tokens for e in compiled.incoming[node])
            assert taken == (len(started) if compiled.nodes[node].join == "any" else holding * len(started))
            assert len(started) <= (1 if compiled.nodes[node].join == "all" else taken)
        results = {start.task: replace(_result(compiled, start), gated=False) for start in planned.starts}
        frontier = reduce_step(compiled, planned, compiled.fresh_state(), results).frontier
    if tasks < BUDGET:
        assert frontier.tokens == {}, "work was left, and nothing could start"


def _output(compiled: Compiled, start: Any) -> Any:
    """What the node returns. Raises `RuntimeError` where it fails."""

    class Ctx:
        task, payload, error = start.task, start.payload, start.error

    return output_of(compiled, start.task.node, compiled.nodes[start.task.node].fn(None, Ctx()))


@MANY
@given(graphs(), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_a_frontier_read_back_from_its_bytes_has_the_same_future(
    made: tuple[list[Spec], list[str]], seed: int, chance: Any
) -> None:
    specs, starts = made
    compiled = compile(built(specs, starts, seed))
    live = _journey(compiled, seed, lambda frontier: frontier)
    assert live == _journey(compiled, seed, lambda frontier: _stored(frontier, chance))


def _stored(frontier: Frontier, chance: Any) -> Frontier:
    """Through canonical bytes, the keys then in whatever order a database gives them."""
    kept = canonical.loads(canonical.dumps(frontier.to_json()))
    for name in ("tokens", "errors", "visits", "waiting"):
        items = list(kept[name].items())
        chance.shuffle(items)
        kept[name] = dict(items)
    return Frontier.from_json(kept)


def _journey(compiled: Compiled, seed: int, stored: Any) -> list[bytes]:
    """The bytes of state and frontier after each step, as a runner would make them; half of what waits is decided at
    a time.
    """
    frontier, state, marks = begin(compiled), compiled.fresh_state(), []
    for _ in range(12):
        planned = plan(compiled, stored(frontier))
        if len(planned.starts) > 40:
            break
        marks.append(repr(planned.starts).encode())
        if planned.starts:
            results = {start.task: _result(compiled, start) for start in planned.starts}
            step = reduce_step(compiled, planned, state, results)
        else:
            settled = _some(compiled, frontier, seed)
            if not settled:
                break
            step = settle_step(compiled, stored(frontier), state, settled)
        frontier, state = step.frontier, step.state
        marks.append(canonical.dumps([state, frontier.to_json()]))
    return marks


def _result(compiled: Compiled, start: Any) -> Result:
    try:
        return Result(_output(compiled, start), gated=compiled.nodes[start.task.node].gated)
    except RuntimeError as error:
        return Result(error=ErrorInfo(start.task.node, "RuntimeError", str(error)))


def _some(compiled: Compiled, frontier: Frontier, seed: int) -> list[Settled]:
    content = ["approved", "rejected", "partial"]
    tasks = waiting_tasks(compiled, frontier)
    chosen = tasks[: max(1, len(tasks) // 2)] if tasks else []
    return [Settled(task, (), content[(seed + task.visit + task.index) % 3]) for task in chosen]
