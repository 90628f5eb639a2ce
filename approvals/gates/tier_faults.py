"""The faults of tiers, for the examiner of approvals: tiers of which a request and the
log say different things.
"""

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


def wrong_tiers(
    subject: Subject,
    row: ApprovalRequest,
) -> Fault | None:
    """Return the fault of a request whose tiers have acted otherwise than the log says:
    each has its line there, and each line its tier. One query for a request with tiers.
    """
    tiers = tiers_in(row.policy)
    passed = len(row.passed_tiers or ())
    if passed > len(tiers):
        return subject.fault(row, "says that more tiers acted than its policy has")
    if not tiers:
        return None
    expected = [(number, tier["act"]) for number, tier in enumerate(tiers[:passed])]
    logged = _logged(row)
    if logged is None or logged == expected:
        return None
    # Lines may have been removed with a stretch of the log.
    if subject.removed.events.last and set(logged) <= set(expected):
        return None
    return subject.fault(row, "has tiers that acted otherwise than the log says")


def _logged(row: ApprovalRequest) -> list[tuple[int, str]] | None:
    """Return (number, what it does) of each tier of a request that the log has, in
    order; None if a line cannot be read, which the log's own examiner reports.
    """
    logged: list[tuple[int, str]] = []
    lines = RunEvent.objects.filter(run=row.run_id, task=row.task, type__in=TYPES)
    for line in lines.order_by("seq"):
        try:
            facts = read_value(line, "payload")
            if facts["request"] == str(row.id):
                logged.append((facts["tier"], TYPES[line.type]))
        except (CountersignError, KeyError, TypeError):
            return None
    return logged
