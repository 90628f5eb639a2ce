"""Countersign as a contender where other processes do the work: W6 and W7. Workers run
beside this process.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Max, Min

from approvals import reviews
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run, Worker
from orchestrator import runs

PATIENCE = 120.0


def workers_ready() -> dict[str, Any]:
    """Wait until a worker has registered."""
    _until(lambda: Worker.objects.filter(stopped_at=None).exists())
    return {}


def w6_start(log: str) -> dict[str, Any]:
    """Start a run whose gate opens again after each approval, and wait until it asks
    for the first time.
    """
    get_user_model().objects.get_or_create(username="reviewer")
    run = runs.start("bench_w6", {"log": log})
    _paused(run.id)
    return {"run": str(run.id)}


def w6_cycle(run: str, log: str, number: int) -> dict[str, Any]:
    """Approve what is asked, wait for the node's code in the worker and for the next
    pause. `number` from 1.
    """
    user = get_user_model().objects.get(username="reviewer")
    (row,) = pending_writes.newest(
        PendingWrite.objects.filter(run=UUID(run), visit=number)
    )
    reviews.sign(
        run,
        [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}],
        by=user,
    )
    committed = time.monotonic_ns()
    lines = _until(lambda: _lines(log, number + 1))
    began, content = lines[-1].split()
    assert int(content) == number, "a proposal was made twice, or none"
    _paused(run)
    return {"ms": max(0.0, (int(began) - committed) / 1e6)}


def _lines(log: str, number: int) -> list[str]:
    lines = Path(log).read_text().splitlines()
    return lines if len(lines) >= number else []


def _paused(run: Any) -> None:
    _until(lambda: Run.objects.values_list("status", flat=True).get(id=run) == "paused")


def w7(number: int, log: str) -> dict[str, Any]:
    """Start runs of five steps at once, and wait until workers have ended them. Seconds
    from the first start to the last end.
    """
    begun = time.perf_counter()
    with transaction.atomic():
        mine = [
            runs.start("bench_w7", {"log": log, "number": n}).id for n in range(number)
        ]
    ours = Run.objects.filter(id__in=mine)
    # The file first: who asks the database for hundreds of runs a hundred times a
    # second measures himself.
    _until(lambda: _size(log) >= 5 * number, pause=0.01)
    _until(lambda: not ours.exclude(status="completed").exists())
    took = time.perf_counter() - begun
    steps = Counter(line.split()[1] for line in Path(log).read_text().splitlines())
    assert set(steps) == {
        f"{n}:{step}" for n in range(number) for step in range(1, 6)
    }, "a step was lost"
    assert set(steps.values()) == {1}, "a step was worked on twice"
    assert Checkpoint.objects.filter(run__in=mine, kept=True).count() == 6 * number
    epochs = ours.aggregate(least=Min("epoch"), most=Max("epoch"))
    assert epochs == {"least": 2, "most": 2}, f"a run was claimed twice: {epochs}"
    return {"seconds": took}


def _size(log: str) -> int:
    """Return how many lines there are."""
    return Path(log).read_bytes().count(b"\n") if Path(log).exists() else 0


def _until(condition: Any, *, pause: float = 0.001) -> Any:
    end = time.monotonic() + PATIENCE
    while not (result := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(pause)
    return result
