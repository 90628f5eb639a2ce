"""What a request says of its proposal: the hash of the task's input, the checkpoint
whose state the task read, and how often it asked before.
"""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run, TaskResult
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from orchestrator.execution.attempt import SuperstepContext
from tests.support import cast, rows
from tests.support.forging import rewrite
from tests.support.paid_claims import claim
from tests.support.run_actions import request
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)
GATE = Gate(reviewers=["group:claims"])


def _gated(name: str, *before: str, **settings: Any) -> Graph:
    """Nodes that write a note each, then propose; and beside it, in the same superstep,
    send, which acts outside.
    """
    flow = graph(name, **settings)

    @flow.node(effect="human", gate=GATE)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": f"after {len(state.notes)}"}

    @flow.node(effect="external")
    def send(state: Any, ctx: Any) -> None:
        pass

    for node in before:
        flow.node(node)(lambda state, ctx: {"notes": [ctx.node]})
    for source, target in zip((START, *before), (*before, None), strict=True):
        for end in [target] if target else ["propose", "send"]:
            flow.edge(source, end)
    flow.edge("propose", END)
    flow.edge("send", END)
    return flow


def _row(run: Run, seq: int) -> Checkpoint:
    return Checkpoint.objects.get(run=run, seq=seq)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_a_request_has_the_hash_that_the_journal_has_of_a_task_with_the_same_input(
    encrypted: bool, configure: Any
) -> None:
    configure(**ONE_KEY)
    run = advanced(_gated("hashed", "a", encrypted=encrypted))
    open_request = request(run)
    assert open_request.input_hash == TaskResult.objects.get(run=run).input_hash
    assert len(open_request.input_hash) == 64
    assert (
        open_request.input_hash
        != request(advanced(_gated("hashed_otherwise"))).input_hash
    )


def test_a_request_names_the_checkpoint_with_the_state_that_its_task_read() -> None:
    run = advanced(_gated("prepared", "a", "b"))
    open_request = request(run)
    assert open_request.prepared_from == _row(run, 2).id
    assert timeline.state_at(_row(run, 2).id)["scratch"]["notes"] == ["a", "b"]
    assert verify_run(run.id) == []


def test_a_request_whose_task_read_a_state_that_no_row_keeps_names_no_checkpoint() -> (
    None
):
    assert (
        request(advanced(_gated("unkept", "a", checkpoints="none"))).prepared_from
        is None
    )
    run = advanced(_gated("from_the_start", checkpoints="none"))
    assert request(run).prepared_from == _row(run, 0).id


def test_a_request_that_is_opened_beside_a_failure_says_what_its_task_read() -> None:
    made = _gated("beside_a_failure", "a")

    @made.node()
    def fail(state: Any, ctx: Any) -> None:
        raise ValueError("broken")

    made.edge("a", "fail")
    made.edge("fail", END)
    run = advanced(made)
    assert run.status == "failed"
    open_request = request(run)
    assert open_request.prepared_from == _row(run, 1).id
    assert open_request.input_hash == TaskResult.objects.get(run=run).input_hash


@pytest.mark.parametrize("way", ["fork", "rewind"])
def test_a_request_that_is_asked_anew_says_what_its_proposal_was_made_from(
    way: str, people: cast.People
) -> None:
    run = advanced(claim(f"asked_anew_{way}"))
    open_request = request(run)
    runs.cancel(run.id)
    point = _row(run, 2).id
    if way == "fork":
        again = ApprovalRequest.objects.get(run=runs.fork(point, by=people.starter))
    else:
        runs.rewind(run.id, point, by=people.starter)
        again = ApprovalRequest.objects.get(run=run, line=2)
    assert again.id != open_request.id
    assert open_request.prepared_from == _row(run, 1).id
    assert again.input_hash == open_request.input_hash
    assert again.prepared_from == open_request.prepared_from


def test_only_proposals_are_hashed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    hash_of = SuperstepContext.input_hash

    def watched(context: SuperstepContext, start: Any) -> str:
        hashed.append(start.task.node)
        return hash_of(context, start)

    monkeypatch.setattr(SuperstepContext, "input_hash", watched)
    flow = graph("counted")
    flow.node("a")(lambda state, ctx: {"notes": ["a"]})
    flow.node(
        "waved",
        effect="human",
        gate=Gate(reviewers=["group:claims"], needs_approval=lambda *_: False),
    )(lambda state, ctx: {"letter": "x"})
    flow.node("asked", effect="human", gate=GATE)(lambda state, ctx: {"total": 1})
    for source, target in (
        (START, "a"),
        ("a", "waved"),
        ("waved", "asked"),
        ("asked", END),
    ):
        flow.edge(source, target)
    assert advanced(flow).status == "paused"
    assert hashed == ["waved", "asked"]


def test_the_same_task_may_ask_again_under_the_next_number_alone() -> None:
    open_request = request(advanced(_gated("again")))
    again = ApprovalRequest.objects.get(id=open_request.id)
    again.id = rows.missing()
    again.visit = open_request.visit
    with pytest.raises(IntegrityError), transaction.atomic():
        again.save(force_insert=True)
    again.ordinal = 1
    again.save(force_insert=True)


@pytest.mark.parametrize("column", ["ordinal", "input_hash", "prepared_from"])
def test_a_request_that_was_sealed_before_it_said_this_verifies_until_somebody_writes_it(
    column: str,
) -> None:
    run = advanced(_gated("older"))
    open_request = request(run)
    empty = {"ordinal": 0, "input_hash": "", "prepared_from": None}
    statement = {"ordinal": 1, "input_hash": "0" * 64, "prepared_from": rows.missing()}
    rewrite(open_request, **empty)
    assert verify_run(run.id) == []
    ApprovalRequest.objects.filter(id=open_request.id).update(
        **{column: statement[column]}
    )
    assert [fault.table for fault in verify_run(run.id)] == [
        "approvals_approvalrequest"
    ]
