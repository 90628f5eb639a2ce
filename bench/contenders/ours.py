"""Countersign as a contender: the workloads through its public API, in this process."""

import time
from typing import Any

from django.db import connection

from bench import graphs
from bench.counting import connections
from checkpoints.models import Checkpoint, Run
from orchestrator import runs


def close() -> None:
    """The end of the process."""
    connection.close()


def counts() -> dict[str, Any]:
    """Statements so far; SQLite only, where BENCH_COUNT is set."""
    return dict(connections.counted)


def w1(steps: int) -> dict[str, Any]:
    """A run of so many supersteps, from its claim to its end."""
    seen: list[int] = []
    graphs.watch.step = seen.append
    run = runs.start("bench_w1", {"steps": steps})
    cpu, begun = time.process_time(), time.perf_counter()
    run = runs.advance(run.id)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    _assert_each_once(run, seen, steps)
    return {"seconds": took, "cpu": cpu}


def _assert_each_once(run: Run, seen: list[int], steps: int) -> None:
    assert seen == list(range(1, steps + 1)), "a step was lost or worked on twice"
    assert (run.status, run.superstep) == ("completed", steps), (run.status, run.superstep)
    assert Checkpoint.objects.filter(run=run, kept=True).count() == steps + 1
    # Each claim raises the epoch once and each beginning once more; long runs are given back and claimed again.
    assert run.epoch % 2 == 0
    assert run.epoch <= 2 + run.superstep // 100, f"{run.epoch // 2} claims"


def w3(journaled: bool) -> dict[str, Any]:
    """A fan-out of 100 and its join, from the claim to the end."""
    seen: list[int] = []
    graphs.watch.step = seen.append
    run = runs.start("bench_w3_journaled" if journaled else "bench_w3", {"leaves": 100})
    begun = time.perf_counter()
    run = runs.advance(run.id)
    took = time.perf_counter() - begun
    assert sorted(seen) == list(range(100)), "a leaf was lost or worked on twice"
    assert (run.status, run.epoch) == ("completed", 2), (run.status, run.epoch)
    return {"seconds": took}
