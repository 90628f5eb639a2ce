"""What a dry run and a removal cost: two queries that read each row once, flat memory,
short transactions, a steady rate beside a process that commits. In short on a few runs;
COUNTERSIGN_RETENTION_RUNS=1000000 counts so many on PostgreSQL, and
COUNTERSIGN_RETENTION_PRUNED=100000 removes of so many. Times are printed; what is
asserted is counted.
"""

import json
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints import retention
from checkpoints.models import Checkpoint, Run
from checkpoints.retention import dry_runs, prune_job, stretches
from checkpoints.verification import verify_run
from orchestrator.jobs import kinds
from tests.support.bulk_runs import bare, cloned
from tests.support.histories import faults, long_run, policy, short_run
from tests.support.live_commits import LiveCommits, live_commits
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
COUNTED = int(os.environ.get("COUNTERSIGN_RETENTION_RUNS", "300"))
PRUNED = int(os.environ.get("COUNTERSIGN_RETENTION_PRUNED", "30"))
FLAT = 2**21
"""Bytes of Python's own that counting may take, whatever the number of rows."""
RULES: list[dict[str, Any]] = [
    {
        "keep_last": 1,
        "max_age_days": {"failed": 90},
        "remove_runs_after_days": {"cancelled": 1},
    },
    {"keep_last": None, "max_age_days": {}, "remove_runs_after_days": {"completed": 0}},
]


@pytest.fixture
def many() -> int:
    """Make this many runs of three checkpoints each."""
    template = short_run("counted")
    if connection.vendor == "postgresql":
        bare(template, COUNTED, graph="counted")
        # The plan must not depend on whether the server has counted the rows yet.
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE checkpoints_run, checkpoints_checkpoint")
    else:
        cloned(template, min(COUNTED, 300))
    return Run.objects.filter(graph="counted").count()


def of_checkpoints(sent: CaptureQueriesContext) -> list[str]:
    return [
        query["sql"]
        for query in sent.captured_queries
        if "checkpoints_checkpoint" in query["sql"]
    ]


def test_counting_takes_two_queries_and_flat_memory(many: int) -> None:
    for fields, going in zip(RULES, (2, 3), strict=True):
        rule = policy("counted", **fields)
        tracemalloc.start()
        began = time.perf_counter()
        with CaptureQueriesContext(connection) as sent:
            counts = retention.dry_run(rule)
        took = time.perf_counter() - began
        (_, most) = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        load = os.getloadavg()[0]
        print(
            f"dry run of {many} runs: {took:.2f} s, {most / 2**20:.2f} MiB of Python's"
            f" own, load {load:.1f}"
        )
        assert counts.counts["checkpoints"] == going * many
        assert counts.counts["kept"] == (3 - going) * many
        assert len(of_checkpoints(sent)) == 2
        assert most < FLAT


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'",
    reason="SQLite tells of no plan how many rows it read",
)
@pytest.mark.parametrize("fields", RULES, ids=["points", "runs"])
def test_counting_reads_each_row_once_and_sorts_none(
    fields: dict[str, Any], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = policy("counted", **fields)
    # As if they were a million.
    monkeypatch.setattr(dry_runs, "FEW_RUNS", 0)
    with CaptureQueriesContext(connection) as sent:
        retention.dry_run(rule)
    [set_up, query] = [
        query["sql"]
        for query in sent.captured_queries
        if query["sql"].startswith("SELECT")
    ][-3:-1]
    assert "set_config" in set_up
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(set_up)
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}")
        [[answer]] = cursor.fetchall()
        cursor.execute("ROLLBACK")
    nodes = list(
        _nodes((json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"])
    )
    read = sum(
        node["Actual Rows"] * node["Actual Loops"]
        for node in nodes
        if "Relation Name" in node
    )
    print(f"rows read of {many} runs and {3 * many} checkpoints: {read:.0f}")
    assert 4 * many <= read <= 4.1 * many + 100
    assert not [
        node
        for node in nodes
        if node["Node Type"] == "Sort" and node["Actual Rows"] > many / 2
    ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def test_removing_goes_at_a_steady_rate_beside_a_process_that_commits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cloned(short_run("removed"), PRUNED - 1)
    took: list[float] = []
    ends: list[float] = []
    sizes: list[int] = []
    remove = prune_job.remove_stretch

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        removed = remove(*args, **kwargs)
        ends.append(time.monotonic())
        took.append(ends[-1] - began)
        sizes.append(removed.count if removed else 0)
        return removed

    monkeypatch.setattr(prune_job, "remove_stretch", timed)
    job = retention.prune(policy("removed", keep_last=1), by=None)
    with live_commits(tmp_path) as live:
        alone = time.monotonic()
        time.sleep(min(10.0, PRUNED / 30))
        began = time.monotonic()
        while (row := kinds.advance(job.id)).status not in ("done", "failed"):
            pass
        _tell(live, alone, began, took, ends)
        assert live.lock_waits() == 0
    assert row.status == "done"
    assert row.progress["done"] == 2 * PRUNED
    assert sum(sizes) == 2 * PRUNED
    assert max(sizes) <= stretches.MOST
    assert Checkpoint.objects.filter(run__graph="removed").count() == PRUNED
    for run in Run.objects.filter(graph="removed").order_by("?")[:20]:
        assert verify_run(run.id) == []


def _tell(
    live: LiveCommits, alone: float, began: float, took: list[float], ends: list[float]
) -> None:
    done = time.monotonic()
    tenths = [ends[(n + 1) * len(ends) // 10 - 1] for n in range(10)]
    rates = [
        2 * len(ends) / 10 / (b - a)
        for a, b in zip([began, *tenths], tenths, strict=False)
    ]
    before = live.longest(alone, began)
    during = live.longest(began, done)
    late = sorted(took)[-max(1, len(took) // 100)]
    print(
        f"removed {2 * len(ends)} checkpoints of {len(ends)} runs in {done - began:.1f} s"
    )
    listed_rates = ", ".join(f"{rate:.0f}" for rate in rates)
    print(
        f"checkpoints a second, by tenths: {listed_rates}: last {rates[-1] / rates[0]:.2f} × first"
    )
    print(
        f"transactions: longest {max(took) * 1000:.1f} ms, 99 % within {late * 1000:.1f} ms"
    )
    print(
        f"longest superstep of the other process: {before[0] * 1000:.1f} ms of {before[1]} before,"
        f" {during[0] * 1000:.1f} ms of {during[1]} beside the removal; load"
        f" {os.getloadavg()[0]:.1f};"
        f" {live.lock_waits()} waits for a lock of more than 100 ms"
    )


def test_a_removal_locks_one_run_at_a_time_and_for_one_piece() -> None:
    cloned(short_run("locked"), 4)
    job = retention.prune(policy("locked", keep_last=1), by=None)
    with counted() as sent:
        assert kinds.advance(job.id).status == "done"
    transactions = "\n".join(sent).split('DELETE FROM "checkpoints_checkpoint"')
    assert len(transactions) == 5 + 1
    if connection.vendor == "postgresql":
        assert [
            transaction.count("FOR UPDATE") for transaction in transactions[:-1]
        ] == [
            2,
            1,
            1,
            1,
            1,
        ], "the job is taken, then each run"


@pytest.mark.parametrize(("anchored", "wanted"), [(False, 15), (True, 23)])
def test_a_stretch_takes_so_many_statements_and_is_looked_for_under_the_lock_first(
    anchored: bool, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine the job's progress is told in between.
    monkeypatch.setattr(prune_job, "EVERY_SECONDS", float("inf"))

    def sent_of(runs: int) -> int:
        graph = f"sent_{runs}"
        cloned(long_run(graph) if anchored else short_run(graph), runs - 1)
        job = retention.prune(policy(graph, keep_last=1), by=None)
        with counted() as sent:
            assert kinds.advance(job.id).status == "done"
        return len([query for query in sent if not query.startswith("BEGIN")])

    assert (sent_of(4) - sent_of(2)) / 2 == wanted
    assert faults() == []
