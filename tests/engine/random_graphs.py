"""Random graphs, what their nodes return and what people say; and the rounds that a
slow model of the rules expects.
"""

import copy
import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.engine import (
    END,
    START,
    Append,
    Command,
    Gate,
    Graph,
    Last,
    Send,
    Show,
    Write,
)
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.play_people import waiting_tasks
from orchestrator.engine.step.frontier import ErrorInfo, Frontier
from orchestrator.engine.step.reduce import (
    Output,
    Result,
    Settled,
    WriteValue,
    output_of,
)
from tests.engine import reference
from tests.engine.reference import Model, Spec

NAMES = ["a", "b", "c", "d", "e", "f"]
HOUR = timedelta(hours=1)
WINDOW = timedelta(minutes=5)
BUDGET = 120
"""Tasks that a run may have, for loops of any-joins multiply."""


class Nothing(BaseModel):
    """No input."""


class State(BaseModel):
    """What ran, and the last note: writes to it are bound to the one they replace."""

    log: Annotated[list[str], Append] = []
    note: Annotated[str, Last] = ""


class Call(BaseModel):
    """What a node is called with."""

    text: str


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
    starts = _reaching_all(specs, starts)
    for spec in specs:
        # Silence must not let anything act.
        if spec.deadline == "approve" and (spec.call or _may_act_behind(spec, specs)):
            spec.deadline = "reject"
    return specs, starts


def _may_act_behind(spec: Spec, specs: list[Spec]) -> bool:
    """Return whether a node can be reached that may be made to act: one without a gate,
    or one that is called.
    """
    by_name = {spec.name: spec for spec in specs}
    reached: set[str] = set()
    pending = [spec]
    while pending:
        place = pending.pop()
        for name in {*_ways_of(place)} - {END, *reached}:
            reached.add(name)
            pending.append(by_name[name])
    return any(by_name[name].call or not by_name[name].gated for name in reached)


def _ways_of(spec: Spec) -> list[str]:
    return [
        *spec.plain,
        *spec.branch,
        *spec.error,
        *spec.goto,
        *spec.sends,
        *itertools.chain(*spec.when.values()),
    ]


def _spec(draw: Any, name: str, ends: Any, some: Any, inner: Any) -> Spec:
    rare = st.sampled_from([False, False, True])
    spec = Spec(
        name,
        join=draw(st.sampled_from(["all", "all", "any"])),
        gated=draw(rare),
        plain=draw(some),
    )
    if spec.gated:
        _draw_gate(draw, spec)
    spec.notes = not spec.call and draw(rare)
    spec.needs = spec.gated and spec.notes and draw(st.booleans())
    spec.branch = draw(st.lists(ends, min_size=2, max_size=2)) if draw(rare) else []
    spec.error = draw(some) if draw(rare) else []
    spec.goto = draw(some) if draw(rare) else []
    spec.sends = draw(inner) if draw(rare) else []
    if spec.gated:
        spec.when = {
            outcome: draw(some) for outcome in ("approved", "rejected", "partial")
        }
    if not spec.plain and not _is_covered(spec):
        spec.plain = [END]
    return spec


def _draw_gate(draw: Any, spec: Spec) -> None:
    spec.call = draw(st.booleans())
    spec.deadline = draw(st.sampled_from(["", "", "reject", "fail", "approve"]))
    spec.auto = draw(st.booleans())
    spec.window = spec.auto and draw(st.booleans())
    spec.veto = draw(st.sampled_from([False, False, True]))
    spec.whole = draw(st.sampled_from([False, False, True]))


def _is_covered(spec: Spec) -> bool:
    """Return whether a node has a way on without a plain edge."""
    by_outcome = spec.when.get("approved") and spec.when.get("partial")
    return bool(spec.branch or spec.goto or by_outcome)


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
        gate = _gate(spec, seed) if spec.gated else None
        node, options = equipped(spec, _node(spec, seed))
        options |= _asking(spec, gate)
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


def _gate(spec: Spec, seed: int) -> Gate:
    gate = Gate(
        reviewers=["user:ann"],
        needs_approval=_guard(seed),
        skip=spec.skips,
        all_or_nothing=spec.whole,
    )
    if spec.deadline:
        gate = replace(gate, deadline=HOUR, on_deadline=spec.deadline)
    if spec.auto:
        gate = replace(gate, auto=_policy(seed))
    if spec.window:
        gate = replace(gate, auto_after=WINDOW)
    if spec.veto:
        gate = replace(gate, veto=_veto(seed))
    if spec.needs:
        gate = replace(gate, writes={"log": Show(), "note": Show(needs=["log"])})
    return gate


def _asking(spec: Spec, gate: Gate | None) -> dict[str, Any]:
    """The options of a node's gate. A node that people let run acts, and may do so
    again.
    """
    if gate is None:
        return {}
    if spec.asks:
        return {"gate": gate, "effect": "human"}
    if not spec.call:
        return {"gate": gate, "approve": "writes"}
    return {
        "gate": gate,
        "approve": "call",
        "args": Call,
        "prepare": _prepare,
        "effect": "external",
        "idempotent": True,
    }


def _prepare(state: Any, ctx: Any) -> Call:
    return Call(text=reference.call_of(_entry(ctx), len(state.log)))


def _entry(ctx: Any) -> str:
    error = ctx.error.message if ctx.error else None
    return reference.entry_of(tuple(ctx.task), ctx.payload, error)


def _guard(seed: int) -> Any:
    def needed(state: Any, proposal: Any) -> bool:
        return not reference.passes(seed, _first_line(proposal))

    return needed


def _policy(seed: int) -> Any:
    def signs(state: Any, proposal: Any) -> bool:
        return reference.signs(seed, _first_line(proposal))

    return signs


def _veto(seed: int) -> Any:
    def vetoes(state: Any, proposal: Any) -> bool:
        return reference.vetoes(seed, _first_line(proposal), len(state.log))

    return vetoes


def _first_line(proposal: Any) -> str:
    """Return the line with which a proposal begins."""
    if proposal.args is not None:
        return str(proposal.args.text)
    value = proposal.writes[0].value
    return str(value if isinstance(value, str) else value[0])


def _router(spec: Spec, seed: int) -> Any:
    return lambda state: reference.label(seed, spec.name, len(state.log))


def _node(spec: Spec, seed: int) -> Any:
    def node(state: Any, ctx: Any) -> Command:
        does = reference.behaviour(seed, spec, tuple(ctx.task))
        if does.fails:
            raise RuntimeError(str(ctx.task))
        writes = [Write("log", [_first_of(spec, ctx, len(state.log))])]
        second = reference.second_line(spec, _entry(ctx))
        if spec.asks:
            ctx.ask("note" if spec.notes else "log", "What else?")
        elif second is not None and not spec.call:
            writes.append(_write_of_second(spec, second))
        return Command(
            update=writes, goto=does.goto, send=[Send(*send) for send in does.sends]
        )

    return node


def _first_of(spec: Spec, ctx: Any, logged: int) -> str:
    if spec.call:
        return reference.called(ctx.args.text, _entry(ctx), logged)
    return _entry(ctx)


def _write_of_second(spec: Spec, line: str) -> Write:
    return Write("note", line) if spec.notes else Write("log", [line])


def reviewer(seed: int, specs: list[Spec]) -> Any:
    """The one who decides, or lets the time pass, as the model does."""
    timed = {spec.name for spec in specs if spec.deadline}
    skipping = {spec.name for spec in specs if spec.skips}
    calls: dict[Any, int] = {}

    def decide(request: Any) -> Any:
        calls[request.task] = calls.get(request.task, 0) + 1
        lets_pass = reference.lets_pass(seed, tuple(request.task), calls[request.task])
        if request.node in timed and lets_pass:
            return "deadline"
        if request.writes[0].channel == CALL:
            skips = request.node in skipping
            return _decided_call(seed, request, calls[request.task], skips=skips)
        answer = reference.verdicts(seed, tuple(request.task), calls[request.task])
        return answer and {
            position: _said(request, position, verdict)
            for position, verdict in answer.items()
        }

    return decide


def _said(request: Any, position: int, verdict: str) -> tuple[str, Any]:
    """Return what is said of a write: an approval of what nobody has answered answers
    it.
    """
    if verdict == "approve" and request.writes[position].unanswered:
        line = f"{request.writes[0].value[0]} again"
        is_note = request.writes[position].channel == "note"
        return "edit", line if is_note else [line]
    return verdict, None


def _decided_call(seed: int, request: Any, asked: int, *, skips: bool) -> Any:
    task = tuple(request.task)
    verdict = reference.call_verdict(seed, task, asked, skips=skips)
    if verdict is None:
        return None
    text = reference.edited(request.writes[0].value["text"])
    return {0: (verdict, {"text": text} if verdict == "edit" else None)}


def modelled(model: Model) -> tuple[list[Any], str, int]:
    """The model's rounds, how it ended, and how many supersteps it took."""
    rounds: list[Any] = []
    tasks = number = 0
    while True:
        # What is decided is applied before anything else starts.
        if model.gates.decided():
            if model.gates.settle():
                rounds.append(_round_of(model, []))
            continue
        before = copy.deepcopy(model)
        ran = model.superstep()
        if ran:
            tasks = tasks + len(ran)
            number = number + 1
            if tasks > BUDGET:
                model.__dict__ = before.__dict__
                return rounds, "failed", number - 1
            rounds.append(_round_of(model, ran))
            continue
        try:
            model.gates.ask()
        except reference.TimeIsUp:
            return rounds, "failed", number
        if not model.gates.decided():
            return rounds, _rest_of(model), number


def _rest_of(model: Model) -> str:
    if model.waiting:
        return "paused"
    return "rejected" if model.rejected else "completed"


def _round_of(model: Model, ran: list[Any]) -> Any:
    return (
        ran,
        model.pending(),
        model.skipped(),
        model.waiting_tasks(),
        list(model.log),
        model.note,
    )


def result_of(compiled: Compiled, start: Any, *, asks: bool = True) -> Result:
    """Return how a task of a random graph ended, if its gate asks people or nobody."""
    node = compiled.nodes[start.task.node]
    if asks and node.calls and not start.is_call:
        return Result(Output((WriteValue(CALL, {"text": "a call"}),)), gated=True)
    try:
        is_gated = asks and node.gated and not start.is_call
        return Result(_output(compiled, start), gated=is_gated)
    except RuntimeError as error:
        return Result(error=ErrorInfo(start.task.node, "RuntimeError", str(error)))


def some_settled(compiled: Compiled, frontier: Frontier, seed: int) -> list[Settled]:
    """Half of what waits, decided one way or another."""
    content = ["approved", "rejected", "partial"]
    tasks = waiting_tasks(compiled, frontier)
    chosen = tasks[: max(1, len(tasks) // 2)] if tasks else []
    settled: list[Settled] = []
    for task in chosen:
        outcome = content[(seed + task.visit + task.index) % 3]
        writes: tuple[WriteValue, ...] = ()
        if compiled.nodes[task.node].calls and outcome != "rejected":
            outcome = "approved"
            writes = (WriteValue(CALL, {"text": "a call"}),)
        settled.append(Settled(task, writes, outcome))
    return settled


def _output(compiled: Compiled, start: Any) -> Any:
    """Return what the node returns. Raises `RuntimeError` where it fails."""

    class Ctx:
        task = start.task
        payload = start.payload
        error = start.error
        args = Call(text="a call")

    returned = compiled.nodes[start.task.node].fn(State(), Ctx())
    return output_of(compiled, start.task.node, returned)
