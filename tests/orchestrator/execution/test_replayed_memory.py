"""Replays and memory: what a task read is compared with what it would find now, and
named where that is another.
"""

from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.models import MemoryTrace, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Send, Write
from tests.support import cast, run_actions
from tests.support.small_graphs import graph, registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
PLACE = "what is known"
WORDS = {"now": "blue"}


def remember(content: str, key: str = "k") -> None:
    """A run that remembers this."""
    flow = graph("remembering")
    flow.node("keep")(lambda state, ctx: ctx.memory.put(key, content, PLACE))
    flow.edge(START, "keep")
    flow.edge("keep", END)
    assert (
        runs.advance(runs.start(registered(flow).name, {}).id).status
        == Status.COMPLETED
    )


def reading(effect: str, mode: str = "live", how: str = "get", **options: Any) -> Graph:
    """look (of that effect) reads memory, beside it other (pure) -> END"""
    flow = graph(f"reading_{effect}_{mode}_{how}", memory=mode)

    def look(state: Any, ctx: Any) -> Any:
        trace = (
            ctx.memory.get("k", PLACE)
            if how == "get"
            else next(iter(ctx.memory.search("blue", PLACE, 3)), None)
        )
        return [Write("letter", str(trace.content if trace else None))]

    flow.node("look", effect=effect, **options)(look)
    flow.node("other")(lambda state, ctx: {"notes": ["other"]})
    for name in ("look", "other"):
        flow.edge(START, name)
        flow.edge(name, END)
    return registered(flow)


def origin_of(flow: Graph) -> Run:
    return runs.advance(runs.start(flow.name, {}).id)


def replayed(run: Run) -> tuple[Run, list[dict[str, Any]]]:
    replay = runs.advance(runs.replay(f"{run.key}:initial").id)
    assert replay.status == Status.COMPLETED
    assert list(verify_run(replay.id)) == []
    diverged: list[dict[str, Any]] = runs.replay_report(replay.id)["diverged"]
    return replay, diverged


@pytest.mark.parametrize("how", ["get", "search"])
def test_a_recorded_outcome_is_not_taken_where_the_task_would_find_something_else_in_memory(
    how: str,
) -> None:
    remember("blue")
    run = origin_of(reading("external", how=how, idempotent=True))
    replay, diverged = replayed(run)
    assert run_actions.state(replay)["letter"] == "blue"
    assert diverged == []
    remember("blue and red")
    replay, diverged = replayed(run)
    place = f"memory.{PLACE}.k" if how == "get" else f"memory.{PLACE}"
    assert diverged == [{"task": "look:1:0", "why": "other_memory", "path": place}]
    assert run_actions.state(replay)["letter"] == ""
    assert run_actions.state(replay)["notes"] == ["other"]


@pytest.mark.parametrize("effect", ["pure", "read"])
def test_a_task_that_runs_again_on_other_memory_is_named_and_goes_on(
    effect: str,
) -> None:
    remember("blue")
    run = origin_of(reading(effect))
    assert replayed(run)[1] == []
    remember("red")
    replay, diverged = replayed(run)
    assert diverged == [
        {"task": "look:1:0", "why": "other_memory", "path": f"memory.{PLACE}.k"}
    ]
    assert run_actions.state(replay)["letter"] == "red"


def test_a_task_that_searched_for_a_secret_sees_what_it_saw(configure: Any) -> None:
    remember("blue")
    configure(SECRETS={"token": "hush-hush"})
    flow = graph("searching_for_a_secret", memory="snapshot")

    def look(state: Any, ctx: Any) -> Any:
        traces = ctx.memory.search("blue hush-hush", PLACE)
        return {"notes": [trace.content for trace in traces]}

    flow.node("look")(look)
    flow.edge(START, "look")
    flow.edge("look", END)
    run = origin_of(registered(flow))
    MemoryTrace.objects.all().delete()
    replay, diverged = replayed(run)
    assert run_actions.state(replay)["notes"] == ["blue"]
    assert diverged == []


@pytest.mark.parametrize("mode", ["snapshot", "journaled"])
def test_in_the_other_modes_a_task_sees_what_it_saw(mode: str) -> None:
    remember("blue")
    kept = [
        origin_of(reading("external", mode, idempotent=True)),
        origin_of(reading("pure", mode)),
    ]
    remember("red")
    for run in kept:
        replay, diverged = replayed(run)
        assert run_actions.state(replay)["letter"] == "blue"
        assert diverged == []


def test_a_proposal_is_compared_as_well(people: cast.People) -> None:
    remember("blue")
    run = origin_of(reading("human", gate=Gate(reviewers=["group:claims"])))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert replayed(run)[1] == []
    MemoryTrace.objects.filter(key="k").delete()
    assert [one["why"] for one in replayed(run)[1]] == ["other_memory"]


def test_what_the_replay_itself_remembers_otherwise_counts() -> None:
    WORDS["now"] = "blue"
    flow = graph("own_memory")
    flow.node("keep")(lambda state, ctx: ctx.memory.put("own", WORDS["now"], PLACE))

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [ctx.memory.get("own", PLACE).content]}

    flow.node("pay", effect="external", idempotent=True)(pay)
    for source, target in ((START, "keep"), ("keep", "pay"), ("pay", END)):
        flow.edge(source, target)
    run = origin_of(registered(flow))
    assert replayed(run)[1] == []
    WORDS["now"] = "red"
    assert replayed(run)[1] == [
        {"task": "pay:1:0", "why": "other_memory", "path": f"memory.{PLACE}.own"}
    ]


def test_a_replay_without_memory_asks_nothing_of_it() -> None:
    flow = graph("no_memory")
    flow.node("look")(lambda state, ctx: {"notes": ["looked"]})
    flow.edge(START, "look")
    flow.edge("look", END)
    replay = runs.replay(f"{origin_of(registered(flow)).key}:initial")
    with counted() as sent:
        runs.advance(replay.id)
    assert not [query for query in sent if "memoryrecord" in query]


@pytest.mark.parametrize("how", ["get", "search"])
def test_what_the_origin_itself_remembered_behind_a_read_is_no_other_memory(
    how: str,
) -> None:
    if how == "search":
        remember("blue", "another")
    flow = graph(f"pays_once_{how}")

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        keys = (
            [trace.key for trace in ctx.memory.search("blue", PLACE, 1)]
            if how == "search"
            else ["k"]
        )
        known = ctx.memory.get("k", PLACE) if how == "get" else None
        ctx.memory.put("k", "blue blue blue", PLACE)
        return {"notes": [f"paid {known and known.content} {keys}"]}

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.branch(
        "pay",
        lambda state: "on" if len(state.notes) < 2 else "off",
        {"on": "pay", "off": END},
    )
    flow.edge(START, "pay")
    run = origin_of(registered(flow))
    assert run.status == Status.COMPLETED
    again, diverged = replayed(run)
    assert diverged == []
    assert run_actions.state(again)["notes"] == run_actions.state(run)["notes"]
    # Whoever else changes it is seen, before and behind the origin's own.
    remember("blue blue and red")
    assert [one["why"] for one in replayed(run)[1]] == ["other_memory"]


@pytest.mark.parametrize("tasks", [2, 6])
def test_what_tasks_read_is_compared_without_reading_memory_once_more(
    tasks: int,
) -> None:
    flow = graph(f"readers_{tasks}")
    flow.node("plan", sends="look")(
        lambda state, ctx: [Send("look", n) for n in range(tasks)]
    )
    flow.node("look", effect="read")(
        lambda state, ctx: {"notes": [ctx.memory.get("k", PLACE).content]}
    )
    flow.edge(START, "plan")
    flow.edge("look", END)
    remember("blue")
    replay = runs.replay(f"{origin_of(registered(flow)).key}:initial")
    remember("red")
    with counted() as sent:
        runs.advance(replay.id)
    assert len([query for query in sent if "memoryrecord" in query]) == 1
    assert len([query for query in sent if "memorytrace" in query]) == tasks
    assert len(runs.replay_report(replay.id)["diverged"]) == tasks
