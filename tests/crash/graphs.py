"""The graphs of the sweep: each shape in which a crash could lose or double something, as small as it goes."""

from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.demo.claims.models import ClaimCase
from orchestrator.engine import END, START, Append, Gate, Graph, Last, Max, Merge, Send, Sum, Union, Write
from tests.graphs_app.graphs import outside

BROKEN: set[str] = set()
"""Nodes that are broken until a person mends them."""

GATE = Gate(reviewers=["group:claims"])
YES = ("approved", "partial")


class Order(BaseModel):
    folder: str = ""


class Notes(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: Annotated[int, Sum] = 0
    most: Annotated[int | None, Max] = None
    tags: Annotated[set[str], Union] = set()
    facts: Annotated[dict[str, int], Merge] = {}
    last: Annotated[str, Last] = ""
    letter: str = ""


def _graph(name: str, **settings: Any) -> Graph:
    return Graph(name, input=Order, state=Notes, **settings)


def _note(graph: Graph, name: str, writes: dict[str, Any] | None = None, **options: Any) -> None:
    """A node that leaves a note, and whatever else it is told to write."""

    def run(state: Notes, ctx: Any) -> dict[str, Any]:
        return {"notes": [f"{name} {ctx.visit}"], **(writes or {})}

    graph.node(name, **options)(run)


def _chain(graph: Graph, *names: str) -> None:
    for source, target in zip(names, names[1:], strict=False):
        graph.edge(source, target)


def _propose(graph: Graph, name: str, *writes: Write) -> None:
    graph.node(name, effect="human", gate=GATE)(lambda state, ctx: list(writes))


linear = _graph("c_linear")
for one in ("a", "b", "c"):
    _note(linear, one)
_chain(linear, START, "a", "b", "c", END)

branch = _graph("c_branch")
_note(branch, "a", {"total": 1})
_note(branch, "left")
_note(branch, "right")
branch.edge(START, "a")
branch.branch("a", lambda s: "left" if s.total else "right", {"left": "left", "right": "right"})
branch.edge("left", END)
branch.edge("right", END)


def _loop(name: str, **settings: Any) -> Graph:
    graph = _graph(name, **settings)
    _note(graph, "step", {"total": 1})
    graph.edge(START, "step")
    graph.branch("step", lambda s: "again" if s.total < 3 else "done", {"again": "step", "done": END})
    return graph


loop = _loop("c_loop")
recovery = _loop("c_recovery", checkpoints="none")

parallel = _graph("c_parallel")
for number, one in enumerate(("a", "b", "c")):
    reduced = {"total": number, "most": number, "tags": {one, "all"}, "facts": {one: number}, "last": one}
    _note(parallel, one, reduced)
    _chain(parallel, START, one, "join")
_note(parallel, "join")
parallel.edge("join", END)

fan_out = _graph("c_fan_out")


@fan_out.node(sends=["leaf"])
def spread(state: Notes, ctx: Any) -> list[Send]:
    return [Send("leaf", {"n": n}) for n in range(3)]


@fan_out.node()
def leaf(state: Notes, ctx: Any) -> dict[str, Any]:
    return {"notes": [f"leaf {ctx.payload['n']}"], "total": ctx.payload["n"]}


_note(fan_out, "join")
fan_out.edge(START, "spread")
_chain(fan_out, "leaf", "join", END)
fan_out.edge("spread", END)

effects = _graph("c_effects")


@effects.node(effect="external", idempotent=True)
def pay(state: Notes, ctx: Any) -> dict[str, Any]:
    outside(ctx, "paid")
    return {"notes": ["paid"]}


@effects.node(effect="external")
def letter(state: Notes, ctx: Any) -> dict[str, Any]:
    outside(ctx, "letter")
    return {"notes": ["letter"]}


_note(effects, "beside")
for one in ("pay", "letter", "beside"):
    _chain(effects, START, one, "join")
_note(effects, "join")
effects.edge("join", END)

atomic = _graph("c_atomic")


@atomic.node(effect="write", atomic=True)
def record(state: Notes, ctx: Any) -> dict[str, Any]:
    case, _ = ClaimCase.objects.get_or_create(claim_id=str(ctx.run_id)[:36])
    ClaimCase.objects.filter(id=case.id).update(changes=case.changes + 1)
    return {"notes": ["recorded"], "total": case.changes + 1}


_note(atomic, "after")
_chain(atomic, START, "record", "after", END)

gate = _graph("c_gate")
_propose(gate, "ask", Write("letter", "proposed"), Write("notes", ["one"]), Write("notes", ["two"]))
_note(gate, "after")
gate.edge(START, "ask")
gate.edge("ask", "after", when=YES)
gate.edge("after", END)

beside = _graph("c_beside")
_propose(beside, "ask", Write("letter", "proposed"), Write("notes", ["asked"]))
_note(beside, "move", {"total": 1})
_note(beside, "rewrite", {"letter": "moved"})
_note(beside, "after")
beside.edge(START, "ask")
beside.edge(START, "move")
_chain(beside, "move", "rewrite", END)
beside.edge("ask", "after", when=YES)
beside.edge("after", END)

two_gates = _graph("c_two_gates")
_propose(two_gates, "ask_a", Write("letter", "from a"))
_propose(two_gates, "ask_b", Write("facts", {"b": 1}))
_note(two_gates, "join")
for one in ("ask_a", "ask_b"):
    two_gates.edge(START, one)
    two_gates.edge(one, "join", when=YES)
two_gates.edge("join", END)

failure = _graph("c_failure")


@failure.node()
def fragile(state: Notes, ctx: Any) -> dict[str, Any]:
    if "fragile" in BROKEN:
        raise RuntimeError("broken until mended")
    return {"notes": ["fragile"]}


@failure.node(effect="external", idempotent=True)
def sibling(state: Notes, ctx: Any) -> dict[str, Any]:
    outside(ctx, "paid")
    return {"notes": ["sibling"]}


for one in ("fragile", "sibling"):
    _chain(failure, START, one, "join")
_note(failure, "join")
failure.edge("join", END)

error_edge = _graph("c_error_edge")


@error_edge.node()
def breaks(state: Notes, ctx: Any) -> dict[str, Any]:
    raise RuntimeError("always")


@error_edge.node()
def mend(state: Notes, ctx: Any) -> dict[str, Any]:
    return {"notes": [f"mended {ctx.error.message}"]}


error_edge.edge(START, "breaks")
error_edge.edge("breaks", END)
error_edge.edge("breaks", "mend", when="error")
error_edge.edge("mend", END)
