"""LangGraph with its own checkpointers as a contender: durable after each superstep (`durability="sync"`)."""

import operator
import sqlite3
import time
import uuid
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from bench.bodies import KILOBYTES, line
from bench.contenders import here
from bench.counting import connections

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
    _links.append(psycopg.connect(here.dsn(), autocommit=True, prepare_threshold=0, row_factory=dict_row))
    return PostgresSaver(_links[0])


saver = _saver()
saver.setup()


def close() -> None:
    """The end of the process."""
    for link in _links:
        link.close()


def counts() -> dict[str, Any]:
    """Statements so far; SQLite only, where BENCH_COUNT is set."""
    return dict(connections.counted)


def _run(graph: Any, state: dict[str, Any], *, limit: int) -> tuple[dict[str, Any], dict[str, Any]]:
    config = {"configurable": {"thread_id": str(uuid.uuid4())}, "recursion_limit": limit}
    cpu, begun = time.process_time(), time.perf_counter()
    state = graph.invoke(state, config, durability="sync")
    return state, {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}


class Blob(TypedDict):
    number: int
    body: str


def w1(steps: int) -> dict[str, Any]:
    """A loop of so many supersteps, from the call to the end."""
    seen: list[int] = []

    def step(state: Blob) -> dict[str, Any]:
        number = state["number"] + 1
        seen.append(number)
        return {"number": number, "body": KILOBYTES[number % 64]}

    built = StateGraph(Blob)
    built.add_node("step", step)
    built.add_edge(START, "step")
    built.add_conditional_edges("step", lambda s: "step" if s["number"] < steps else END, ["step", END])
    end, took = _run(built.compile(checkpointer=saver), {"number": 0, "body": ""}, limit=steps + 5)
    assert seen == list(range(1, steps + 1))
    assert end["number"] == steps
    return took


class Lines(TypedDict):
    lines: Annotated[list[str], operator.add]
    number: int


def w2(steps: int, size: int, fill: int, marks: list[int]) -> dict[str, Any]:
    """A list that grows with each step. The seconds of each step, and bytes on disk after the steps in `marks`."""
    stamps = here.Stamps(marks)

    def append(state: Lines) -> dict[str, Any]:
        number = state["number"] + 1
        stamps.step(number)
        return {"lines": [line(number, size)], "number": number}

    built = StateGraph(Lines)
    built.add_node("append", append)
    built.add_edge(START, "append")
    built.add_conditional_edges("append", lambda s: "append" if s["number"] < steps else END, ["append", END])
    state = {"lines": [line(-n, 1024) for n in range(fill)], "number": 0}
    end, _ = _run(built.compile(checkpointer=saver), state, limit=steps + 5)
    assert len(end["lines"]) == fill + steps
    return stamps.told(steps)


class Gathered(TypedDict):
    found: Annotated[list[int], operator.add]
    total: int


def w3(journaled: bool) -> dict[str, Any]:
    """A fan-out of 100 and its join; each leaf is durable on its own in any case."""
    seen: list[int] = []

    def leaf(state: dict[str, int]) -> dict[str, Any]:
        seen.append(state["n"])
        return {"found": [state["n"]]}

    built = StateGraph(Gathered)
    built.add_node("plan", lambda state: {})
    built.add_node("leaf", leaf)
    built.add_node("join", lambda state: {"total": sum(state["found"])})
    built.add_edge(START, "plan")
    built.add_conditional_edges("plan", lambda s: [Send("leaf", {"n": n}) for n in range(100)], ["leaf"])
    built.add_edge("leaf", "join")
    built.add_edge("join", END)
    end, took = _run(built.compile(checkpointer=saver), {"found": [], "total": -1}, limit=25)
    assert sorted(seen) == list(range(100))
    assert end["total"] == sum(range(100))
    return took
