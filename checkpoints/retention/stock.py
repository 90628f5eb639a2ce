"""What there is to keep: runs, checkpoints and bytes of each graph, by age."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q, Sum
from django.utils import timezone

from checkpoints.models import Checkpoint

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


def _between(begin: datetime | None, end: datetime | None) -> Q:
    found = Q(created_at__gte=begin) if begin else Q()
    return found & Q(created_at__lt=end) if end else found
