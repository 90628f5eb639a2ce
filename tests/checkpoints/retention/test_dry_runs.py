"""What a dry run and a removal cost: two queries, flat memory, short transactions, a steady rate. In short on a few
runs; COUNTERSIGN_RETENTION_RUNS=1000000 counts so many on PostgreSQL, and removes of COUNTERSIGN_RETENTION_PRUNED.
"""

import os
import time
import tracemalloc
from typing import Any

import pytest
from django.db import connection

from checkpoints import retention
from checkpoints.models import Checkpoint, Run
from checkpoints.retention import prune_job
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.jobs import kinds
from tests.support.bulk_runs import bare, cloned
from tests.support.histories import policy
from tests.support.small_graphs import graph, started

pytestmark = pytest.mark.django_db(transaction=True)
COUNTED = int(os.environ.get("COUNTERSIGN_RETENTION_RUNS", "300"))
PRUNED = int(os.environ.get("COUNTERSIGN_RETENTION_PRUNED", "30"))
FLAT = 2**21
"""Bytes of Python's own that counting may take, whatever the number of rows."""


def a_run(name: str) -> Run:
    made = graph(name)
    made.node("a")(lambda state, ctx: {"notes": ["a"]})
    made.node("b")(lambda state, ctx: {"notes": ["b"]})
    made.edge(START, "a")
    made.edge("a", "b")
    made.edge("b", END)
    return runs.advance(started(made).id)


def test_counting_takes_two_queries_and_flat_memory(django_assert_num_queries: Any) -> None:
    template = a_run("counted")
    if connection.vendor == "postgresql":
        bare(template, COUNTED, graph="counted")
    else:
        cloned(template, min(COUNTED, 300))
    made = Run.objects.filter(graph="counted").count()
    rule = policy("counted", keep_last=1, max_age_days={"failed": 90}, remove_runs_after_days={"cancelled": 1})
    tracemalloc.start()
    began = time.perf_counter()
    with django_assert_num_queries(2):
        found = retention.dry_run(rule)
    took, (_, most) = time.perf_counter() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"dry run of {made} runs: {took:.2f} s, {most / 2**20:.2f} MiB of Python's own")
    assert found.counts == {"checkpoints": 2 * made, "runs": 0, "kept": made}
    assert most < FLAT
    assert took < 10


def test_removing_goes_at_a_steady_rate_in_short_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    template = a_run("removed")
    cloned(template, PRUNED - 1)
    took: list[float] = []
    remove = prune_job.remove_stretch

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return remove(*args, **kwargs)
        finally:
            took.append(time.perf_counter() - began)

    monkeypatch.setattr(prune_job, "remove_stretch", timed)
    job = retention.prune(policy("removed", keep_last=1), by=None)
    began, before, rates = time.perf_counter(), 0, []
    while (row := kinds.advance(job.id)).status not in ("done", "failed"):
        pass
    rates.append(int(row.progress["done"] - before) / (time.perf_counter() - began))
    longest = sorted(took)[-max(1, len(took) // 100)]
    print(f"removed {row.progress['done']} checkpoints of {PRUNED} runs: {rates[-1]:.0f} a second")
    print(f"transactions: longest {max(took) * 1000:.1f} ms, 99 % within {longest * 1000:.1f} ms")
    assert (row.status, row.progress["done"]) == ("done", 2 * PRUNED)
    assert Checkpoint.objects.filter(run__graph="removed").count() == PRUNED
    for run in Run.objects.filter(graph="removed").order_by("?")[:20]:
        assert verify_run(run.id) == []
