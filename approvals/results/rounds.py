"""The rounds of gates: in which superstep a gate asked, on which line, and what came of
it; and which round the task of a node after the gate belongs to. Reads columns only.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from uuid import UUID

from django.db.models import Max, Min, OuterRef, Subquery

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import Checkpoint, RunLine
from orchestrator.engine.graphs.gate import outcome_of, way_of

CLOSED = (RequestStatus.WITHDRAWN, RequestStatus.EXPIRED)
"""Requests with one of these let nothing through."""


@dataclass(frozen=True, slots=True)
class Round:
    """All that a gate asked in one visit. `outcome` is that of the visit, over all its
    requests; empty until each is applied.
    """

    run: UUID
    line: int
    node: str
    visit: int
    superstep: int
    outcome: str
    opened_at: datetime
    settled_at: datetime | None


Reach = Mapping[int, int]
"""Line -> the last superstep of it that lies in the past of a place."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of some runs: how far each older line lies in the past of a later one."""

    departures: Mapping[tuple[UUID, int], tuple[int, int]]

    def past(self, run: UUID, line: int) -> Reach:
        """Return the past of a line of a run; all of the line itself belongs to it."""
        reach = {line: sys.maxsize}
        last = sys.maxsize
        while (run, line) in self.departures:
            line, departed = self.departures[run, line]
            # An older line counts no further than each line after it left it.
            last = min(last, departed)
            reach[line] = last
        return reach


def lines_of(runs: Iterable[UUID]) -> Lines:
    """Return the lines of these runs that departed from another line of the same run.
    One query, none without runs.
    """
    ids = set(runs)
    if not ids:
        return Lines({})
    at_departure = Checkpoint.objects.filter(
        run=OuterRef("departure_run"), seq=OuterRef("departure_seq")
    )
    rows = RunLine.objects.filter(run__in=ids, number__gt=1).annotate(
        superstep=Subquery(at_departure.values("superstep")[:1])
    )
    departures: dict[tuple[UUID, int], tuple[int, int]] = {}
    for run, number, parent, superstep in rows.values_list(
        "run_id", "number", "parent_line", "superstep"
    ):
        # Without its checkpoint it is unknown how far the older line counts.
        departures[run, number] = (parent, -1 if superstep is None else superstep)
    return Lines(departures)


def rounds_of(runs: Collection[UUID], nodes: Collection[str]) -> list[Round]:
    """Return the rounds of the gates of these nodes, by superstep. One query, with as
    many rows as there are visits and ways in which their requests ended.
    """
    requests = ApprovalRequest.objects.filter(run__in=runs, node__in=nodes)
    place = ("run_id", "line", "node", "visit")
    rows = requests.order_by().values_list(*place, "status", "outcome")
    parts: dict[tuple[UUID, int, str, int], list[_Part]] = {}
    for run, line, node, visit, status, outcome, *times in rows.annotate(
        asked=Min("superstep"), opened=Min("opened_at"), settled=Max("settled_at")
    ):
        part = _Part(status, outcome, *times)
        parts.setdefault((run, line, node, visit), []).append(part)
    rounds: list[Round] = []
    for (run, line, node, visit), own in parts.items():
        settled = [part.settled_at for part in own if part.settled_at is not None]
        rounds.append(
            Round(
                run,
                line,
                node,
                visit,
                superstep=min(part.superstep for part in own),
                outcome=_outcome(own),
                opened_at=min(part.opened_at for part in own),
                settled_at=max(settled, default=None),
            )
        )
    return sorted(rounds, key=attrgetter("superstep", "line"))


@dataclass(frozen=True, slots=True)
class _Part:
    """Requests of a visit that ended alike."""

    status: str
    outcome: str
    superstep: int
    opened_at: datetime
    settled_at: datetime | None


def _outcome(parts: Iterable[_Part]) -> str:
    """Return the outcome of a visit, which its edges follow."""
    outcomes: list[str] = []
    for part in parts:
        if part.status in CLOSED:
            continue
        if part.status != RequestStatus.APPLIED:
            return ""
        outcomes.append(part.outcome)
    return way_of(outcome_of(outcomes)) if outcomes else ""


def newest_before(
    rounds: Sequence[Round], reach: Reach, superstep: int
) -> Round | None:
    """Return the newest of these rounds of one gate that asked before this superstep, in
    the past of a place.
    """
    newest: Round | None = None
    for candidate in rounds:
        last = reach.get(candidate.line, -1)
        # Its own superstep, too: a node that waits for its own yes asks as it begins.
        if candidate.superstep <= min(last, superstep):
            newest = candidate
    return newest
