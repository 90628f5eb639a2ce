"""Figures of gates: how often people are asked, how long they take, and how they decide.
Never per person. Reads columns only, in a fixed number of statements.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Any
from uuid import UUID

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery

from approvals.models import (
    BY_DEADLINE,
    ApprovalRequest,
    Decision,
    RequestStatus,
    Sighting,
)
from approvals.permissions import may
from checkpoints.core.ids import is_storable
from checkpoints.db.clock import db_now
from checkpoints.db.large_reads import few_rows, first_rows
from orchestrator.engine.errors import InvalidValue

MOST_REQUESTS = 10_000
"""The most requests that are looked at: of more the newest."""
FEWEST_SIGNERS = 5
"""With fewer signers, shares and medians would reveal how each of them works."""
QUICK = timedelta(seconds=3)
"""Who signs within this time of the first sight can hardly have read it."""


@dataclass(frozen=True, slots=True)
class GateFigures:
    """The figures of one gate: the node that asks, of a graph.

    so many `requests` were opened; `decided` were settled by people, in the median after
    `seconds`; `overdue` were closed by their deadline, or are open past it. Of the
    decisions of people these shares, from 0 to 1, were made within `QUICK` of the first
    sight (of those of which there is a sighting), edit, or reject. `seconds` and shares
    are None where fewer than `FEWEST_SIGNERS` people have signed, or there is nothing of
    which it could be said.
    """

    graph: str
    gate: str
    requests: int
    decided: int
    seconds: float | None
    overdue: int
    quick: float | None
    edited: float | None
    rejected: float | None


@dataclass(slots=True)
class _Counts:
    """The numbers of one gate while they are added up."""

    requests: int = 0
    overdue: int = 0
    signed: int = 0
    edits: int = 0
    rejections: int = 0
    seen: int = 0
    quick: int = 0
    signers: int = 0
    durations: list[float] = field(default_factory=list)


def figures(
    graph: str | None = None, gate: str | None = None, since: datetime | None = None
) -> list[GateFigures]:
    """Return the figures of each gate, by graph and gate: of all graphs or one, of one
    gate of it, of requests that were opened since then. Of more than `MOST_REQUESTS`
    only the newest are looked at: see `is_capped`. Three queries.

    Raises `InvalidValue` for a gate without its graph.
    """
    requests = _newest(graph, gate, since)
    with first_rows():
        records = list(requests.annotate(now=db_now()).values(*_COLUMNS, "now"))
    with few_rows():
        decided = _decisions_by_request(requests)
        signers = _signers_by_gate(requests)
    counts: dict[tuple[str, str], _Counts] = {}
    for record in records:
        of_gate = counts.setdefault((record["graph"], record["node"]), _Counts())
        _add(of_gate, record, decided.get(record["id"], {}))
    for key, number in signers.items():
        if key in counts:
            counts[key].signers = number
    return [_figures_of(key, of_gate) for key, of_gate in sorted(counts.items())]


def is_capped(rows: Iterable[GateFigures]) -> bool:
    """Return whether older requests may be missing from these figures."""
    return sum(row.requests for row in rows) >= MOST_REQUESTS


_COLUMNS = ("id", "graph", "node", "status", "opened_at", "settled_at", "deadline")


def _newest(
    graph: str | None, gate: str | None, since: datetime | None
) -> "QuerySet[ApprovalRequest]":
    """Return the newest of the requests; the index of each choice has them in order."""
    if gate is not None and graph is None:
        raise InvalidValue(
            "a gate is the node of a graph; name the graph too", path="gate"
        )
    requests = ApprovalRequest.objects.order_by("-opened_at", "-id")
    for name, value in (("graph", graph), ("node", gate)):
        if value is None:
            continue
        if not is_storable(value):
            raise InvalidValue(f"no {name} has this name", path=name)
        requests = requests.filter(**{name: value})
    if since is not None:
        requests = requests.filter(opened_at__gte=since)
    return requests[:MOST_REQUESTS]


def _decisions_by_request(
    requests: "QuerySet[ApprovalRequest]",
) -> dict[UUID, Mapping[str, Any]]:
    """Return how the decisions on each of these requests were made. One query."""
    by_person = Q(by__isnull=False)
    # Until then the person who decided had it on the screen, whatever came after.
    sightings = Sighting.objects.filter(
        by=OuterRef("by"), write=OuterRef("write"), at__lte=OuterRef("at")
    ).order_by("-at")
    rows = (
        Decision.objects.filter(request__in=requests.values("id"))
        .order_by()
        .annotate(seen_at=Subquery(sightings.values("at")[:1]))
        .values("request")
        .annotate(
            signed=Count("id", filter=by_person),
            edits=Count("id", filter=by_person & Q(verdict="edit")),
            rejections=Count("id", filter=by_person & Q(verdict="reject")),
            seen=Count("id", filter=Q(seen_at__isnull=False)),
            quick=Count("id", filter=Q(seen_at__gte=F("at") - QUICK)),
            by_deadline=Count(
                "id", filter=Q(by=None, receipt=None, by_name=BY_DEADLINE)
            ),
        )
    )
    return {row["request"]: row for row in rows}


def _signers_by_gate(
    requests: "QuerySet[ApprovalRequest]",
) -> dict[tuple[str, str], int]:
    """Return how many people have signed these requests, by graph and gate. One query."""
    rows = (
        Decision.objects.filter(request__in=requests.values("id"), by__isnull=False)
        .order_by()
        .values_list("request__graph", "request__node")
        .annotate(signers=Count("by", distinct=True))
    )
    return {(graph, node): signers for graph, node, signers in rows}


def _add(
    counts: _Counts, record: Mapping[str, Any], decided: Mapping[str, Any]
) -> None:
    """Add one request, and the decisions on it, to the numbers of its gate."""
    counts.requests += 1
    counts.signed += decided.get("signed", 0)
    counts.edits += decided.get("edits", 0)
    counts.rejections += decided.get("rejections", 0)
    counts.seen += decided.get("seen", 0)
    counts.quick += decided.get("quick", 0)
    if _is_overdue(record, decided):
        counts.overdue += 1
    # Requests that a policy settled alone took no time of people.
    elif record["settled_at"] is not None and decided.get("signed"):
        elapsed = record["settled_at"] - record["opened_at"]
        # The moments are by two clocks, which may differ.
        counts.durations.append(max(0.0, elapsed.total_seconds()))


def _is_overdue(record: Mapping[str, Any], decided: Mapping[str, Any]) -> bool:
    if record["status"] == RequestStatus.EXPIRED or decided.get("by_deadline"):
        return True
    deadline = record["deadline"]
    is_open = record["status"] == RequestStatus.OPEN
    return is_open and deadline is not None and deadline < record["now"]


def _figures_of(key: tuple[str, str], counts: _Counts) -> GateFigures:
    durations = counts.durations
    graph, gate = key
    are_few = counts.signers < FEWEST_SIGNERS
    return GateFigures(
        graph=graph,
        gate=gate,
        requests=counts.requests,
        decided=len(durations),
        seconds=None if are_few or not durations else median(durations),
        overdue=counts.overdue,
        quick=None if are_few else _share(counts.quick, counts.seen),
        edited=None if are_few else _share(counts.edits, counts.signed),
        rejected=None if are_few else _share(counts.rejections, counts.signed),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def may_read(user: Any) -> bool:
    """Return whether this person may read the figures of all gates: they look after the
    audit log, or after requests, and may see all runs.
    """
    if not may(user, "view_run"):
        return False
    return may(user, "view_audit") or may(user, "reassign")
