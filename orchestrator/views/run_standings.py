"""The standing of runs whose status alone does not show it: forks that nobody has
started, runs that stopped before an effect, the questions of paused ones, and the
origins of forks and replays. For lists: columns only, never a payload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import CharField, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast
from django.db.models.lookups import IsNull

from approvals import permissions
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.inbox import asked_of, names_of
from checkpoints.core.status import Status
from checkpoints.lines import NOT_STARTED
from checkpoints.models import Run, RunLine

Lines = dict[tuple[UUID, int], RunLine]
"""Lines by their run and number."""
RequestsByRun = dict[UUID, list[ApprovalRequest]]

USER = "user:"
"""The beginning of a reviewer that is an account."""


@dataclass(frozen=True, slots=True)
class RunStanding:
    """The words of a list about a run beside its status. `kind`: "", "not_started" or
    "needs_yes"; `asks`: how much a paused run asks and of whom; `origin`: where a fork
    or replay came from.
    """

    kind: str = ""
    asks: str = ""
    origin: str = ""


def read_standings(runs: Sequence[Run], user: Any) -> None:
    """Set `run.standing` on each run. At most four queries, however many runs; none for
    runs that need none.
    """
    lines = _lines_of(runs)
    paused = [run for run in runs if _is_paused(run)]
    requests_by_run = _open_requests(paused)
    names = names_of(_accounts(requests_by_run))
    origins = _origins(lines, user)
    for run in runs:
        requests = requests_by_run.get(run.id, [])
        current_line = lines.get((run.id, run.line))
        first_line = lines.get((run.id, 1))
        run.standing = RunStanding(  # type: ignore[attr-defined]
            kind=_kind(run, current_line, asks=bool(requests)),
            asks=_asks_in_words(requests, user, names),
            origin=_origin_in_words(first_line, origins),
        )


def read_kinds(runs: Sequence[Run]) -> None:
    """Set `run.standing` with its kind alone, on paused runs that departed from a
    checkpoint. Two queries if there are any, else none.
    """
    paused = [run for run in runs if _is_paused(run) and _has_departed(run)]
    lines = _lines_of(paused)
    requests_by_run = _open_requests(paused)
    for run in paused:
        line = lines.get((run.id, run.line))
        kind = _kind(run, line, asks=run.id in requests_by_run)
        run.standing = RunStanding(kind=kind)  # type: ignore[attr-defined]


def _is_paused(run: Run) -> bool:
    return run.status == Status.PAUSED


def _has_departed(run: Run) -> bool:
    """Return whether the run is a fork or replay, or went back."""
    return bool(run.origin_checkpoint) or run.line > 1


def not_started() -> Q:
    """Return the filter for paused runs that nobody has started and that ask nobody
    anything.

    Looks at the lines of paused forks and of paused runs that went back, and at no
    other run.
    """
    # As text, for SQLite cannot look for an element of a JSON list.
    line = RunLine.objects.annotate(stops_text=Cast("stops", CharField()))
    waits_for_start = line.filter(
        run=OuterRef("pk"),
        number=OuterRef("line"),
        stops_text__contains=f'"{NOT_STARTED}"',
    )
    open_requests = ApprovalRequest.objects.filter(
        run=OuterRef("pk"), line=OuterRef("line"), status=RequestStatus.OPEN
    )
    # As the index `run_paused_departures` has them: SQLite uses it only for values that
    # stand in the text.
    is_paused = Q(status=RawSQL(f"'{Status.PAUSED.value}'", ()))  # noqa: S611
    has_departed = Q(origin_checkpoint__isnull=False) | Q(line__gt=RawSQL("1", ()))
    return is_paused & has_departed & _has(waits_for_start) & ~_has(open_requests)


def _has(rows: "QuerySet[Any]") -> Q:
    """Return the condition that a run has one of these rows. With EXISTS PostgreSQL
    could list the rows of all runs first.
    """
    return Q(IsNull(Subquery(rows.order_by().values("id")[:1]), False))


def _lines_of(runs: Sequence[Run]) -> Lines:
    """Return the lines of the runs that departed from a checkpoint, by run and number.
    One query, none if no run did.
    """
    departed = [run.id for run in runs if _has_departed(run)]
    if not departed:
        return {}
    rows = RunLine.objects.filter(run__in=departed)
    rows = rows.only(
        "run_id",
        "number",
        "travel",
        "departure_run",
        "departure_seq",
        "stops",
    )
    return {(row.run_id, row.number): row for row in rows}


def _open_requests(paused: Sequence[Run]) -> RequestsByRun:
    """Return the open requests of the current lines, by run. One query, none without
    runs.
    """
    lines = {run.id: run.line for run in paused}
    if not lines:
        return {}
    by_run: RequestsByRun = {}
    rows = ApprovalRequest.objects.filter(run__in=lines, status=RequestStatus.OPEN)
    for row in rows.only("run_id", "line", "policy", "passed_tiers", "writes"):
        # A line that the run left may have requests that are still open.
        if row.line == lines[row.run_id]:
            requests = by_run.setdefault(row.run_id, [])
            requests.append(row)
    return by_run


def _accounts(requests_by_run: RequestsByRun) -> set[str]:
    """Return the accounts among the reviewers, which have to be called by name."""
    accounts: set[str] = set()
    for requests in requests_by_run.values():
        for reviewer in _reviewers(requests):
            if reviewer.startswith(USER):
                accounts.add(reviewer.removeprefix(USER))
    return accounts


def _reviewers(requests: Sequence[ApprovalRequest]) -> set[str]:
    reviewers: set[str] = set()
    for request in requests:
        reviewers.update(request.reviewers_now)
    return reviewers


def _kind(run: Run, line: RunLine | None, *, asks: bool) -> str:
    if not _is_paused(run) or line is None or asks:
        return ""
    if NOT_STARTED in line.stops:
        return "not_started"
    # It needs a yes only if it is at one of the stops.
    nodes = set(run.at_node.split(", "))
    if nodes.isdisjoint(line.stops):
        return ""
    return "needs_yes"


def _asks_in_words(
    requests: Sequence[ApprovalRequest],
    user: Any,
    names: dict[str, str],
) -> str:
    if not requests:
        return ""
    writes = sum(request.writes for request in requests)
    noun = "write" if writes == 1 else "writes"
    reviewers = sorted(_reviewers(requests))
    return f"{writes:,} {noun}, {asked_of(reviewers, user, names)}"


def _origins(lines: Lines, user: Any) -> dict[UUID, str]:
    """Return the keys of the runs that the forks came from, as far as this person may
    see them.
    """
    origins = {row.departure_run for row in lines.values() if row.number == 1}
    if not origins:
        return {}
    visible = permissions.visible_among(user, Run.objects.filter(id__in=origins))
    return dict(visible.values_list("id", "key"))


def _origin_in_words(line: RunLine | None, origins: dict[UUID, str]) -> str:
    if line is None:
        return ""
    kind = str(line.travel).capitalize()
    key = origins.get(line.departure_run)
    # This person may not see the run that it came from.
    if not key:
        return kind
    return f"{kind} of {key} at {line.departure_seq:,}"
