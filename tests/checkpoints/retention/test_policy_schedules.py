"""Policies that act by themselves, once a day, after a steward has confirmed their dry
run.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from checkpoints import retention
from checkpoints.models import AuditLine, Job, RetentionPolicy, Run
from checkpoints.queue import jobs
from checkpoints.queue.jobs import Step
from checkpoints.retention import policy_schedules
from checkpoints.retention.policy_schedules import KIND
from orchestrator.engine.errors import Forbidden, WrongStatus
from orchestrator.jobs import kinds
from tests.support import cast
from tests.support.histories import faults, long_run, policy, seqs
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    """A run of the graph "long" with the checkpoints 0 to 8."""
    return long_run()


def a_day_passes() -> None:
    """The daily job has its turn, and what it queued is worked on."""
    kinds.ensure_standing()
    job = Job.objects.get(kind=KIND)
    Job.objects.filter(id=job.id).update(due_at=timezone.now() - timedelta(seconds=1))
    kinds.advance(job.id)
    for removal in Job.objects.filter(kind="prune_runs", status="queued"):
        kinds.advance(removal.id)


def confirmed(row: RetentionPolicy, by: Any) -> RetentionPolicy:
    """A policy whose dry run a steward has confirmed as it stands now."""
    count = retention.dry_run(row).counts["checkpoints"]
    policy_schedules.confirm_policy(row, by=by, confirmed=count)
    return row


def test_a_confirmed_policy_acts_by_itself_once_a_day(
    run: Run, people: cast.People
) -> None:
    confirmed(policy("long", keep_last=2), people.steward)
    a_day_passes()
    assert seqs(run) == [7, 8]
    line = AuditLine.objects.get(kind="history_pruned")
    assert line.actor_name == ""
    assert line.facts["checkpoints"] == 7
    assert faults(run) == []
    due = Job.objects.get(kind=KIND).due_at - timezone.now()
    assert timedelta(hours=23) < due < timedelta(hours=25)


def test_the_first_turn_of_a_new_policy_waits_for_the_stewards_dry_run(
    run: Run,
) -> None:
    row = policy("long", keep_last=2)
    a_day_passes()
    assert len(seqs(run)) == 9
    assert policy_schedules.schedules_of([row])["long"].waits


def test_the_first_turn_of_a_changed_policy_waits_for_the_stewards_dry_run(
    run: Run, people: cast.People
) -> None:
    confirmed(policy("long", keep_last=6), people.steward)
    a_day_passes()
    changed = policy("long", keep_last=2)
    a_day_passes()
    assert seqs(run) == [3, 4, 5, 6, 7, 8]
    confirmed(changed, people.steward)
    a_day_passes()
    assert seqs(run) == [7, 8]


def test_a_policy_that_was_deleted_and_made_again_waits_once_more(
    run: Run, people: cast.People
) -> None:
    row = confirmed(policy("long", keep_last=2), people.steward)
    retention.delete_policy(row, by=people.steward)
    policy("long", keep_last=2)
    a_day_passes()
    assert len(seqs(run)) == 9


def test_a_policy_that_is_switched_off_does_not_act(
    run: Run, people: cast.People
) -> None:
    confirmed(policy("long", keep_last=2, switched_off=True), people.steward)
    a_day_passes()
    assert len(seqs(run)) == 9


def test_no_turn_removes_more_than_the_limit_of_the_policy(
    run: Run, people: cast.People
) -> None:
    other = long_run()
    confirmed(policy("long", keep_last=2, most_a_night=7), people.steward)
    a_day_passes()
    assert sorted([len(seqs(run)), len(seqs(other))]) == [2, 9]
    assert AuditLine.objects.get(kind="history_pruned").facts["limit"] == 7
    a_day_passes()
    assert seqs(run) == [7, 8]
    assert seqs(other) == [7, 8]


def test_a_removal_that_a_steward_ordered_has_no_limit(
    run: Run, people: cast.People
) -> None:
    other = long_run()
    row = policy("long", keep_last=2, most_a_night=7)
    kinds.advance(retention.prune(row, by=people.steward).id)
    assert seqs(run) == [7, 8]
    assert seqs(other) == [7, 8]


def test_a_policy_that_is_refused_stops_no_other_and_leaves_a_line(
    run: Run, people: cast.People
) -> None:
    confirmed(policy("archived", keep_last=2, archive=True), people.steward)
    confirmed(policy("long", keep_last=2), people.steward)
    a_day_passes()
    assert seqs(run) == [7, 8]
    assert AuditLine.objects.get(kind="retention_policy_refused").graph == "archived"


def test_a_confirmation_that_was_forged_in_the_database_counts_for_nothing(
    run: Run, people: cast.People
) -> None:
    row = policy("long", keep_last=2)
    digest = policy_schedules.rule_digest(row)
    AuditLine.objects.create(
        at=timezone.now(),
        kind=policy_schedules.CONFIRMED,
        graph="long",
        facts={"rule": digest},
        seal=b"x",
        seal_key="1",
    )
    a_day_passes()
    assert len(seqs(run)) == 9


def test_a_dry_run_whose_count_has_moved_confirms_nothing(
    run: Run, people: cast.People
) -> None:
    row = policy("long", keep_last=2)
    with pytest.raises(WrongStatus, match="count again"):
        policy_schedules.confirm_policy(row, by=people.steward, confirmed=3)
    assert not policy_schedules.is_confirmed(row)


def test_who_may_not_manage_retention_confirms_nothing(
    run: Run, people: cast.People
) -> None:
    row = policy("long", keep_last=2)
    with pytest.raises(Forbidden):
        policy_schedules.confirm_policy(row, by=people.reviewer, confirmed=7)
    assert not policy_schedules.is_confirmed(row)


def test_the_last_and_the_next_turn_of_each_policy_are_told_in_as_many_queries_for_many(
    run: Run, people: cast.People
) -> None:
    row = confirmed(policy("long", keep_last=2), people.steward)
    a_day_passes()
    with counted() as few:
        schedule = policy_schedules.schedules_of([row])["long"]
    assert schedule.last_checkpoints == 7
    assert schedule.last_at is not None
    assert schedule.last_job == str(Job.objects.get(kind="prune_runs").id)
    assert schedule.next_at == Job.objects.get(kind=KIND).due_at
    assert not schedule.waits
    rows = [
        row,
        *(
            confirmed(policy(f"graph {n}", keep_last=1), people.steward)
            for n in range(9)
        ),
    ]
    with counted() as many:
        policy_schedules.schedules_of(rows)
    assert len(many) == len(few)


def test_where_a_turn_is_cut_off_no_policy_has_two_on_one_day(
    run: Run, people: cast.People
) -> None:
    confirmed(policy("long", keep_last=2), people.steward)
    job = jobs.add_job(KIND, name=KIND)
    epoch = jobs.claim_one(job)
    assert epoch is not None
    lease = jobs.begin_job(job, epoch)
    assert lease is not None
    jobs.report(lease, Step(1, place=[1, "long"]))
    jobs.give_back(lease)
    kinds.advance(job)
    assert not Job.objects.filter(kind="prune_runs").exists()
