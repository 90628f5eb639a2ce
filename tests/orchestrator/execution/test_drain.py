"""A worker that drains begins nothing, and costs the run nothing."""

import time
from functools import partial
from typing import Any

import pytest

from checkpoints.core.status import Status
from orchestrator import runs
from orchestrator.engine import END, START, Send
from tests.support.small_graphs import graph, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_worker_that_is_asked_to_drain_before_it_began_starts_no_superstep() -> None:
    flow = graph("drained-at-once")
    calls = []

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> None:
        calls.append(ctx.attempt)

    flow.edge(START, "send")
    flow.edge("send", END)
    run = slice_of(started(flow), draining=lambda: True)
    assert run.status == Status.QUEUED
    assert calls == []
    assert runs.advance(run.id).status == Status.COMPLETED


def _more_than(calls: list[int], n: int) -> bool:
    return len(calls) > n


def test_drains_do_not_count_towards_poison(configure: Any) -> None:
    configure(GRACE_SECONDS=0)
    flow = graph("drained-often")
    calls = list[int]()

    @flow.node()
    def slow(state: Any, ctx: Any) -> None:
        calls.append(1)
        time.sleep(0.4 if len(calls) < 8 else 0)

    flow.edge(START, "slow")
    flow.edge("slow", END)
    run = started(flow)
    for n in range(7):
        slice_of(run, draining=partial(_more_than, calls, n))
        assert run.status == Status.QUEUED
        assert run.claims_since_progress == 0
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_drained_fan_out_gives_its_run_back_after_the_tasks_that_are_under_way(
    configure: Any,
) -> None:
    configure(GRACE_SECONDS=60)
    flow = graph("drained-wide")
    calls = list[int]()

    @flow.node(sends=["leaf"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(100)]

    @flow.node()
    def leaf(state: Any, ctx: Any) -> None:
        calls.append(ctx.payload)
        time.sleep(0.3)

    flow.edge(START, "split")
    flow.edge("leaf", END)
    begun = time.monotonic()
    run = slice_of(started(flow), draining=lambda: bool(calls))
    assert run.status == Status.QUEUED
    assert len(calls) <= 32
    assert time.monotonic() - begun < 20
