"""Jobs by their verbs: which is taken first, how long its lease is, and what of an
attempt the next one still finds.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from checkpoints.models import Job
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step

pytestmark = pytest.mark.django_db(transaction=True)


def begun(job_id: UUID) -> JobLease:
    """The job, claimed and begun; due at once, whatever its pause."""
    Job.objects.filter(id=job_id).update(due_at=timezone.now() - timedelta(minutes=1))
    epoch = jobs.claim_one(job_id)
    assert epoch is not None
    lease = jobs.begin_job(job_id, epoch)
    assert lease is not None
    return lease


def row(job_id: UUID) -> Job:
    return Job.objects.get(id=job_id)


def seconds_from_now(moment: datetime | None) -> float:
    assert moment is not None
    return (moment - timezone.now()).total_seconds()


def nearly_over(job_id: UUID) -> None:
    Job.objects.filter(id=job_id).update(
        lease_until=timezone.now() + timedelta(seconds=1)
    )


def test_each_pause_between_attempts_is_twice_as_long_and_the_last_attempt_has_none() -> (
    None
):
    job_id = jobs.add_job("count")
    pauses = []
    for _ in range(jobs.MOST_ATTEMPTS - 1):
        jobs.fail_job(begun(job_id), "odd", "it went wrong")
        pauses.append(round(seconds_from_now(row(job_id).due_at)))
    for expected, pause in zip((2, 4, 8, 16), pauses, strict=True):
        assert expected - 1 <= pause <= expected
    jobs.fail_job(begun(job_id), "odd", "it went wrong")
    assert row(job_id).status == "failed"
    assert row(job_id).error_code == "odd"


def test_a_standing_job_begins_anew_with_all_its_attempts() -> None:
    job_id = jobs.add_job("count")
    lease = begun(job_id)
    jobs.report(lease, Step(3, 4, place="there"))
    jobs.finish_job(lease, again_in=60.0)
    again = row(job_id)
    assert again.status == "queued"
    assert again.attempts == 0
    assert again.progress == {}
    assert 55 < seconds_from_now(again.due_at) <= 60


def test_a_standing_job_that_fails_for_good_comes_back_with_all_its_attempts() -> None:
    job_id = jobs.add_job("count")
    for _ in range(jobs.MOST_ATTEMPTS):
        jobs.fail_job(begun(job_id), "odd", "it went wrong", again_in=3600.0)
    again = row(job_id)
    assert again.status == "queued"
    assert again.attempts == 0
    assert again.error_code == "odd"
    assert 3590 < seconds_from_now(again.due_at) <= 3600


def test_a_job_that_is_done_at_last_says_nothing_of_its_failures() -> None:
    job_id = jobs.add_job("count")
    jobs.fail_job(begun(job_id), "odd", "it went wrong")
    jobs.finish_job(begun(job_id))
    assert row(job_id).status == "done"
    assert row(job_id).error_code == ""
    assert row(job_id).error == ""


def test_the_more_urgent_of_two_due_jobs_is_taken_first() -> None:
    first = jobs.add_job("count")
    urgent = jobs.add_job("count", priority=1)
    assert [claim.id for claim in jobs.claim(worker=None, limit=1)] == [urgent]
    assert [claim.id for claim in jobs.claim(worker=None, limit=1)] == [first]


@pytest.mark.parametrize("act", ["begin", "report", "heartbeat"])
def test_whoever_works_on_a_job_has_a_whole_lease(act: str, configure: Any) -> None:
    configure(LEASE_SECONDS=60)
    job_id = jobs.add_job("count")
    if act == "begin":
        epoch = jobs.claim_one(job_id)
        assert epoch is not None
        nearly_over(job_id)
        assert jobs.begin_job(job_id, epoch) is not None
    else:
        lease = begun(job_id)
        nearly_over(job_id)
        if act == "report":
            jobs.report(lease, Step(1))
        else:
            assert jobs.heartbeat(lease.id, lease.epoch)
    assert seconds_from_now(row(job_id).lease_until) > 50


def test_a_lease_is_renewed_by_the_worker_who_claimed_and_by_no_other() -> None:
    mine = uuid4()
    other = uuid4()
    job_id = jobs.add_job("count")
    claims = jobs.claim(worker=mine, limit=1)
    assert [claim.id for claim in claims] == [job_id]
    nearly_over(job_id)
    assert jobs.renew(claims, worker=other) == 0
    assert seconds_from_now(row(job_id).lease_until) < 2
    assert jobs.renew(claims, worker=mine) == 1
    assert seconds_from_now(row(job_id).lease_until) > 2


def test_a_claim_that_was_put_back_is_taken_by_the_next_at_once_and_counts_as_no_attempt() -> (
    None
):
    job_id = jobs.add_job("count")
    epoch = jobs.claim_one(job_id)
    assert epoch is not None
    jobs.release(job_id, epoch)
    assert row(job_id).status == "queued"
    assert row(job_id).attempts == 0
    assert jobs.claim_one(job_id) is not None


def test_a_step_of_a_long_note_keeps_its_beginning() -> None:
    lease = begun(jobs.add_job("count"))
    jobs.report(lease, Step(1, note="n" * 1000))
    assert row(lease.id).progress["note"] == "n" * 200


def test_a_second_begin_of_one_claim_comes_too_late() -> None:
    job_id = jobs.add_job("count")
    epoch = jobs.claim_one(job_id)
    assert epoch is not None
    first = jobs.begin_job(job_id, epoch)
    assert first is not None
    assert jobs.begin_job(job_id, epoch) is None
    assert row(job_id).attempts == 1
    jobs.finish_job(first)
