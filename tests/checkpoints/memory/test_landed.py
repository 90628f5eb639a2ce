"""What nodes wish to remember lands with their superstep's commit, once, on what they
read, or not at all.
"""

from typing import Any

import pytest

from checkpoints.core.status import Status
from orchestrator import runs
from orchestrator.engine import END, START, Send
from tests.support.memory_graphs import (
    chain,
    forget,
    gone,
    landed,
    memory,
    remember,
    side_by_side,
    versions,
)
from tests.support.run_actions import event_payloads, log, state
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_trace_is_there_for_every_run_with_content_strength_version_and_where_it_comes_from() -> (
    None
):
    run = remember("sky", {"colour": "blue"}, strength=0.5)
    collected = []

    def look(state: Any, ctx: Any) -> None:
        collected.append(ctx.memory.get("sky", "facts"))

    gone(chain("look", look))
    (trace,) = collected
    assert trace.content == {"colour": "blue"}
    assert trace.strength == 0.5
    assert trace.version == 1
    assert trace.run == run.id
    assert trace.node == "put"
    assert trace.superstep == 1
    assert trace.at is not None


def test_what_is_forgotten_is_gone_and_its_version_counts_on() -> None:
    remember("sky", "blue")
    run = forget("sky")
    assert memory() == {}
    assert versions() == {"facts/sky": 2}
    assert landed(run) == [("delete:1:0", 0, "sky", 2)]
    remember("sky", "grey")
    assert memory() == {"facts/sky": "grey"}
    assert versions() == {"facts/sky": 3}


def test_forgetting_what_is_not_there_is_no_error_and_lands_nothing() -> None:
    assert forget("never").status == Status.COMPLETED
    remember("sky", "blue")
    forget("sky")
    run = forget("sky")
    assert run.status == Status.COMPLETED
    assert landed(run) == []
    assert versions() == {"facts/sky": 2}


def test_each_landing_is_a_line_of_the_log_without_its_value() -> None:
    run = remember("sky", "blue")
    assert event_payloads(run, "memory_written") == [
        {"namespace": "facts", "key": "sky", "version": 1, "n": 0, "did": "added"}
    ]
    assert event_payloads(forget("sky"), "memory_deleted") == [
        {"namespace": "facts", "key": "sky", "version": 2, "n": 0, "did": "removed"}
    ]
    assert log(run).index("checkpoint_saved") < log(run).index("memory_written")


def test_memory_lands_with_the_superstep_and_not_before() -> None:
    seen: list[Any] = []

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")
        seen.append((ctx.memory.get("sky", "facts").content, memory()))

    def after(state: Any, ctx: Any) -> None:
        seen.append((ctx.memory.get("sky", "facts").content, memory()))

    gone(chain("lands", put, after))
    assert seen == [("blue", {}), ("blue", {"facts/sky": "blue"})]


def test_a_failed_superstep_lands_nothing_and_keeps_what_its_tasks_wished_for_the_resume() -> (
    None
):
    broken = [True]

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")
        calls.append("put")

    def fragile(state: Any, ctx: Any) -> None:
        if broken:
            raise RuntimeError("broken until mended")

    calls: list[str] = []
    run = gone(side_by_side("half-failed", put, fragile))
    assert run.status == Status.FAILED
    assert memory() == {}
    broken.clear()
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert memory() == {"facts/sky": "blue"}
    assert calls == ["put"]


def test_what_landed_stays_whatever_becomes_of_the_run() -> None:
    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")

    def breaks(state: Any, ctx: Any) -> None:
        raise RuntimeError("always")

    assert gone(chain("fails-later", put, breaks)).status == Status.FAILED
    assert memory() == {"facts/sky": "blue"}


def test_a_task_whose_error_takes_its_edge_remembers_nothing() -> None:
    flow = graph("error-edge")

    def breaks(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")
        raise RuntimeError("always")

    flow.node()(breaks)
    flow.node("mend")(lambda state, ctx: None)
    for source, target, when in (
        (START, "breaks", None),
        ("breaks", END, None),
        ("breaks", "mend", "error"),
    ):
        flow.edge(source, target, when=when)
    flow.edge("mend", END)
    assert gone(registered(flow)).status == Status.COMPLETED
    assert memory() == {}


def test_the_tasks_of_a_fan_out_each_remember_their_own() -> None:
    flow = graph("fans-out")

    @flow.node(sends=["leaf"])
    def spread(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(3)]

    @flow.node()
    def leaf(state: Any, ctx: Any) -> None:
        ctx.memory.put(f"leaf {ctx.payload}", ctx.payload, "facts")

    flow.edge(START, "spread")
    flow.edge("spread", END)
    flow.edge("leaf", END)
    run = gone(registered(flow))
    assert landed(run) == [(f"leaf:1:{n}", 0, f"leaf {n}", 1) for n in range(3)]


def test_a_task_whose_memory_changed_runs_again_in_the_same_superstep_on_what_is_there_now() -> (
    None
):
    remember("count", 1)
    seen: list[int] = []
    beside: list[str] = []

    def add(state: Any, ctx: Any) -> dict[str, Any]:
        trace = ctx.memory.get("count", "facts")
        seen.append(trace.content)
        if len(seen) == 1:
            remember("count", 10)
        ctx.memory.put("count", trace.content + 1, "facts")
        return {"notes": [str(trace.content)]}

    def other(state: Any, ctx: Any) -> None:
        beside.append("ran")

    run = gone(side_by_side("adds", add, other))
    assert run.status == Status.COMPLETED
    assert run.superstep == 1
    assert seen == [1, 10]
    assert beside == ["ran"]
    assert memory() == {"facts/count": 11}
    assert state(run)["notes"] == ["10"]
    assert [line["type"] for line in event_payloads(run, "retry_planned")] == [
        "MemoryConflict"
    ]


@pytest.mark.parametrize(
    "meanwhile", [lambda: remember("sky", "red"), lambda: forget("sky")]
)
def test_a_write_that_was_made_on_something_older_does_not_land(meanwhile: Any) -> None:
    remember("sky", "blue")
    tries: list[Any] = []

    def put(state: Any, ctx: Any) -> None:
        tries.append(ctx.memory.get("sky", "facts"))
        if len(tries) == 1:
            meanwhile()
        ctx.memory.put("sky", f"try {len(tries)}", "facts")

    gone(chain("put-late", put))
    assert memory() == {"facts/sky": "try 2"}
    assert len(tries) == 2


def test_two_tasks_of_one_superstep_that_change_one_key_fail_by_name_and_land_nothing() -> (
    None
):
    def first(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")

    def second(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "grey", "facts")

    run = gone(side_by_side("both", first, second))
    assert run.status == Status.FAILED
    assert run.error_code == "conflicting_writes"
    assert memory() == {}
