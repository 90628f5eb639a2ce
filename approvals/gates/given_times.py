"""How long requests give people to decide, where the moment that the terms of a gate name
has passed and people are asked again.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from approvals.models import ApprovalRequest
from checkpoints import lines
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Gate
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.gate_on_run import DueAt

SHORTEST = timedelta(minutes=1)
"""The shortest time that people are given anew."""


@frozen
class AskingPlace:
    """The line on which people are asked, or from which that line departs."""

    run: UUID
    line: int


def time_of(request: ApprovalRequest) -> timedelta:
    """Return how long a request gave people, at least `SHORTEST`."""
    if request.deadline is None:
        return SHORTEST
    # The moments are by two clocks, which may differ.
    return max(request.deadline - request.opened_at, SHORTEST)


def with_time(gate: Gate, node: str, now: datetime, place: AskingPlace) -> Gate:
    """Return a gate that gives as long a time as the first request of this node gave on
    the way to a place, if the moment that is its deadline has passed; else the gate
    itself. Only then there are queries: one for each run on the way, and one for the
    request. Raises `TamperedRow`, `WrongKey`.
    """
    due = gate.deadline
    if not isinstance(due, DueAt) or due.moment > now:
        return gate
    runs = {stretch.run for stretch in lines.past(place.run, place.line)}
    first = _first_with_deadline(runs, node)
    # Nobody has been asked yet: it is due at once.
    if first is None:
        return gate
    return replace(gate, deadline=time_of(first))


def _first_with_deadline(runs: Collection[UUID], node: str) -> ApprovalRequest | None:
    rows = ApprovalRequest.objects.select_related("run").filter(run__in=runs, node=node)
    first = rows.exclude(deadline=None).order_by("opened_at", "id").first()
    if first is not None:
        sealed_rows.verify_row(first, protection_of(first.run))
    return first
