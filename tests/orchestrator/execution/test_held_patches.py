"""While people must sign a patch, or what a migration made of a guarded channel,
nothing else is applied: what they decide elsewhere counts on the state behind it, and
so do routers.
"""

from typing import Any

import pytest
from pydantic import BaseModel

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run, TaskResult
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show
from tests.crash.abort import watching
from tests.support import cast, run_actions
from tests.support.small_graphs import Notes, Order, advanced, slice_of, started
from tests.support.statements import Breaks
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


class Cents(Notes):
    """`Notes` whose total is text, in cents."""

    total: str = "0"  # type: ignore[assignment]


def counting(
    version: str, state: type[BaseModel] = Notes, *, shows: tuple[str, ...] = ()
) -> Graph:
    """Two gates side by side: one sets the total, and behind the other a router reads
    it.
    """
    flow = Graph("counting", version=version, input=Order, state=state)
    guards = Gate(reviewers=["group:claims"], writes={"total": Show()})
    flow.node("count", approve="writes", gate=guards)(
        lambda state, ctx: {"total": type(state.total)(120)}
    )
    beside = Gate(reviewers=["group:claims"], shows=list(shows))
    flow.node("write", approve="writes", gate=beside)(
        lambda state, ctx: {"letter": "Dear"}
    )
    for name in ("more", "pay"):
        flow.node(name)(lambda state, ctx: {"notes": [f"{ctx.node} {state.total}"]})
        flow.edge(name, END)
    for name in ("count", "write"):
        flow.edge(START, name)
    flow.edge("count", END)
    flow.branch(
        "write",
        lambda state: "more" if int(state.total) > 1000 else "pay",
        {n: n for n in ("more", "pay")},
    )
    return flow


def in_cents(state: Any) -> None:
    state["scratch"]["total"] = type(state["scratch"]["total"])(
        int(state["scratch"]["total"]) * 100
    )


def in_text(state: Any) -> None:
    state["scratch"]["total"] = f"{state['scratch']['total'] * 100}"


def counted(people: cast.People, **options: Any) -> Run:
    """A run whose total was signed, and of which people are still asked for the letter."""
    run = advanced(counting("1", **options))
    decided(run, people, "count")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert run_actions.state(run)["total"] == 120
    return run


def decided(run: Run, people: cast.People, node: str, verdict: str = "approve") -> None:
    rita = run_actions.reviewer(people.reviewer)
    verdicts = [
        verdict if row.node == node else None for row in run_actions.pending(run)
    ]
    run_actions.sign(run, rita, verdicts)


def migrating(migration: Any, *state: Any, **options: Any) -> Graph:
    flow = counting("2", *state, **options)
    flow.migration(from_version="1")(migration)
    return deployed(flow)


def settled(run: Run) -> list[str]:
    requests = ApprovalRequest.objects.filter(run=run.id, status="settled")
    return [*requests.values_list("node", flat=True)]


@pytest.mark.parametrize(("migration", "state"), [(in_cents, Notes), (in_text, Cents)])
def test_what_people_decide_beside_a_migration_is_applied_behind_it(
    migration: Any, state: Any, people: cast.People
) -> None:
    run = counted(people)
    migrating(migration, state)
    decided(run, people, "write")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED, stored_error(run)
    assert run_actions.state(run)["letter"] == "", stored_error(run)
    assert settled(run) == ["write"]
    decided(run, people, "$patch")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED, stored_error(run)
    assert run_actions.state(run)["notes"] == ["more 12000"]
    assert verify_run(run.id) == []


def test_what_people_decide_while_it_waits_does_not_wake_the_run_for_ever(
    people: cast.People,
) -> None:
    run = counted(people)
    migrating(in_cents)
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.at_node == "write, $patch"
    decided(run, people, "write")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert settled(run) == ["write"]
    again = runs.advance(run.id)
    assert again.status == Status.PAUSED
    assert again.head_seq == run.head_seq
    assert again.event_seq == run.event_seq


def test_a_decision_that_was_bound_to_what_the_migration_changes_comes_back(
    people: cast.People,
) -> None:
    run = counted(people, shows=("total",))
    migrating(in_cents, shows=("total",))
    decided(run, people, "write")
    runs.advance(run.id)
    decided(run, people, "$patch")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert run_actions.state(run)["total"] == 12000
    assert settled(run) == []
    decided(run, people, "write")
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert run_actions.state(run)["notes"] == ["more 12000"]
    assert verify_run(run.id) == []


def test_where_the_migration_is_rejected_nothing_that_was_decided_beside_it_happens(
    people: cast.People,
) -> None:
    run = counted(people)
    migrating(in_cents)
    decided(run, people, "write")
    runs.advance(run.id)
    decided(run, people, "$patch", "reject")
    run = runs.advance(run.id)
    assert run.status == Status.REJECTED
    assert run_actions.state(run)["letter"] == ""
    assert run_actions.state(run)["notes"] == []
    assert settled(run) == ["write"], "what people decided stays on record"
    assert verify_run(run.id) == []


def test_a_patch_of_a_fork_is_applied_before_what_is_decided_beside_it(
    people: cast.People,
) -> None:
    run = counted(people)
    fork = runs.fork(
        run.head or "", patch={"scratch": {"total": 5000}}, by=people.starter
    )
    decided(fork, people, "write")
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.PAUSED
    assert settled(new_run) == ["write"]
    decided(new_run, people, "$patch")
    new_run = runs.advance(new_run.id)
    assert new_run.status == Status.COMPLETED
    assert run_actions.state(new_run)["notes"] == ["more 5000"]
    assert verify_run(new_run.id) == []


def test_an_effect_that_was_done_before_the_deployment_is_not_done_again_behind_the_patch(
    people: cast.People,
) -> None:
    happened: list[str] = []

    def paying(version: str) -> Graph:
        flow = Graph("paying", version=version, input=Order, state=Notes)
        gate = Gate(reviewers=["group:claims"], writes={"total": Show()})
        flow.node("pay", effect="external", reads=["letter"])(
            lambda state, ctx: happened.append("paid")
        )
        flow.node("count", approve="writes", gate=gate)(lambda state, ctx: {"total": 1})
        for source, target in ((START, "pay"), ("pay", "count"), ("count", END)):
            flow.edge(source, target)
        return flow

    run = started(paying("1"))
    with watching(Breaks('INSERT INTO "checkpoints_checkpoint"', after=False)):
        slice_of(run)
    assert happened == ["paid"]
    assert TaskResult.objects.get(run=run.id).outcome == "done"
    Run.objects.filter(id=run.id).update(lease_until=run.created_at)
    new = paying("2")
    new.migration(from_version="1")(lambda state: state["scratch"].update(total=7))
    deployed(new)
    run = runs.advance(run.id)
    assert run.at_node == "$patch", stored_error(run)
    decided(run, people, "$patch")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED, stored_error(run)
    assert run.at_node == "count", stored_error(run)
    assert happened == ["paid"], stored_error(run)
    assert TaskResult.objects.filter(run=run.id).count() == 1
    assert verify_run(run.id) == []
