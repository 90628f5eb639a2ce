"""Reports of whoever asked with no graph, in words for a reader."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from approvals.models import ApprovalRequest
from approvals.results.effect_results import CALLER
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
                    reported[write] = _in_words(report, request)
    return reported


def _in_words(report: OutcomeReport, request: ApprovalRequest) -> Reported:
    end = f": {report.detail}" if report.detail else "."
    who = _reporter(report, request)
    beginning = f"{who} reported at {time_of(report.at)} that {_SAID[report.result]}"
    return Reported(f"{beginning}{end}", is_bad=report.result != DONE)


def _reporter(report: OutcomeReport, request: ApprovalRequest) -> str:
    """Return who reported: by name where it is not who asked, because who may reassign
    requests may report too.
    """
    caller = request.run.started_by
    if not report.by or (caller is not None and caller.get_username() == report.by):
        return CALLER
    return report.by
