"""The channels that people are asked about, or were asked about before the run has
applied the outcome; the nodes at which silence approves what they are asked; and the
number of runs that hold signed values. Reads columns only.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from approvals.gates.settlement import WAITING
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import PendingWrite


def channels_under_review(runs: Q) -> dict[Any, set[str]]:
    """Return these channels of the runs that meet this condition (on `run`), with those
    that people will be asked about again because a deadline has closed their request,
    by the run's id. One query.
    """
    of_task = ApprovalRequest.objects.filter(
        run=OuterRef("run"),
        line=OuterRef("line"),
        node=OuterRef("node"),
        visit=OuterRef("visit"),
        index=OuterRef("index"),
    )
    waiting = of_task.filter(status__in=WAITING)
    later = of_task.filter(
        ordinal__gt=OuterRef("ordinal"),
    )
    # A request that expired stays so when its task asks again, and when its line is left.
    expired = of_task.filter(
        ~Exists(later),
        status=RequestStatus.EXPIRED,
        run__line=OuterRef("line"),
    )
    # Any revision will do, because a write never changes its channel.
    writes = PendingWrite.objects.filter(
        runs,
        Exists(waiting) | Exists(expired),
    )
    return _by_run(writes.values_list("run", "channel"))


def nodes_silence_approves(runs: Q) -> dict[Any, set[str]]:
    """Return the nodes at which people are asked, or were asked before the run has
    applied the outcome, and whose deadline approves: of the runs that meet this
    condition (on `run`), by the run's id. A request keeps the policy that it was opened
    under, whatever its gate says since then. One query.
    """
    requests = ApprovalRequest.objects.filter(
        runs,
        line=F("run__line"),
        status__in=WAITING,
        policy__on_deadline="approve",
    )
    return _by_run(requests.values_list("run", "node"))


def _by_run(rows: "QuerySet[Any, Any]") -> dict[Any, set[str]]:
    """Return the names in these rows of (run, name) by run. One query."""
    names_by_run: dict[Any, set[str]] = defaultdict(set)
    for run, name in rows.order_by().distinct():
        names_by_run[run].add(name)
    return names_by_run


def count_signed(runs: Q, nodes: Collection[str]) -> int:
    """Return how many of the runs that meet this condition (on `run`) hold a value that
    was signed at one of these nodes. One query.
    """
    applied = ApprovalRequest.objects.filter(
        runs, node__in=nodes, status=RequestStatus.APPLIED
    )
    return applied.order_by().values("run").distinct().count()
