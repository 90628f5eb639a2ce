"""Many runs that change one trace at once: each change lands on what it was made on, so
none is lost.
"""

import threading
from typing import Any

import pytest
from django.db import connections

from checkpoints.core.status import Status
from checkpoints.models import MemoryLanding
from orchestrator import runs
from tests.support.memory_graphs import chain, memory, versions

pytestmark = pytest.mark.django_db(transaction=True)
RUNS = 24
WORKERS = 4


def _at_once(work: Any) -> None:
    def closing() -> None:
        try:
            work()
        finally:
            connections.close_all()

    threads = [threading.Thread(target=closing) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)


@pytest.mark.parametrize("mode", ["live", "snapshot", "journaled"])
def test_no_change_is_lost_where_many_runs_count_on_one_key_at_once(mode: str) -> None:
    def add(state: Any, ctx: Any) -> None:
        trace = ctx.memory.get("count", "facts")
        ctx.memory.put("count", (trace.content if trace else 0) + 1, "facts")
        ctx.memory.put(f"mine {ctx.key}", 1, "facts")

    flow = chain("counting", add, memory=mode)
    waiting = [runs.start(flow.name, {}, key=f"R{n}").id for n in range(RUNS)]
    started = list(waiting)

    def work() -> None:
        while waiting:
            try:
                run = waiting.pop()
            except IndexError:
                return
            runs.advance(run)

    _at_once(work)
    assert {runs.get(run).status for run in started} == {Status.COMPLETED}
    assert memory()["facts/count"] == versions()["facts/count"] == RUNS
    assert MemoryLanding.objects.count() == 2 * RUNS


def test_two_runs_that_change_two_keys_in_either_order_do_not_block_each_other() -> (
    None
):
    def forth(state: Any, ctx: Any) -> None:
        for key in ("a", "b"):
            ctx.memory.put(key, ctx.key, "facts")

    def back(state: Any, ctx: Any) -> None:
        for key in ("b", "a"):
            ctx.memory.put(key, ctx.key, "facts")

    made = [chain("forth", forth), chain("back", back)]
    started = [runs.start(made[n % 2].name, {}).id for n in range(RUNS)]
    waiting = list(started)

    def work() -> None:
        while waiting:
            try:
                run = waiting.pop()
            except IndexError:
                return
            runs.advance(run)

    _at_once(work)
    assert {runs.get(run).status for run in started} == {Status.COMPLETED}
    assert versions() == {"facts/a": RUNS, "facts/b": RUNS}
