"""LangGraph with its own checkpointers as a contender: durable after each superstep
before the next begins (`durability="sync"`), or while it runs ("async").
"""

import operator
import os
import sqlite3
import time
import uuid
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from bench.bodies import KILOBYTES, line
from bench.contenders import here
from bench.contenders.serve import last_words
from bench.counting import connections

LONG = 1_000_000
DURABILITY: Any = os.environ.get("BENCH_DURABILITY", "sync")
_links: list[Any] = []


def _saver() -> Any:
    if here.vendor() == "sqlite":
        from langgraph.checkpoint.sqlite import SqliteSaver

        _links.append(sqlite3.connect(here.sqlite_path(), check_same_thread=False))
        return SqliteSaver(_links[0])
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    # As its documentation makes the connection.
    _links.append(
        psycopg.connect(
            here.dsn(), autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
    )
    return PostgresSaver(_links[0])


saver = _saver()
saver.setup()


def close() -> None:
    """Release what the process holds, at its end."""
    for link in _links:
        link.close()


def counts() -> dict[str, Any]:
    """Statements so far; SQLite only, where BENCH_COUNT is set."""
    return dict(connections.counted)


def _config(thread: str, *, limit: int = LONG) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "recursion_limit": limit}


def _run(graph: Any, state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    config = _config(str(uuid.uuid4()))
    cpu = time.process_time()
    begun = time.perf_counter()
    state = graph.invoke(state, config, durability=DURABILITY)
    return state, {
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - cpu,
    }


class Blob(TypedDict):
    number: int
    body: str


def _loop(steps: int, on_step: Callable[[int], None]) -> Any:
    def step(state: Blob) -> dict[str, Any]:
        number = state["number"] + 1
        on_step(number)
        return {"number": number, "body": KILOBYTES[number % 64]}

    built = StateGraph(Blob)
    built.add_node("step", step)
    built.add_edge(START, "step")
    built.add_conditional_edges(
        "step", lambda s: "step" if s["number"] < steps else END, ["step", END]
    )
    return built.compile(checkpointer=saver)


def w1(steps: int) -> dict[str, Any]:
    """Time a loop of so many supersteps, from the call to the end."""
    seen: list[int] = []
    end, took = _run(_loop(steps, seen.append), {"number": 0, "body": ""})
    assert seen == list(range(1, steps + 1)), "a step was lost or worked on twice"
    assert end["number"] == steps
    return took


class Lines(TypedDict):
    lines: Annotated[list[str], operator.add]
    number: int


def w2(steps: int, size: int, fill: int, marks: list[int]) -> dict[str, Any]:
    """A list that grows with each step. The seconds of each step, and bytes on disk
    after the steps in `marks`.
    """
    stamps = here.Stamps(marks)

    def append(state: Lines) -> dict[str, Any]:
        number = state["number"] + 1
        stamps.step(number)
        return {"lines": [line(number, size)], "number": number}

    built = StateGraph(Lines)
    built.add_node("append", append)
    built.add_edge(START, "append")
    built.add_conditional_edges(
        "append", lambda s: "append" if s["number"] < steps else END, ["append", END]
    )
    state = {"lines": [line(-n, 1024) for n in range(fill)], "number": 0}
    end, _ = _run(built.compile(checkpointer=saver), state)
    assert len(end["lines"]) == fill + steps
    return stamps.facts(steps)


class Gathered(TypedDict):
    numbers: Annotated[list[int], operator.add]
    total: int


def w3(journaled: bool) -> dict[str, Any]:
    """Time a fan-out of 100 and its join; each leaf is durable on its own in any case."""
    seen: list[int] = []

    def leaf(state: dict[str, int]) -> dict[str, Any]:
        seen.append(state["n"])
        return {"numbers": [state["n"]]}

    built = StateGraph(Gathered)
    built.add_node("plan", lambda state: {})
    built.add_node("leaf", leaf)
    built.add_node("join", lambda state: {"total": sum(state["numbers"])})
    built.add_edge(START, "plan")
    built.add_conditional_edges(
        "plan", lambda s: [Send("leaf", {"n": n}) for n in range(100)], ["leaf"]
    )
    built.add_edge("leaf", "join")
    built.add_edge("join", END)
    end, took = _run(built.compile(checkpointer=saver), {"numbers": [], "total": -1})
    assert sorted(seen) == list(range(100)), "a leaf was lost or worked on twice"
    assert end["total"] == sum(range(100))
    return took


def w4_die(steps: int) -> dict[str, Any]:
    """Run until this many steps are durable, then be killed. Prints before that the run
    and the seconds of its steps.
    """
    stamps = here.Stamps([])
    thread = str(uuid.uuid4())

    def step(number: int) -> None:
        stamps.step(number)
        if number == steps + 1:
            last_words({"run": thread, **stamps.facts(number)})

    _loop(LONG, step).invoke(
        {"number": 0, "body": ""}, _config(thread), durability="sync"
    )
    raise AssertionError("the process should be dead")


def w4_resume(run: str, after: int) -> dict[str, Any]:
    """Go on with a dead one's thread; be killed after one more step."""
    w1(3)
    # Compiling is not counted, as it is not for us.
    watched: list[here.Resumed] = []
    graph = _loop(LONG, lambda number: watched[0].step(number))
    watched.append(here.Resumed(after, last_words))
    graph.invoke(None, _config(run), durability=DURABILITY)
    raise AssertionError("the process should be dead")


def w5_list(run: str) -> dict[str, Any]:
    """Milliseconds to list the last 50 checkpoints."""
    graph = _loop(LONG, lambda number: None)
    states = list(graph.get_state_history(_config(run), limit=50))
    assert len(states) == 50
    took = here.milliseconds(
        lambda: list(graph.get_state_history(_config(run), limit=50))
    )
    return {"ms": took, "newest": states[0].metadata["step"]}


class Proposals(TypedDict):
    proposed: int


_began: list[int] = []


def _propose(state: Proposals) -> dict[str, Any]:
    _began.append(time.monotonic_ns())
    assert interrupt(state["proposed"]) == "approve"
    return {"proposed": state["proposed"] + 1}


def _asking() -> Any:
    built = StateGraph(Proposals)
    built.add_node("propose", _propose)
    built.add_edge(START, "propose")
    built.add_edge("propose", "propose")
    return built.compile(checkpointer=saver)


def w6_start(log: str) -> dict[str, Any]:
    """Start a thread that asks again after each approval. There is no worker: this
    process does it all.
    """
    thread = str(uuid.uuid4())
    _asking().invoke({"proposed": 0}, _config(thread), durability=DURABILITY)
    return {"run": thread}


def w6_cycle(run: str, log: str, number: int) -> dict[str, Any]:
    """Approve, which runs the node's code at once, up to the next interrupt."""
    graph = _asking()
    _began.clear()
    decided = time.monotonic_ns()
    end = graph.invoke(Command(resume="approve"), _config(run), durability=DURABILITY)
    assert end["proposed"] == number, "a proposal was made twice, or none"
    return {"ms": (_began[0] - decided) / 1e6}
