"""W9 through the public API: forks from the middle of histories, and bare starts, each
with its first step.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any
from uuid import UUID, uuid4

from django.db import connection

from bench.bench import in_turn
from bench.contenders.here import milliseconds
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator import runs


def w9_history(steps: int) -> dict[str, Any]:
    """Return a run that took so many supersteps."""
    run = runs.advance(runs.start("bench_w1", {"steps": steps}).id)
    assert (run.status, run.superstep) == ("completed", steps), (
        run.status,
        run.superstep,
    )
    return {"run": str(run.id)}


def w9(short: str, long: str, times: int) -> dict[str, Any]:
    """Milliseconds of a fork from the middle of the short history, of the long one, and
    of a bare start, each with its first step; and as `fork` those of the fork of the
    long one alone.
    """
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    acts: dict[str, Callable[[], Run]] = {
        "short": _forks(short),
        "long": _forks(long),
        "start": _started,
    }
    took = defaultdict(list)
    for round_number in range(times):
        for name in in_turn(list(acts), round_number):
            begun = time.perf_counter()
            run = acts[name]()
            alone = time.perf_counter() - begun
            run = runs.advance(run.id)
            took[name].append(1000 * (time.perf_counter() - begun))
            assert run.status == "completed", run.status
            if name == "long":
                took["fork"].append(1000 * alone)
    return {name: median(times) for name, times in took.items()}


def w9_blame(run: str) -> dict[str, Any]:
    """Milliseconds to find the checkpoint that set a value in the first step."""
    newest = Checkpoint.objects.filter(run=UUID(run)).order_by("-seq")[0]
    blame = timeline.blame(newest.id, "scratch.first")
    assert blame.checkpoint.seq == 1, blame.checkpoint.seq
    return {"blame": milliseconds(lambda: timeline.blame(newest.id, "scratch.first"))}


def _forks(history: str) -> Callable[[], Run]:
    """Return what forks a history from its middle, patched so that one step is left."""
    run = runs.get(UUID(history))
    middle = Checkpoint.objects.get(run=run.id, seq=run.superstep // 2)

    def fork() -> Run:
        new_run = runs.fork(
            middle.id,
            patch={"scratch": {"number": run.superstep - 1}},
            key=f"fork-{uuid4()}",
        )
        assert new_run.superstep == middle.superstep, "the fork began elsewhere"
        return new_run

    return fork


def _started() -> Run:
    return runs.start("bench_w1", {"steps": 1})
