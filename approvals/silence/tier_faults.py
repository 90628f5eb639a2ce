"""The faults of tiers, for the examiner of approvals: tiers on which a request and the
log disagree.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from approvals.models import ApprovalRequest
from checkpoints.models import RunEvent
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import Fault, Subject
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.tiers import tiers_in

TYPES = {
    "request_reminded": "remind",
    "request_escalated": "escalate",
}
"""Type of a line of the log -> what its tier does."""

TierAct = tuple[int | None, str]
"""The number of a tier, from 0, and what it does."""


def wrong_tiers(
    subject: Subject,
    row: ApprovalRequest,
) -> Fault | None:
    """Return the fault of a request if its tiers and the lines of the log do not match
    one to one. One query for a request with tiers.
    """
    tiers = tiers_in(row.policy)
    passed = len(row.passed_tiers or ())
    if passed > len(tiers):
        return subject.fault(row, "says that more tiers acted than its policy has")
    if not tiers:
        return None
    expected = _expected(tiers[:passed])
    logged = _logged(row)
    if logged is None:
        return None
    if logged == expected:
        return None
    # Lines may have been removed with a stretch of the log.
    was_removed = bool(subject.removed.events.last)
    if was_removed and set(logged) <= set(expected):
        return None
    return subject.fault(row, "has tiers that acted otherwise than the log says")


def _expected(passed: Sequence[Mapping[str, Any]]) -> list[TierAct]:
    acts: list[TierAct] = []
    for number, tier in enumerate(passed):
        act = tier["act"]
        acts.append((number, act))
    return acts


def _logged(row: ApprovalRequest) -> list[TierAct] | None:
    """Return (number, what it does) of each tier of a request that the log has, in
    order; None if a line cannot be read, which the log's own examiner reports.
    """
    logged: list[TierAct] = []
    request_id = str(row.id)
    lines = RunEvent.objects.filter(
        run=row.run_id,
        task=row.task,
        type__in=TYPES,
    )
    for line in lines.order_by("seq"):
        try:
            facts = read_value(line, "payload")
        except CountersignError:
            return None
        # The examiner of the log reports a line without facts.
        facts = facts or {}
        if facts.get("request") == request_id:
            act = TYPES[line.type]
            logged.append((facts.get("tier"), act))
    return logged
