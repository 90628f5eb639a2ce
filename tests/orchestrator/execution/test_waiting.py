"""A task that waits for its next attempt, and people who decide beside it meanwhile."""

import time
from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.sealing.sealed_columns import unpack_json
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Retry
from tests.support import cast, run_actions
from tests.support.run_actions import event_payloads, sign, state
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _beside(calls: list[int], backoff: float) -> Graph:
    flow = graph("waiting-beside-a-gate")

    @flow.node(
        effect="external",
        idempotent=True,
        retry=Retry(attempts=2, backoff=backoff, jitter=0),
    )
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("come back later")
        return {"notes": ["paid"]}

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"]))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    for name in ("pay", "propose"):
        flow.edge(START, name)
        flow.edge(name, END)
    return flow


def test_a_decision_beside_a_task_that_waits_for_its_next_attempt_does_not_cut_the_pause_short(
    people: cast.People,
) -> None:
    calls: list[int] = []
    run = advanced(_beside(calls, 3600))
    assert run.status == Status.WAITING
    due = run.due_at
    sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.WAITING
    assert calls == [1]
    assert run.due_at is not None
    assert due is not None
    assert abs((run.due_at - due).total_seconds()) < 5
    assert len(event_payloads(run, "retry_planned")) == 1


def test_when_the_pause_is_over_the_task_runs_and_what_was_decided_meanwhile_is_applied(
    people: cast.People,
) -> None:
    calls: list[int] = []
    run = advanced(_beside(calls, 5.5))
    assert run.status == Status.WAITING
    sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    time.sleep(1)
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert calls == [1, 2]
    assert state(run)["letter"] == "proposed"
    assert unpack_json(run.error) is None
