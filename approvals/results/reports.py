"""Results of decisions that whoever asked reported: they act on what people approved
elsewhere, and say what came of it. Reads only.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Max, Q, Window
from django.db.models.functions import RowNumber, Substr
from django.utils.text import Truncator

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core.outcome_lines import DONE, REPORTED, ReportedOn
from checkpoints.models import PendingWrite, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.line_facts import required_facts
from orchestrator.engine.errors import UNREADABLE
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED, PARTIAL
from orchestrator.engine.registry import ASKING

MOST_FAILURES = 3
"""The most writes of which it is said why they failed, where many did."""
MOST_VERIFIED = 20
"""The most lines of a request that are verified before a list of them is shown."""
LONGEST_REASON = 120
"""The most characters of a reason in a list."""
DECIDED = (RequestStatus.SETTLED, RequestStatus.APPLIED)
LETS_ACT = (APPROVED, PARTIAL)
"""The outcomes of a request of which whoever asked may act on something."""
_REQUEST: Any = Substr("task", 1, 36)
_WRITE: Any = Substr("task", 1, 73)
_RESULT: Any = Substr("task", 75)
"""The parts of `ReportedOn` in its column."""


@frozen
class OutcomeReport:
    """The newest report about one write, the `number`-th. `detail` is empty where it was
    erased.
    """

    write: UUID
    result: str
    detail: str
    hash: str
    at: datetime
    by: str
    number: int = 1


@dataclass(slots=True)
class ListedReports:
    """The newest reports about the writes of one request, in columns: how many of each
    result, and of the newest the numbers of the lines that say so, the writes of which
    nobody said that it was done, and when the last line was written. `awaited` is how
    many more are to come, where whoever asked said that they would report; at least one
    of those that people approved in part, of which nobody counts the writes. `worst` is
    the line of the newest bad report, `reason` the text that it gave.
    """

    counts: dict[str, int] = field(default_factory=dict)
    lines: dict[UUID, int] = field(default_factory=dict)
    bad: list[UUID] = field(default_factory=list)
    at: datetime | None = None
    awaited: int = 0
    worst: int | None = None
    reason: str = ""

    def add(self, about: ReportedOn, seq: int, at: datetime, total: int) -> None:
        """Add the newest report about a write, of `total` with the same result."""
        self.counts[about.result] = total
        self.lines[about.write] = seq
        self.at = max(at, self.at or at)
        if about.result != DONE:
            self.bad.append(about.write)
            self.worst = max(seq, self.worst or seq)


def reports_on(request: ApprovalRequest) -> dict[UUID, OutcomeReport]:
    """Return the newest report about each write of a request, by write. One query.

    Raises `TamperedRow` and `WrongKey`. The request has its run.
    """
    protection = protection_of(request.run)
    reports: dict[UUID, OutcomeReport] = {}
    lines = RunEvent.objects.filter(run=request.run_id, type=REPORTED).order_by("seq")
    for line in lines:
        # All of them: one that was changed could hide about which request it is.
        sealed_rows.verify_row(line, protection)
        facts = required_facts(line)
        if facts["request"] != str(request.id):
            continue
        write = UUID(facts["write"])
        detail = facts["detail"]
        # An erasure leaves a tombstone.
        if not isinstance(detail, str):
            detail = ""
        number = reports[write].number + 1 if write in reports else 1
        reports[write] = OutcomeReport(
            write,
            facts["result"],
            detail,
            facts["hash"],
            line.at,
            line.actor,
            number,
        )
    return reports


def listed_reports(
    requests: Sequence[ApprovalRequest],
) -> Mapping[UUID, ListedReports]:
    """Return what was reported of these requests, by request; without those about which
    nothing was reported and nothing is awaited. One query of columns, none unless
    people were asked with no graph.
    """
    by_id = {row.id: row for row in requests if _may_be_acted_on(row)}
    if not by_id:
        return {}
    listed = {id: ListedReports() for id in by_id}
    for about, seq, at, total in _newest_lines(by_id.values()):
        listed[about.request].add(about, seq, at, total)
    for id, request in by_id.items():
        listed[id].awaited = _awaited(request, sum(listed[id].counts.values()))
        if not listed[id].counts and not listed[id].awaited:
            del listed[id]
    return listed


def _newest_lines(
    requests: Collection[ApprovalRequest],
) -> list[tuple[ReportedOn, int, datetime, int]]:
    """Return the newest lines about writes of these requests, a few of each result, the
    newest first: with number, time, and how many writes have that result. One query of
    columns.
    """
    lines = RunEvent.objects.filter(
        run__in={request.run_id for request in requests}, type=REPORTED
    )
    lines = lines.annotate(request=_REQUEST)
    lines = lines.filter(request__in=[str(request.id) for request in requests])
    last = Window(Max("seq"), partition_by=[F("run"), _WRITE])
    newest = lines.annotate(last=last).filter(seq=F("last")).order_by()
    alike = [F("run"), _REQUEST, _RESULT]
    counted = RunEvent.objects.filter(pk__in=newest.values("pk")).annotate(
        total=Window(Count("pk"), partition_by=alike),
        place=Window(RowNumber(), partition_by=alike, order_by=F("seq").desc()),
    )
    # One more than are verified: with that many, a list says nothing unproven.
    few = counted.filter(place__lte=MOST_VERIFIED + 1).order_by("-seq")
    read: list[tuple[ReportedOn, int, datetime, int]] = []
    for task, seq, at, total in few.values_list("task", "seq", "at", "total"):
        # A list shows what can be read; what is tampered with is for whoever opens it.
        with suppress(ValueError):
            read.append((ReportedOn.parse(task), seq, at, total))
    return read


def _awaited(request: ApprovalRequest, reported: int) -> int:
    if not request.policy.get("reports"):
        return 0
    if request.outcome == APPROVED:
        return max(0, request.writes - reported)
    return 0 if reported else 1


def _may_be_acted_on(request: ApprovalRequest) -> bool:
    """Return whether people let whoever asked with no graph act on something."""
    is_decided = request.status in DECIDED and request.outcome in LETS_ACT
    return request.graph == ASKING and is_decided


def read_reasons(
    requests: Iterable[ApprovalRequest], listed: Mapping[UUID, ListedReports]
) -> None:
    """Set the reason of each request whose newest bad report gave one. One query, none
    if all is well. Each request has its run.
    """
    bad: dict[tuple[UUID, int], ApprovalRequest] = {}
    for request in requests:
        reports = listed.get(request.id)
        if reports is not None and reports.worst is not None:
            bad[request.run_id, reports.worst] = request
    if not bad:
        return
    places = Q()
    for run, seq in bad:
        place = Q(run=run, seq=seq)
        places |= place
    lines = RunEvent.objects.filter(places)
    for line in lines:
        request = bad[line.run_id, line.seq]
        listed[request.id].reason = _reason_of(line, request)


def _reason_of(line: RunEvent, request: ApprovalRequest) -> str:
    """Return the detail of a line, cut, or that it cannot be read."""
    try:
        sealed_rows.verify_row(line, protection_of(request.run))
        detail = required_facts(line)["detail"]
    except UNREADABLE:
        return "what was reported cannot be read"
    # An erasure leaves a tombstone.
    if not isinstance(detail, str):
        return ""
    return Truncator(detail).chars(LONGEST_REASON)


def failures_in_words(request: ApprovalRequest, listed: ListedReports) -> str:
    """Return the details of the first writes that failed, or whose outcome is unknown,
    each with its label where the request has several. Two queries, none if all is well.
    """
    if not listed.bad:
        return ""
    try:
        by_write = reports_on(request)
    except UNREADABLE:
        return "what was reported cannot be read"
    first = listed.bad[:MOST_FAILURES]
    labels: dict[UUID, str] = {}
    if request.writes > 1:
        labels = _labels(request, first)
    sentences: list[str] = []
    for write in first:
        report = by_write.get(write)
        if report is None:
            continue
        parts = [labels.get(write, ""), report.detail]
        sentences.append(": ".join(filter(None, parts)))
    return "; ".join(filter(None, sentences))


def _labels(request: ApprovalRequest, writes: Sequence[UUID]) -> dict[UUID, str]:
    rows = PendingWrite.objects.filter(run=request.run_id, write__in=writes)
    return dict(rows.order_by("revision").values_list("write", "label"))


def are_sound_lines(request: ApprovalRequest, listed: ListedReports) -> bool:
    """Return whether the lines verify that say what was reported; of more than
    `MOST_VERIFIED` that is left to the verification of the run. One query.
    """
    seqs = list(listed.lines.values())
    if len(seqs) > MOST_VERIFIED:
        return True
    rows = list(RunEvent.objects.filter(run=request.run_id, seq__in=seqs))
    try:
        sealed_rows.verify_rows(rows, protection_of(request.run))
        return all(_says_what_is_listed(line) for line in rows)
    except UNREADABLE:
        return False


def _says_what_is_listed(line: RunEvent) -> bool:
    """Return whether a line is about what lists read of it. Raises `TamperedRow`."""
    return bool(required_facts(line))
