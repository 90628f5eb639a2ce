"""Reports of whoever asked with no graph, in words for a reader."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from approvals.models import ApprovalRequest
from approvals.results.reports import DECIDED, OutcomeReport, reports_on
from approvals.views.inbox import time_of
from checkpoints.core.outcome_lines import DONE, FAILED, UNKNOWN
from orchestrator.engine.errors import UNREADABLE
from orchestrator.engine.registry import ASKING

_SAID = {
    DONE: "it was done",
    FAILED: "it failed",
    UNKNOWN: "its outcome is unknown",
}


@dataclass(frozen=True, slots=True)
class Reported:
    """A sentence on a write, and whether a person should look at it."""

    sentence: str
    is_bad: bool


def reported_on(requests: Iterable[ApprovalRequest]) -> dict[UUID, Reported]:
    """Return what was reported of the writes of these requests, by write. One query for
    each that was asked with no graph and is decided. Each has its run. What does not
    verify is left out: what came of the request says so.
    """
    reported: dict[UUID, Reported] = {}
    for request in requests:
        if request.graph == ASKING and request.status in DECIDED:
            with suppress(*UNREADABLE):
                for write, report in reports_on(request).items():
                    reported[write] = _in_words(report)
    return reported


def _in_words(report: OutcomeReport) -> Reported:
    end = f": {report.detail}" if report.detail else "."
    beginning = (
        f"The caller reported at {time_of(report.at)} that {_SAID[report.result]}"
    )
    return Reported(f"{beginning}{end}", is_bad=report.result != DONE)
