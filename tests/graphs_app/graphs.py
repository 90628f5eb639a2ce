"""The graphs that tests run on the database and in real worker processes. Their effects
are lines in a file, one a call.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.engine import (
    END,
    START,
    Append,
    Gate,
    Graph,
    Interval,
    NotDone,
    Retry,
    Sum,
    Write,
)
from orchestrator.execution import inline


class Order(BaseModel):
    number: str = "A-1"
    amount: int = 10
    folder: str = ""
    seconds: float = 0.0


class Ledger(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: Annotated[int, Sum] = 0
    payout: dict[str, Any] | None = None
    letter: str = ""
    paid: str = ""
    sent: str = ""


def outside(ctx: Any, what: str) -> None:
    """An effect that cannot be taken back: a line in a file that no database knows of."""
    with (
        Path(ctx.input.folder or os.environ.get("COUNTERSIGN_DATA_DIR", "/tmp"))
        / "outside.log"
    ).open("a") as log:
        log.write(f"{what} {ctx.idempotency_key}\n")


_HOOKS: dict[str, Callable[[], Any]] = {}
_FROM_VISIT = [1]
_LEFT = [0]


@contextmanager
def hooked(
    hooks: dict[str, Callable[[], Any]], *, times: int = 1, from_visit: int = 1
) -> Iterator[None]:
    """Open a block in which these nodes call their hook from that visit on, at most
    `times` in all.
    """
    _HOOKS.update(hooks)
    _LEFT[0] = times
    _FROM_VISIT[0] = from_visit
    try:
        yield
    finally:
        _HOOKS.clear()


def _hook(ctx: Any) -> None:
    if ctx.node in _HOOKS and _LEFT[0] > 0 and ctx.visit >= _FROM_VISIT[0]:
        _LEFT[0] -= 1
        _HOOKS[ctx.node]()


# --- the crash story without a gate: an idempotent payment, a letter that is not ---

effects = Graph("effects", input=Order, state=Ledger)


@effects.node()
def prepare(state: Ledger, ctx: Any) -> dict[str, Any]:
    return {"notes": [f"order {ctx.input.number}"], "total": ctx.input.amount}


@effects.node(effect="external", idempotent=True, timeout=20)
def pay(state: Ledger, ctx: Any) -> dict[str, Any]:
    outside(ctx, "paid")
    return {"paid": ctx.input.number, "notes": ["paid"]}


@effects.node(effect="external", timeout=20)
def send(state: Ledger, ctx: Any) -> dict[str, Any]:
    outside(ctx, "sent")
    return {"sent": ctx.input.number, "notes": ["sent"]}


@effects.node()
def close(state: Ledger, ctx: Any) -> dict[str, Any]:
    return {"notes": ["closed"]}


effects.edge(START, "prepare")
effects.edge("prepare", "pay")
effects.edge("pay", "send")
effects.edge("send", "close")
effects.edge("close", END)

# --- a gate of kind writes, with two writes to one channel ---

gated = Graph("gated", input=Order, state=Ledger)


@gated.node(
    effect="human",
    gate=Gate(reviewers=["group:claims"], title="Pay order {input.number}?"),
)
def propose(state: Ledger, ctx: Any) -> list[Write]:
    return [
        Write("payout", {"amount": str(ctx.input.amount)}, label="the payout"),
        Write("letter", "Dear customer", label="the letter"),
        Write("notes", ["first"], label="a note"),
        Write("notes", ["second"], label="another note"),
    ]


@gated.node(effect="external", idempotent=True)
def release(state: Ledger, ctx: Any) -> dict[str, Any]:
    outside(ctx, f"released {state.payout}")
    return {"paid": str(state.payout)}


@gated.node()
def refuse(state: Ledger, ctx: Any) -> dict[str, Any]:
    return {"notes": ["refused"]}


gated.edge(START, "propose")
gated.edge("propose", "release", when=("approved", "partial"))
gated.edge("propose", "refuse", when="rejected")
gated.edge("release", END)
gated.edge("refuse", END)

# --- a gate beside a branch that goes on moving the base of what is proposed ---

beside = Graph("beside", input=Order, state=Ledger)


@beside.node(effect="human", gate=Gate(reviewers=["group:claims"]))
def ask(state: Ledger, ctx: Any) -> list[Write]:
    return [
        Write("letter", "proposed", label="bound"),
        Write("notes", ["from the gate"], label="free"),
    ]


@beside.node()
def move(state: Ledger, ctx: Any) -> dict[str, Any]:
    time.sleep(ctx.input.seconds)
    _hook(ctx)
    return {"total": 1, "notes": [f"move {ctx.visit}"]}


@beside.node()
def rewrite(state: Ledger, ctx: Any) -> dict[str, Any]:
    _hook(ctx)
    return {"letter": "moved by a branch"}


@beside.node()
def after(state: Ledger, ctx: Any) -> dict[str, Any]:
    return {"notes": ["after the gate"]}


beside.edge(START, "ask")
beside.edge(START, "move")
beside.branch(
    "move",
    lambda s: "again" if s.total < 5 else "done",
    {"again": "move", "done": "rewrite"},
)
beside.edge("rewrite", END)
beside.edge("ask", "after", when=("approved", "partial"))
beside.edge("after", END)

# --- failures, retries, error edges ---

flaky = Graph("flaky", input=Order, state=Ledger)
BROKEN: set[str] = set()
"""Names of nodes that are broken now; tests in this process mend them."""


@flaky.node(retry=Retry(attempts=3, backoff=0.01))
def wobble(state: Ledger, ctx: Any) -> dict[str, Any]:
    if ctx.attempt < 3:
        raise RuntimeError(f"attempt {ctx.attempt}")
    return {"notes": [f"attempt {ctx.attempt}"]}


@flaky.node()
def fragile(state: Ledger, ctx: Any) -> dict[str, Any]:
    if "fragile" in BROKEN:
        raise RuntimeError("fragile is broken")
    return {"notes": ["fragile"]}


@flaky.node(effect="external")
def beside_fragile(state: Ledger, ctx: Any) -> dict[str, Any]:
    outside(ctx, "beside")
    return {"notes": ["beside"]}


@flaky.node(effect="external", not_done=(ConnectionError,))
def careful(state: Ledger, ctx: Any) -> dict[str, Any]:
    if "careful" in BROKEN:
        raise NotDone("nobody answered")
    outside(ctx, "careful")
    return {"notes": ["careful"]}


flaky.edge(START, "wobble")
flaky.edge("wobble", "fragile")
flaky.edge("wobble", "beside_fragile")
flaky.edge("fragile", "careful")
flaky.edge("beside_fragile", "careful")
flaky.edge("careful", END)

# --- loops under each checkpoint policy ---


def _loop(name: str, policy: Any) -> Graph:
    graph = Graph(name, input=Order, state=Ledger, checkpoints=policy)

    @graph.node("step")
    def step(state: Ledger, ctx: Any) -> dict[str, Any]:
        return {"total": 1}

    graph.edge(START, "step")
    graph.branch(
        "step",
        lambda s: "again" if s.total < 6 else "done",
        {"again": "step", "done": END},
    )
    return graph


loop_every = _loop("loop_every", "every_node")
loop_none = _loop("loop_none", "none")
loop_third = _loop("loop_third", Interval(3))

# --- a slow node, for leases and drains ---

slow = Graph("slow", input=Order, state=Ledger)


@slow.node(timeout=60)
def doze(state: Ledger, ctx: Any) -> dict[str, Any]:
    if ctx.input.folder:
        outside(ctx, "dozing")
    time.sleep(ctx.input.seconds)
    return {"notes": ["dozed"]}


slow.edge(START, "doze")
slow.edge("doze", END)

# --- a long pause between two attempts ---

patient = Graph("patient", input=Order, state=Ledger)


@patient.node(retry=Retry(attempts=2, backoff=6, jitter=0))
def second_time(state: Ledger, ctx: Any) -> dict[str, Any]:
    if ctx.attempt < 2:
        raise RuntimeError("not yet")
    return {"notes": ["second time"]}


patient.edge(START, "second_time")
patient.edge("second_time", END)

# --- a node that takes its worker down ---

deadly = Graph("deadly", input=Order, state=Ledger)


@deadly.node()
def die(state: Ledger, ctx: Any) -> dict[str, Any]:
    outside(ctx, "died")
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


deadly.edge(START, "die")
deadly.edge("die", END)

# --- a node that is quick at first, and then never returns ---

sticky = Graph("sticky", input=Order, state=Ledger)
# A test that needs the node to count as quick says so: on a busy machine a moment more
# says nothing of the node.
inline.QUICK_MS = int(os.environ.get("COUNTERSIGN_TEST_QUICK_MS", inline.QUICK_MS))


@sticky.node(timeout=1)
def stick(state: Ledger, ctx: Any) -> dict[str, Any]:
    if state.total == ctx.input.amount:
        time.sleep(ctx.input.seconds)
    return {"total": 1}


sticky.edge(START, "stick")
sticky.branch(
    "stick",
    lambda state: "on" if state.total < 20 else "over",
    {"on": "stick", "over": END},
)

# --- a graph that two workers have in two versions ---


class Copied(Ledger):
    copy_to: str = "archive"


def rolled_out(version: str) -> Graph:
    """People are asked, then a node writes down with which version's code it ran.
    Version 2 has one more channel.
    """
    graph = Graph(
        "rolled_out",
        version=version,
        input=Order,
        state=Copied if version == "2" else Ledger,
    )
    gate = Gate(reviewers=["group:claims"])
    graph.node("propose", effect="human", gate=gate)(
        lambda state, ctx: {"letter": f"proposed by {version}"}
    )
    graph.node("send")(lambda state, ctx: {"notes": [f"sent by {version}"]})
    graph.edge(START, "propose")
    graph.edge("propose", "send")
    graph.edge("send", END)
    return graph


rolled_out_here = rolled_out(os.environ.get("COUNTERSIGN_TEST_VERSION", "1"))
