"""What people still wait for, and what a call was prepared from, stays."""

import json
from typing import Any

import pytest

from approvals.models import ApprovalRequest
from checkpoints import retention, timeline
from checkpoints.erasure import erased_batches
from checkpoints.models import Checkpoint, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.support import cast, erasures, run_actions
from tests.support.forging import rewrite
from tests.support.histories import faults, loaded, long_run, policy, pruned, seqs
from tests.support.large_states import LARGE
from tests.support.paid_claims import claim, paid
from tests.support.small_graphs import registered, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_point_that_a_run_waits_at_and_that_a_proposal_was_made_from_stay(
    people: cast.People,
) -> None:
    registered(claim("waits"))
    run = runs.advance(runs.start("waits", {}).id)
    assert run.status == "paused"
    prepared = ApprovalRequest.objects.get(run=run).prepared_from
    counts = retention.dry_run(policy("waits", keep_last=0))
    why = {why: reason["count"] for why, reason in counts.reasons.items()}
    assert why["waits"] == 1
    assert why["prepared_from"] == 1
    pruned(policy("waits", keep_last=0))
    assert Checkpoint.objects.filter(id=prepared).exists()
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []
    pruned(policy("waits", keep_last=0))
    run.refresh_from_db()
    assert seqs(run) == [run.head_seq]


def test_what_a_fork_still_asks_about_stays_in_the_run_that_it_left(
    people: cast.People,
) -> None:
    registered(claim("asked_twice"))
    origin = runs.advance(runs.start("asked_twice", {}).id)
    fork = runs.advance(runs.fork(origin.head, by=people.starter).id)
    assert fork.status == "paused"
    prepared = ApprovalRequest.objects.get(run=fork).prepared_from
    assert prepared is not None
    assert Checkpoint.objects.get(id=prepared).run_id == origin.id
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign_open(origin, rita, "approve")
    assert runs.advance(origin.id).status == "completed"
    pruned(policy("asked_twice", keep_last=1))
    assert Checkpoint.objects.filter(id=prepared).exists()
    run_actions.sign_open(fork, rita, "approve")
    assert runs.advance(fork.id).status == "completed"
    pruned(policy("asked_twice", keep_last=1))
    assert not Checkpoint.objects.filter(id=prepared).exists()
    assert faults() == []


def test_superseded_lines_lose_what_is_old_and_keep_where_later_lines_left(
    people: cast.People,
) -> None:
    run = paid("two_lines", people)
    runs.rewind(run.id, f"{run.key}:at-1", allow_effects=["pay"], by=people.starter)
    runs.advance(run.id)
    run_actions.sign_open(run, people.reviewer, "approve")
    done = runs.advance(run.id)
    before = loaded()
    pruned(policy("two_lines", keep_last=2))
    assert seqs(done) == [1, done.head_seq - 1, done.head_seq]
    assert {row: before[row] for row in loaded()} == loaded()
    assert faults() == []
    pruned(policy("two_lines", keep_last=1))
    assert seqs(done) == [1, done.head_seq]
    assert faults() == []


def test_forks_of_forks_load_as_before_when_all_that_may_go_is_gone(
    people: cast.People,
) -> None:
    other_run = paid("forked", people)
    chain: list[Any] = [other_run]
    for seq in (1, 1, 1):
        origin: Run = chain[-1]
        point = Checkpoint.objects.get(run=origin, seq=min(seq, origin.head_seq))
        again = [str(node) for node in runs.plan(point.id).needs_yes]
        fork = runs.advance(
            runs.fork(point.id, allow_effects=again, by=people.starter).id
        )
        if fork.status == "paused":
            run_actions.sign_open(fork, people.reviewer, "approve")
            fork = runs.advance(fork.id)
        chain.append(fork)
    before = loaded()
    pruned(policy("forked", keep_last=1))
    assert all(1 in seqs(run) for run in chain[:-1])
    assert {row: before[row] for row in loaded()} == loaded()
    assert len(loaded()) < len(before)
    assert faults() == []


def test_while_a_run_is_erased_nothing_of_it_is_removed_so_that_no_value_comes_back(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erased_batches, "CHECKPOINTS", 2)
    run = long_run()
    record = retention.begin_erasure(run.id, by=people.steward)
    job = erasures.worked_until(record, "checkpoints")
    counts = retention.dry_run(policy("long", keep_last=2))
    assert {why: reason["count"] for why, reason in counts.reasons.items()} == {
        "erasing": 9
    }
    pruned(policy("long", keep_last=2))
    assert len(seqs(run)) == 9
    assert kinds.advance(job.id).status == "done"
    assert retention.dry_run(policy("long", keep_last=2)).counts["checkpoints"] == 7
    pruned(policy("long", keep_last=2))
    assert seqs(run) == [7, 8]
    assert faults(run) == []
    states = json.dumps(
        [timeline.state_at(row.id) for row in timeline.list_checkpoints(run.id)]
    )
    assert LARGE[:50] not in states


def test_the_point_that_an_approved_call_was_prepared_from_stays_until_the_run_has_ended(
    people: cast.People, configure: Any
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = started(claim("called"))
    rule = policy("called", keep_last=0)
    while run.status == "queued":
        run = slice_of(run)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    request = ApprovalRequest.objects.get(run=run)
    while request.status != "applied":
        slice_of(run)
        request.refresh_from_db()
    assert "prepared_from" not in retention.dry_run(rule).reasons
    # As a request for a call is kept.
    rewrite(request, kind="call")
    pruned(rule)
    assert Checkpoint.objects.filter(id=request.prepared_from).exists()
    assert retention.dry_run(rule).reasons["prepared_from"]["count"] == 1
    assert runs.advance(run.id).status == "completed"
    pruned(rule)
    assert not Checkpoint.objects.filter(id=request.prepared_from).exists()
    assert faults() == []
