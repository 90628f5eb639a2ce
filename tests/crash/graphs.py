"""The graphs of the sweep: each shape in which a crash could lose or double something,
as small as it goes.
"""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.demo.claims.models import ClaimCase
from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Command,
    Custom,
    First,
    Gate,
    Graph,
    Last,
    Longest,
    Max,
    Merge,
    Min,
    NotDone,
    Replace,
    Retry,
    Send,
    Sum,
    Union,
    Write,
)
from tests.crash import calling, memory, paying

BROKEN: set[str] = set()
"""Nodes that are broken until a person mends them."""
LEFT: dict[str, int] = {}
"""How often a node still misbehaves in the journey under way."""
DRAIN = threading.Event()
"""Whether the worker was asked to stop."""

GATE = Gate(reviewers=["group:claims"])
YES = ("approved", "partial")


def fresh() -> None:
    """Set everything as it was before a journey."""
    BROKEN.add("fragile")
    LEFT.update(wobble=2, far=2, knock=1, linger=1, last_call=1, nudge=1)
    DRAIN.clear()


def misbehaves(node: str) -> bool:
    """Return whether this call of the node is one of those that go wrong."""
    LEFT[node] = LEFT.get(node, 0) - 1
    return LEFT[node] >= 0


class Order(BaseModel):
    folder: str = ""


def joined(old: str, update: str) -> str:
    """A reducer of the author's own, in which the order of updates shows."""
    return f"{old}<{update}>"


def outside(ctx: Any, what: str) -> None:
    """An effect that cannot be taken back: a line in a file that no database knows of."""
    with (Path(ctx.input.folder) / "outside.log").open("a") as log:
        log.write(f"{what} {ctx.idempotency_key}\n")


class Notes(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: Annotated[int, Sum] = 0
    facts: Annotated[dict[str, int], Merge] = {}
    letter: str = ""


def _graph(name: str, state: type[BaseModel] = Notes, **settings: Any) -> Graph:
    return Graph(name, input=Order, state=state, **settings)


def _note(
    graph: Graph, name: str, writes: dict[str, Any] | None = None, **options: Any
) -> None:
    """A node that leaves a note, and whatever else it is told to write."""

    def run(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [f"{name} {ctx.visit}"], **(writes or {})}

    graph.node(name, **options)(run)


def _chain(graph: Graph, *names: str) -> None:
    for source, target in zip(names, names[1:], strict=False):
        graph.edge(source, target)


def _propose(graph: Graph, name: str, *writes: Write, gate: Gate = GATE) -> None:
    graph.node(name, effect="human", gate=gate)(lambda state, ctx: list(writes))


linear = _graph("c_linear")
for node in ("a", "b", "c"):
    _note(linear, node)
_chain(linear, START, "a", "b", "c", END)

branch = _graph("c_branch")
_note(branch, "a", {"total": 1})
_note(branch, "left")
_note(branch, "right")
branch.edge(START, "a")
branch.branch(
    "a", lambda s: "left" if s.total else "right", {"left": "left", "right": "right"}
)
for node in ("left", "right"):
    branch.edge(node, END)


def _loop(name: str, **settings: Any) -> Graph:
    graph = _graph(name, **settings)
    _note(graph, "step", {"total": 1})
    graph.edge(START, "step")
    graph.branch(
        "step",
        lambda s: "again" if s.total < 3 else "done",
        {"again": "step", "done": END},
    )
    return graph


loop = _loop("c_loop")
recovery = _loop("c_recovery", checkpoints="none")


class Reduced(BaseModel):
    """One channel a reducer, two of them artifacts."""

    replaced: Annotated[str, Replace] = ""
    notes: Annotated[list[str], Append] = []
    facts: Annotated[dict[str, int], Merge] = {}
    total: Annotated[float, Sum] = 0.0
    most: Annotated[int | None, Max] = None
    least: Annotated[int | None, Min] = None
    first: Annotated[str | None, First] = None
    last: Annotated[str, Last, Artifact] = ""
    tags: Annotated[set[str], Union, Artifact] = set()
    longest: Annotated[str | None, Longest] = None
    order: Annotated[str, joined] = ""
    product: Annotated[int, Custom(lambda old, update: old * update, commutes=True)] = 1


parallel = _graph("c_parallel", Reduced)


def _reduced(number: int, name: str) -> dict[str, Any]:
    """A write to each channel; to the one that replaces from the first branch alone,
    for two are a conflict.
    """
    many: dict[str, Any] = {
        name: value for name in ("most", "least") for value in [number]
    }
    many |= {
        "facts": {name: number, "all": number},
        "total": number + 0.5,
        "tags": {name, "all"},
    }
    many |= {
        "first": name,
        "last": name,
        "longest": name * (number + 1),
        "order": name,
        "product": number + 2,
    }
    return {**many, "replaced": name} if number == 0 else many


for number, node in enumerate(("a", "b", "c")):
    _note(parallel, node, _reduced(number, node))
    _chain(parallel, START, node, "join")
_note(parallel, "join", {"replaced": "join", "order": "join"})
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

noting = _graph("c_noting")


@noting.node(effect="external", idempotent=True, sends=["count"])
def ask(state: Notes, ctx: Any) -> Command:
    ctx.metadata("model", "large")
    ctx.figure("tokens", 1000)
    return Command(
        update={"notes": ["asked"]}, send=[Send("count", n) for n in range(3)]
    )


@noting.node()
def count(state: Notes, ctx: Any) -> dict[str, Any]:
    ctx.metadata("last", ctx.payload)
    ctx.figure("tokens", ctx.payload)
    return {"total": ctx.payload}


_note(noting, "join")
noting.edge(START, "ask")
_chain(noting, "count", "join", END)
noting.edge("ask", END)

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
for node in ("pay", "letter", "beside"):
    _chain(effects, START, node, "join")
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


def _asking(name: str, *writes: Write, gate: Gate = GATE) -> Graph:
    graph = _graph(name)
    _propose(graph, "ask", *writes, gate=gate)
    _note(graph, "after")
    graph.edge(START, "ask")
    graph.edge("ask", "after", when=YES)
    graph.edge("after", END)
    return graph


gate = _asking(
    "c_gate",
    Write("letter", "proposed"),
    Write("notes", ["one"]),
    Write("notes", ["two"]),
)


def _hurried(verdict: str) -> Graph:
    return _asking(
        f"c_deadline_{verdict}",
        Write("letter", "proposed"),
        Write("notes", ["one"]),
        gate=Gate(
            reviewers=["group:claims"],
            deadline=timedelta(milliseconds=1),
            on_deadline=verdict,
        ),
    )


hurried_to_reject = _hurried("reject")
hurried_to_approve = _hurried("approve")
hurried_to_fail = _hurried("fail")

beside = _asking("c_beside", Write("letter", "proposed"), Write("notes", ["asked"]))
_note(beside, "move", {"total": 1})
_note(beside, "rewrite", {"letter": "moved"})
_chain(beside, START, "move", "rewrite", END)

two_gates = _graph("c_two_gates")
_propose(two_gates, "ask_a", Write("letter", "from a"))
_propose(two_gates, "ask_b", Write("facts", {"b": 1}))
_note(two_gates, "join")
for gate_node in ("ask_a", "ask_b"):
    two_gates.edge(START, gate_node)
    two_gates.edge(gate_node, "join", when=YES)
two_gates.edge("join", END)

travel = paying.declare(_graph("c_travel"), outside, gate=GATE, when=YES)

called = calling.declare(_graph("c_called"), outside, gate=GATE, when=YES)

authorised = _graph("c_authority")
_propose(authorised, "ask", Write("total", 7))


def _sends(what: str) -> Callable[[Any, Any], dict[str, Any]]:
    """An effect on the authority of what people signed."""

    def send(state: Any, ctx: Any) -> dict[str, Any]:
        outside(ctx, what)
        return {"notes": [what]}

    return send


acting = {"effect": "external", "authority": "ask"}
authorised.node("pay", idempotent=True, **acting)(_sends("paid"))
authorised.node("letter", **acting)(_sends("letter"))
authorised.edge(START, "ask")
for node in ("pay", "letter"):
    authorised.edge("ask", node)
    authorised.edge(node, END)

retry = _graph("c_retry")


@retry.node(retry=Retry(attempts=3, backoff=0.001))
def wobble(state: Notes, ctx: Any) -> dict[str, Any]:
    if misbehaves("wobble"):
        raise RuntimeError("not yet")
    return {"notes": ["wobbled"]}


@retry.node(
    effect="external",
    not_done=(ConnectionError,),
    retry=Retry(attempts=3, backoff=0.001),
)
def knock(state: Notes, ctx: Any) -> dict[str, Any]:
    if misbehaves("knock"):
        raise NotDone("nobody answered")
    outside(ctx, "knocked")
    return {"notes": ["knocked"]}


_chain(retry, START, "wobble", "knock", END)

far = _graph("c_far")


@far.node("far", retry=Retry(attempts=3, backoff=0.006, factor=1.0, jitter=0.0))
def far_retried(state: Notes, ctx: Any) -> dict[str, Any]:
    if misbehaves("far"):
        raise RuntimeError("not yet")
    return {"notes": ["far"]}


_note(far, "beside")
for node in ("far", "beside"):
    _chain(far, START, node, "join")
_note(far, "join")
far.edge("join", END)

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


for node in ("fragile", "sibling"):
    _chain(failure, START, node, "join")
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

drain = _graph("c_drain")


@drain.node(effect="external", idempotent=True)
def last_call(state: Notes, ctx: Any) -> dict[str, Any]:
    """Ask the worker to stop while this node runs; the node ends within the grace
    period.
    """
    if misbehaves("last_call"):
        DRAIN.set()
    outside(ctx, "paid")
    return {"notes": ["last call"]}


@drain.node()
def linger(state: Notes, ctx: Any) -> dict[str, Any]:
    """The worker is asked to stop while this one is in hand; it takes longer than
    anybody waits.
    """
    until = time.monotonic() + 0.5
    if misbehaves("linger"):
        DRAIN.set()
        while time.monotonic() < until and not ctx.cancelled:
            time.sleep(0.002)
    return {"notes": ["lingered"]}


@drain.node(effect="external", idempotent=True)
def beside_linger(state: Notes, ctx: Any) -> dict[str, Any]:
    outside(ctx, "beside")
    return {"notes": ["beside"]}


_chain(drain, START, "last_call", "linger", "join")
_chain(drain, "last_call", "beside_linger", "join", END)
_note(drain, "join")

reporting = _graph("c_reporting")


@reporting.node()
def reports(state: Notes, ctx: Any) -> dict[str, Any]:
    """Report at once: the first report is a heartbeat."""
    ctx.report(1, 2, "half")
    time.sleep(0.05)
    return {"notes": ["reported"]}


_chain(reporting, START, "reports", END)

remembering = _graph("c_remembering")


@remembering.node()
def remember(state: Notes, ctx: Any) -> dict[str, Any]:
    for key in ("sky", "sea"):
        ctx.memory.put(key, f"{key} is blue", "sweep")
    return {"notes": ["remembered"]}


@remembering.node(effect="read")
def recall(state: Notes, ctx: Any) -> dict[str, Any]:
    """Read what landed, and changes it again."""
    known = ctx.memory.get("sky", "sweep")
    ctx.memory.put("sky", f"{known.content}, again", "sweep")
    ctx.memory.delete("sea", "sweep")
    return {"notes": [f"{known.content} {known.version}"]}


_chain(remembering, START, "remember", "recall", END)

unknown = _graph("c_unknown")


@unknown.node(effect="external")
def post(state: Notes, ctx: Any) -> dict[str, Any]:
    """Act, and lose the answer."""
    outside(ctx, "posted")
    raise TimeoutError("no answer")


_note(unknown, "after")
_chain(unknown, START, "post", "after", END)

memory_modes = memory.declare(_graph("c_memory"), gate=GATE, when=YES)
