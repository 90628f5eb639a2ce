"""What gates held at a checkpoint is told by the log, not by the clocks of those who
wrote it.
"""

from datetime import timedelta
from typing import Any

import pytest

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.models import PendingWrite, Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from tests.support import claims, run_actions, small_graphs
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


def edited(run: Run, by: Any) -> None:
    request = ApprovalRequest.objects.get(run=run, status="open")
    row = request.run.pending_writes.filter(revision=1, channel="payout").get()
    value = {"amount": "9.00", "account": "DE89"}
    reviews.sign(
        run.id,
        [
            {
                "write": str(row.write),
                "hash": row.hash,
                "verdict": "edit",
                "value": value,
            }
        ],
        by=by,
    )


@pytest.mark.parametrize("hours", [-5, 5])
def test_an_edit_behind_a_checkpoint_is_not_held_at_it_whatever_the_clock_of_who_edited(
    hours: int, people: People
) -> None:
    with claims.registered(claims.graph_of(quorum=2)):
        run = claims.paused("CLM-1", people.starter)
        point = timeline.list_checkpoints(run.id)[0]
        edited(run, people.reviewer)
        PendingWrite.objects.filter(run=run.id, revision=2).update(
            staged_at=point.created_at + timedelta(hours=hours)
        )
        assert {row.revision for row in timeline.held_at(point)} == {1}


@pytest.mark.parametrize("hours", [-5, 5])
def test_an_edit_before_a_checkpoint_is_held_at_it_whatever_the_clock_of_who_edited(
    hours: int, people: People
) -> None:
    with claims.registered(claims.graph_of(quorum=2)):
        run = claims.paused("CLM-1", people.starter)
        point = timeline.list_checkpoints(run.id)[0]
        edited(run, people.reviewer)
        PendingWrite.objects.filter(run=run.id, revision=2).update(
            staged_at=point.created_at + timedelta(hours=hours)
        )
        # As if a checkpoint of another branch had come behind the edit.
        point.event_seq = Run.objects.get(id=run.id).event_seq
        assert 2 in {row.revision for row in timeline.held_at(point)}


def test_a_write_whose_base_moved_behind_a_checkpoint_is_held_at_it_as_it_was(
    people: People,
) -> None:
    flow = small_graphs.graph("rebased")
    for name in ("one", "two"):
        proposed = {"letter": f"dear {name}"}
        flow.node(name, effect="human", gate=Gate(reviewers=["group:claims"]))(
            lambda state, ctx, it=proposed: it
        )
        flow.edge(START, name)
        flow.edge(name, END, when=("approved", "partial", "rejected"))
    run = small_graphs.advanced(flow)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve", None])
    run = runs.advance(run.id)
    now, then = timeline.list_checkpoints(run.id)[:2]
    assert [(row.node, row.revision) for row in timeline.held_at(now)] == [("two", 2)]
    assert [(row.node, row.revision) for row in timeline.held_at(then)] == [
        ("one", 1),
        ("two", 1),
    ]
