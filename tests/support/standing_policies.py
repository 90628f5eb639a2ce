"""Runs at a gate that permits standing policies, and policies that people made there."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from approvals import reviews
from approvals.models import ApprovalRequest, StandingPolicy
from checkpoints.models import Run
from orchestrator.engine import END, START, Gate, Graph
from tests.support.small_graphs import advanced, graph

TOTAL = {"total": {"value": 10}}
"""Limits that a total of at most 10 keeps."""


def permitting(
    name: str = "permitting",
    *,
    total: Any = 4,
    paid: list[Any] | None = None,
    **gate: Any,
) -> Graph:
    """review, whose gate holds a total and permits standing policies; then wait, and pay,
    which acts on the authority of the gate.
    """
    flow = graph(name)
    options = {"reviewers": ["group:claims"], "standing": True, **gate}
    payments = [] if paid is None else paid

    @flow.node(effect="human", gate=Gate(**options))
    def review(state: Any, ctx: Any) -> dict[str, Any]:
        return {"total": total}

    @flow.node()
    def wait(state: Any, ctx: Any) -> None:
        return None

    @flow.node(effect="external", idempotent=True, authority="review")
    def pay(state: Any, ctx: Any) -> None:
        payments.append(state.total)

    flow.edge(START, "review")
    flow.edge("review", "wait")
    flow.edge("wait", "pay")
    flow.edge("pay", END)
    return flow


def waiting(name: str = "permitting", **options: Any) -> Run:
    """A run at that gate which waits for people: no policy was in force."""
    run = advanced(permitting(name, **options))
    assert run.status == "paused", run.error_code
    return run


def policy_of(run: Run, by: User, **options: Any) -> StandingPolicy:
    """A policy that a person made beside the run's only request."""
    request = ApprovalRequest.objects.get(run=run.id)
    arguments = {
        "limits": TOTAL,
        "ends": timezone.now() + timedelta(days=1),
        "most_uses": 5,
        **options,
    }
    return reviews.make_standing_policy(request.id, by=by, **arguments)


def uses(rows: Sequence[StandingPolicy]) -> list[int]:
    """Return how often each of these policies has signed by now."""
    by_id = StandingPolicy.objects.in_bulk([row.id for row in rows])
    return [by_id[row.id].uses for row in rows]
