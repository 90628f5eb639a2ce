"""Measures the stored history: runs, checkpoints and bytes of each graph, by age."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q, Sum
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from checkpoints.models import Checkpoint, Job
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step

AGES = (7, 30, 90)
"""The ages in days by which bytes are divided."""


def stock(*, now: datetime | None = None) -> list[dict[str, Any]]:
    """Return {graph, runs, checkpoints, bytes, ages} of each graph, the largest first.
    `ages` are the bytes of checkpoints younger than a week, a month, three months, and
    older. One query over columns.
    """
    counts = {
        # Each run has one head, so the heads among the checkpoints are its runs.
        "runs": Count("id", filter=Q(id=F("run__head"))),
        "checkpoints": Count("id"),
        "bytes": Sum("stored_size"),
    }
    ages = _sums_by_age(now or timezone.now())
    by_graph = Checkpoint.objects.order_by().values("run__graph")
    rows: Any = by_graph.annotate(**counts, **ages)
    graphs = []
    for row in rows:
        graph = {"graph": row["run__graph"]}
        for name in counts:
            graph[name] = row[name]
        # The database has no sum of no rows.
        graph["ages"] = [row[name] or 0 for name in ages]
        graphs.append(graph)
    return sorted(graphs, key=_by_size)


def _sums_by_age(now: datetime) -> dict[str, Sum]:
    """Return the sums of bytes of each age, the youngest first."""
    sums = {}
    end = None
    for number, days in enumerate(AGES):
        begin = now - timedelta(days=days)
        sums[f"age{number}"] = Sum(
            "stored_size",
            filter=_between(begin, end),
        )
        end = begin
    # Everything older than all of them.
    sums[f"age{len(AGES)}"] = Sum(
        "stored_size",
        filter=_between(None, end),
    )
    return sums


def _by_size(graph: dict[str, Any]) -> tuple[int, str]:
    return -int(graph["bytes"]), str(graph["graph"])


KIND = "measure_storage"
"""The standing job that measures once a day, for pages that must not read every
checkpoint.
"""


def measure_storage(lease: JobLease) -> Iterator[Step]:
    """Measure the stock and keep it in the row of the job."""
    now = timezone.now()
    facts = {"at": now.isoformat(), "rows": stock(now=now)}
    jobs.change_facts(lease, facts)
    yield Step(len(facts["rows"]), note="graphs measured")


def measured_stock() -> dict[str, Any]:
    """Return {at, rows}: when the stock was last measured, None if never, and its rows
    as `stock` returns them.
    """
    standing_jobs = Job.objects.filter(kind=KIND, status__in=LIVE)
    facts = standing_jobs.values_list("facts", flat=True).first() or {}
    measured_at = None
    if "at" in facts:
        measured_at = parse_datetime(facts["at"])
    return {
        "at": measured_at,
        "rows": facts.get("rows", []),
    }


def _between(begin: datetime | None, end: datetime | None) -> Q:
    span = Q()
    if begin:
        span &= Q(created_at__gte=begin)
    if end:
        span &= Q(created_at__lt=end)
    return span
