"""Countersign as a contender: W1 to W5 through its public API, in this process."""

import time
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch
from uuid import UUID

from django.db import connection

from bench import graphs
from bench.contenders.here import Resumed, Stamps, milliseconds
from bench.contenders.ours_forks import w9, w9_blame, w9_history
from bench.contenders.ours_pages import w10_start, w10_view
from bench.contenders.ours_reviews import w11
from bench.contenders.ours_size import w8, w8_fill, w8_step
from bench.contenders.ours_workers import w6_cycle, w6_start, w7, workers_ready
from bench.contenders.serve import last_words
from bench.counting import connections, fetched
from checkpoints import timeline
from checkpoints.db.clock import db_now
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.engine.values import canonical
from orchestrator.execution import commit

__all__ = [
    "w6_cycle",
    "w6_start",
    "w7",
    "w8",
    "w8_fill",
    "w8_step",
    "w9",
    "w9_blame",
    "w9_history",
    "w10_start",
    "w10_view",
    "w11",
    "workers_ready",
]


def close() -> None:
    """Release what the process holds, at its end."""
    connection.close()


def counts() -> dict[str, Any]:
    """Statements so far; SQLite only, where BENCH_COUNT is set."""
    return dict(connections.counted)


def w1(steps: int, *, waited: bool = False) -> dict[str, Any]:
    """Time a run of so many supersteps, from its start to its end. `waited`: each
    commit is certain before the next superstep begins.
    """
    seen: list[int] = []
    graphs.watch.step = seen.append
    # No setting has the next superstep of pure nodes wait for the commit.
    waiting = patch.object(commit, "_may_overlap", return_value=False)
    cpu = time.process_time()
    begun = time.perf_counter()
    with waiting if waited else nullcontext():
        run = runs.advance(runs.start("bench_w1", {"steps": steps}).id)
    took = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    assert seen == list(range(1, steps + 1)), "a step was lost or worked on twice"
    _assert_finished(run, steps)
    return {"seconds": took, "cpu": cpu}


def _assert_finished(run: Run, supersteps: int) -> None:
    assert (run.status, run.superstep) == ("completed", supersteps), (
        run.status,
        run.superstep,
    )
    assert Checkpoint.objects.filter(run=run, kept=True).count() == supersteps + 1
    # A claim raises the epoch once and its beginning once more; long runs are given
    # back and claimed again.
    assert run.epoch % 2 == 0, "a run was claimed and not worked on"
    assert run.epoch <= 2 + supersteps // 100, f"{run.epoch // 2} claims"


def w2(steps: int, size: int, fill: int, marks: list[int]) -> dict[str, Any]:
    """A list that grows with each step. The seconds of each step, and bytes on disk
    after the steps in `marks`.
    """
    stamps = Stamps(marks)
    graphs.watch.step = stamps.step
    run = runs.advance(
        runs.start("bench_w2", {"steps": steps, "size": size, "fill": fill}).id
    )
    _assert_finished(run, steps + 1)
    lines = timeline.head_state(run.id)["scratch"]["lines"]
    assert len(lines) == fill + steps, "a line was lost or doubled"
    return {**stamps.facts(steps), "run": str(run.id)}


def w3(journaled: bool) -> dict[str, Any]:
    """Time a fan-out of 100 and its join, from the start to the end."""
    seen: list[int] = []
    graphs.watch.step = seen.append
    graph = "bench_w3_journaled" if journaled else "bench_w3"
    begun = time.perf_counter()
    run = runs.advance(runs.start(graph, {"leaves": 100}).id)
    took = time.perf_counter() - begun
    assert sorted(seen) == list(range(100)), "a leaf was lost or worked on twice"
    assert (run.status, run.epoch) == ("completed", 2), (run.status, run.epoch)
    return {"seconds": took}


def w4_die(steps: int) -> dict[str, Any]:
    """Run until this many steps are durable, then be killed. Prints before that the run
    and the seconds of its steps.
    """
    run = runs.start("bench_w1", {"steps": graphs.LONG})
    stamps = Stamps([])

    def step(number: int) -> None:
        stamps.step(number)
        if number == steps + 1:
            last_words({"run": str(run.id), **stamps.facts(number)})

    graphs.watch.step = step
    runs.advance(run.id)
    raise AssertionError("the process should be dead")


def w4_resume(run: str, after: int) -> dict[str, Any]:
    """Go on with a dead one's run as soon as its lease has expired; be killed after one
    more step.
    """
    w1(3)
    expired = Run.objects.filter(id=UUID(run), lease_until__lt=db_now())
    while not expired.exists():
        time.sleep(0.02)
    graphs.watch.step = Resumed(after, last_words).step
    runs.advance(run)
    raise AssertionError("the process should be dead")


def w5_list(run: str) -> dict[str, Any]:
    """Milliseconds to list the last 50 checkpoints."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    checkpoints = timeline.list_checkpoints(UUID(run), limit=50)
    newest = checkpoints[0].seq
    assert [checkpoint.seq for checkpoint in checkpoints] == list(
        range(newest, newest - 50, -1)
    ), "the list is not the newest 50"
    return {
        "ms": milliseconds(lambda: timeline.list_checkpoints(UUID(run), limit=50)),
        "newest": newest,
    }


def w5_read(run: str, seq: int) -> dict[str, Any]:
    """Milliseconds to read the state at a checkpoint, the bytes that came for it, and
    those of the state.
    """
    (checkpoint,) = Checkpoint.objects.filter(run=UUID(run), seq=seq).values_list(
        "id", flat=True
    )
    state = timeline.state_at(checkpoint)
    assert state["scratch"]["number"] == _number(run, seq), (
        "another state than that of the checkpoint"
    )
    with fetched.counting() as counted:
        timeline.state_at(checkpoint)
    assert counted.bytes, "nothing was read"
    size = len(canonical.encode(state))
    ratio = counted.bytes / size
    return {
        "ms": milliseconds(lambda: timeline.state_at(checkpoint)),
        "read": counted.bytes,
        "state": size,
        "ratio": ratio,
    }


def _number(run: str, seq: int) -> int:
    """The loop of W1 counts from the first superstep, that of W2 from the second."""
    return seq - (Run.objects.values_list("graph", flat=True).get(id=run) == "bench_w2")
