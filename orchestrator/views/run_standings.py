"""How runs stand where their status alone does not say it: forks that nobody has started, runs that stopped before an
effect, what paused ones ask, and where forks and replays came from. For lists: columns only, never a payload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import CharField, Exists, OuterRef, Q
from django.db.models.functions import Cast

from approvals import permissions
from approvals.models import ApprovalRequest, RequestStatus
from approvals.views.inbox import asked_of, names_of
from checkpoints.core.status import Status
from checkpoints.lines import NOT_STARTED
from checkpoints.models import Run, RunLine


@dataclass(frozen=True, slots=True)
class Standing:
    """What a list says of a run beside its status. `kind`: "", "not_started" or "needs_yes"; `asks`: how much a paused
    run asks and of whom; `origin`: where a fork or replay came from.
    """

    kind: str = ""
    asks: str = ""
    origin: str = ""


def read_standings(runs: Sequence[Run], user: Any) -> None:
    """Set `run.standing` on each run. At most four queries, however many runs; none for runs that need none."""
    lines = _lines_of(runs)
    asked = _asked_by([run for run in runs if run.status == Status.PAUSED])
    names = names_of(_accounts(asked))
    origins = _origins(lines, user)
    for run in runs:
        requests = asked.get(run.id, [])
        run.standing = Standing(  # type: ignore[attr-defined]
            kind=_kind(run, lines.get((run.id, run.line)), asks=bool(requests)),
            asks=_asks_in_words(requests, user, names),
            origin=_origin_in_words(lines.get((run.id, 1)), origins),
        )


def read_kinds(runs: Sequence[Run]) -> None:
    """Set `run.standing` with its kind alone. Two queries where a fork or a run that went back is paused, else none."""
    paused = [run for run in runs if run.status == Status.PAUSED and (run.origin_checkpoint or run.line > 1)]
    lines = _lines_of(paused)
    asked = _asked_by(paused)
    for run in paused:
        kind = _kind(run, lines.get((run.id, run.line)), asks=run.id in asked)
        run.standing = Standing(kind=kind)  # type: ignore[attr-defined]


def not_started() -> Q:
    """Return the filter for paused runs that nobody has started and that ask nobody anything.

    Looks at the lines of paused forks and of paused runs that went back, and at no other run.
    """
    line = RunLine.objects.annotate(stops_text=Cast("stops", CharField()))
    waits_for_start = line.filter(run=OuterRef("pk"), number=OuterRef("line"), stops_text__contains=f'"{NOT_STARTED}"')
    asks = ApprovalRequest.objects.filter(run=OuterRef("pk"), line=OuterRef("line"), status=RequestStatus.OPEN)
    departed = Q(origin_checkpoint__isnull=False) | Q(line__gt=1)
    return Q(status=Status.PAUSED) & departed & Q(Exists(waits_for_start)) & ~Q(Exists(asks))


def _lines_of(runs: Sequence[Run]) -> dict[tuple[UUID, int], RunLine]:
    departed = [run.id for run in runs if run.origin_checkpoint or run.line > 1]
    if not departed:
        return {}
    rows = RunLine.objects.filter(run__in=departed)
    rows = rows.only("run_id", "number", "travel", "departure_run", "departure_seq", "stops")
    return {(row.run_id, row.number): row for row in rows}


def _asked_by(paused: Sequence[Run]) -> dict[UUID, list[ApprovalRequest]]:
    lines = {run.id: run.line for run in paused}
    if not lines:
        return {}
    asked: dict[UUID, list[ApprovalRequest]] = {}
    rows = ApprovalRequest.objects.filter(run__in=lines, status=RequestStatus.OPEN)
    for row in rows.only("run_id", "line", "policy", "writes"):
        if row.line == lines[row.run_id]:
            asked.setdefault(row.run_id, []).append(row)
    return asked


def _accounts(asked: dict[UUID, list[ApprovalRequest]]) -> set[str]:
    principals = {name for rows in asked.values() for row in rows for name in row.policy["reviewers"]}
    return {name.removeprefix("user:") for name in principals if name.startswith("user:")}


def _kind(run: Run, line: RunLine | None, *, asks: bool) -> str:
    if run.status != Status.PAUSED or line is None or asks:
        return ""
    if NOT_STARTED in line.stops:
        return "not_started"
    stopped_before = set(run.at_node.split(", ")) & set(line.stops)
    return "needs_yes" if stopped_before else ""


def _asks_in_words(requests: Sequence[ApprovalRequest], user: Any, names: dict[str, str]) -> str:
    if not requests:
        return ""
    writes = sum(request.writes for request in requests)
    reviewers = sorted({name for request in requests for name in request.policy["reviewers"]})
    noun = "write" if writes == 1 else "writes"
    return f"{writes:,} {noun}, {asked_of(reviewers, user, names)}"


def _origins(lines: dict[tuple[UUID, int], RunLine], user: Any) -> dict[UUID, str]:
    """Return the keys of the runs that the forks came from, as far as this person may see them."""
    wanted = {row.departure_run for (_, number), row in lines.items() if number == 1}
    if not wanted:
        return {}
    visible = permissions.visible_among(user, Run.objects.filter(id__in=wanted))
    return dict(visible.values_list("id", "key"))


def _origin_in_words(line: RunLine | None, origins: dict[UUID, str]) -> str:
    if line is None:
        return ""
    kind = str(line.travel).capitalize()
    key = origins.get(line.departure_run)
    return f"{kind} of {key} at {line.departure_seq:,}" if key else kind
