"""The channels that people are asked about, or were asked about before the run has
applied the outcome; and the number of runs that hold signed values. Reads columns only.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from django.db.models import Exists, OuterRef, Q

from approvals.gates.settlement import WAITING
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import PendingWrite


def channels_under_review(runs: Q) -> dict[Any, set[str]]:
    """Return these channels of the runs that meet this condition (on `run`), by the
    run's id. One query.
    """
    waiting_request = ApprovalRequest.objects.filter(
        run=OuterRef("run"),
        line=OuterRef("line"),
        node=OuterRef("node"),
        visit=OuterRef("visit"),
        index=OuterRef("index"),
        status__in=WAITING,
    )
    # Any revision will do, because a write never changes its channel.
    writes = PendingWrite.objects.filter(runs, Exists(waiting_request))
    channels: dict[Any, set[str]] = defaultdict(set)
    for run, channel in writes.order_by().values_list("run", "channel").distinct():
        channels[run].add(channel)
    return channels


def count_signed(runs: Q, nodes: Collection[str]) -> int:
    """Return how many of the runs that meet this condition (on `run`) hold a value that
    was signed at one of these nodes. One query.
    """
    applied = ApprovalRequest.objects.filter(
        runs, node__in=nodes, status=RequestStatus.APPLIED
    )
    return applied.order_by().values("run").distinct().count()
