"""What there is to keep: runs, checkpoints and bytes of each graph, by age."""

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
"""Days that divide the bytes."""


def stock(*, now: datetime | None = None) -> list[dict[str, Any]]:
    """Per graph {graph, runs, checkpoints, bytes, ages}, the largest first. `ages` are the bytes of checkpoints younger
    than a week, a month, three months, and older. One query over columns.
    """
    now = now or timezone.now()
    moments = [now - timedelta(days=days) for days in AGES]
    begins, ends = [*moments, None], [None, *moments]
    spans = [_between(*one) for one in zip(begins, ends, strict=True)]
    ages = {f"age{n}": Sum("stored_size", filter=span) for n, span in enumerate(spans)}
    counts = {"runs": Count("id", filter=Q(id=F("run__head"))), "checkpoints": Count("id"), "bytes": Sum("stored_size")}
    rows: Any = Checkpoint.objects.order_by().values("run__graph").annotate(**counts, **ages)
    found = [
        {"graph": row["run__graph"], **{name: row[name] for name in counts}, "ages": [row[name] or 0 for name in ages]}
        for row in rows
    ]
    return sorted(found, key=lambda one: (-int(one["bytes"]), str(one["graph"])))


KIND = "measure_storage"
"""The standing job that measures once a day, for pages that must not read every checkpoint."""


def measure_storage(lease: JobLease) -> Iterator[Step]:
    """Measure the stock and keep it in the row of the job."""
    now = timezone.now()
    facts = {"at": now.isoformat(), "rows": stock(now=now)}
    jobs.change_facts(lease, facts)
    yield Step(len(facts["rows"]), note="graphs measured")


def measured_stock() -> dict[str, Any]:
    """Return {at, rows}: when the stock was measured last, and its rows as `stock` gives them. `at` None: never."""
    facts = Job.objects.filter(kind=KIND, status__in=LIVE).values_list("facts", flat=True).first() or {}
    at = parse_datetime(facts["at"]) if "at" in facts else None
    return {"at": at, "rows": facts.get("rows", [])}


def _between(begin: datetime | None, end: datetime | None) -> Q:
    found = Q(created_at__gte=begin) if begin else Q()
    return found & Q(created_at__lt=end) if end else found
