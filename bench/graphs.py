"""The work of W1 to W11 as graphs; discovered like those of any app, so worker processes
of the bench know them too.

Nodes call `watch.step`, so that a contender sees each step begin in its own process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel

from bench.bodies import KILOBYTES, line
from bench.notes import note
from orchestrator.engine import END, START, Append, Gate, Graph, Send, Write

LONG = 1_000_000


@dataclass
class Watch:
    """What is called as each step begins, with its number from 1."""

    step: Callable[[int], None] = lambda number: None


watch = Watch()


class Steps(BaseModel):
    steps: int = 1


class Blob(BaseModel):
    number: int = 0
    left: int = 1
    body: str = ""
    first: int = 0


def _loop(name: str) -> Graph:
    """Return a graph that replaces the body of its state in each step. `first` is set in
    the first step only.
    """
    graph = Graph(name, input=Steps, state=Blob, max_supersteps=LONG)

    @graph.node("step")
    def replace_body(state: Blob, ctx: Any) -> dict[str, Any]:
        number = state.number + 1
        watch.step(number)
        changes = {
            "number": number,
            "left": ctx.input.steps - number,
            "body": KILOBYTES[number % 64],
        }
        if number == 1:
            changes["first"] = number
        return changes

    graph.edge(START, "step")
    graph.branch(
        "step",
        lambda state: "on" if state.left else "done",
        {"on": "step", "done": END},
    )
    return graph


w1 = _loop("bench_w1")


class Growing(BaseModel):
    steps: int = 1
    size: int = 1024
    fill: int = 100


class Lines(BaseModel):
    lines: Annotated[list[str], Append] = []
    number: int = 0
    left: int = 1


w2 = Graph("bench_w2", input=Growing, state=Lines, max_supersteps=LONG)


@w2.node()
def fill(state: Lines, ctx: Any) -> dict[str, Any]:
    return {"lines": [line(-n, 1024) for n in range(ctx.input.fill)]}


@w2.node("append")
def append_line(state: Lines, ctx: Any) -> dict[str, Any]:
    number = state.number + 1
    watch.step(number)
    return {
        "lines": [line(number, ctx.input.size)],
        "number": number,
        "left": ctx.input.steps - number,
    }


w2.edge(START, "fill")
w2.edge("fill", "append")
w2.branch(
    "append",
    lambda state: "on" if state.left else "done",
    {"on": "append", "done": END},
)


class Fan(BaseModel):
    leaves: int = 100


class Gathered(BaseModel):
    numbers: Annotated[list[int], Append] = []
    total: int = -1


def _fan(name: str, **leaf_options: Any) -> Graph:
    graph = Graph(name, input=Fan, state=Gathered)

    @graph.node(sends=["leaf"])
    def plan(state: Gathered, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(ctx.input.leaves)]

    @graph.node(**leaf_options)
    def leaf(state: Gathered, ctx: Any) -> dict[str, Any]:
        watch.step(ctx.payload)
        return {"numbers": [ctx.payload]}

    @graph.node()
    def join(state: Gathered, ctx: Any) -> dict[str, Any]:
        return {"total": sum(state.numbers)}

    graph.edge(START, "plan")
    graph.edge("leaf", "join")
    graph.edge("join", END)
    return graph


w3 = _fan("bench_w3")
w3_journaled = _fan("bench_w3_journaled", effect="external", idempotent=True)


class Log(BaseModel):
    log: str
    number: int = 0


class Proposals(BaseModel):
    proposed: int = 0


w6 = Graph("bench_w6", input=Log, state=Proposals, max_supersteps=LONG)


@w6.node(effect="human", gate=Gate(reviewers=["user:reviewer"]))
def propose(state: Proposals, ctx: Any) -> dict[str, Any]:
    note(ctx.input.log, state.proposed)
    return {"proposed": state.proposed + 1}


w6.edge(START, "propose")
w6.edge("propose", "propose", when="approved")
w6.edge("propose", END, when=("rejected", "partial"))

MIB = 1024 * 1024


def _people(number: int) -> list[dict[str, Any]]:
    return [
        {"id": n, "name": f"person {n}", "amount": f"{n}.50"} for n in range(number)
    ]


PROPOSALS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "8,000 items, each second changed": lambda: (
        _people(8000),
        [{**one, "name": "nobody"} if one["id"] % 2 else one for one in _people(8000)],
    ),
    "a list, one changed": lambda: (
        _people(70_000),
        [*_people(70_000)[:-9], {}, *_people(70_000)[-8:]],
    ),
    "a list, all changed": lambda: (_people(70_000), _people(70_000)[::-1]),
    "numbers": lambda: ([1] * (2 * MIB - 9), [2] * (2 * MIB - 9)),
    "a letter": lambda: ("some words " * (MIB // 3), "other words " * (MIB // 3)),
    "fields": lambda: (
        {f"{n:06}": n for n in range(220_000)},
        {f"{n:06}": -n for n in range(220_000)},
    ),
}
"""What is there and what is proposed, by shape; the larger ones just below the largest
value that is allowed.
"""


class Shape(BaseModel):
    shape: str


class Anything(BaseModel):
    anything: Any = None


w10 = Graph("bench_w10", input=Shape, state=Anything)


@w10.node()
def set_now(state: Anything, ctx: Any) -> dict[str, Any]:
    return {"anything": PROPOSALS[ctx.input.shape]()[0]}


@w10.node(effect="human", gate=Gate(reviewers=["user:reviewer"]))
def propose_anything(state: Anything, ctx: Any) -> dict[str, Any]:
    return {"anything": PROPOSALS[ctx.input.shape]()[1]}


w10.edge(START, "set_now")
w10.edge("set_now", "propose_anything")
w10.edge("propose_anything", END)


class Beside(BaseModel):
    steps: int = 1
    proposals: int = 0


class Signed(BaseModel):
    number: int = 0
    left: int = 1
    body: str = ""
    proposed: int = 0


w8 = Graph("bench_w8", input=Beside, state=Signed, max_supersteps=LONG)


@w8.node("step")
def step_beside_gate(state: Signed, ctx: Any) -> dict[str, Any]:
    number = state.number + 1
    watch.step(number)
    return {
        "number": number,
        "left": ctx.input.steps - number,
        "body": KILOBYTES[number % 64],
    }


@w8.node("ask", effect="human", gate=Gate(reviewers=["user:reviewer"]))
def propose_many(state: Signed, ctx: Any) -> list[Write]:
    return [Write("proposed", number) for number in range(ctx.input.proposals)]


w8.edge(START, "step")
w8.edge(START, "ask")
w8.branch(
    "step", lambda state: "on" if state.left else "done", {"on": "step", "done": END}
)
w8.edge("ask", END, when=("approved", "rejected", "partial"))

w11 = Graph("bench_w11", input=Beside, state=Signed)


@w11.node("ask", effect="human", gate=Gate(reviewers=["user:reviewer"]))
def propose_some(state: Signed, ctx: Any) -> list[Write]:
    return [Write("proposed", number) for number in range(ctx.input.proposals)]


w11.edge(START, "ask")
w11.edge("ask", END, when=("approved", "rejected", "partial"))

w7 = Graph("bench_w7", input=Log, state=Blob)


@w7.node("step")
def noted_step(state: Blob, ctx: Any) -> dict[str, Any]:
    number = state.number + 1
    note(ctx.input.log, f"{ctx.input.number}:{number}")
    return {"number": number, "left": 5 - number, "body": KILOBYTES[number]}


w7.edge(START, "step")
w7.branch(
    "step", lambda state: "on" if state.left else "done", {"on": "step", "done": END}
)
