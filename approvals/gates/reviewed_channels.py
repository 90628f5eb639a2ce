"""What people are asked about now, or were and the run has not applied it yet; and which runs hold what was signed.
Columns only.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from django.db.models import Exists, OuterRef, Q

from approvals.gates.settlement import WAITING
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import PendingWrite


def channels_under_review(runs: Q) -> dict[Any, set[str]]:
    """Of the runs that meet this condition (on `run`), by id. One query."""
    task = {name: OuterRef(name) for name in ("run", "line", "node", "visit", "index")}
    rows = PendingWrite.objects.filter(runs, Exists(ApprovalRequest.objects.filter(**task, status__in=WAITING)))
    found: dict[Any, set[str]] = defaultdict(set)
    for run, channel in rows.order_by().values_list("run", "channel").distinct():
        found[run].add(channel)
    return found


def count_signed(runs: Q, nodes: Collection[str]) -> int:
    """How many of the runs that meet this condition (on `run`) hold a value that was signed at one of these nodes. One
    query.
    """
    applied = ApprovalRequest.objects.filter(runs, node__in=nodes, status=RequestStatus.APPLIED)
    return applied.order_by().values("run").distinct().count()
