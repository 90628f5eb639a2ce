"""Jobs: they are claimed beside the runs, go on from their place, and fail by name."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone
from django_q.signing import SignedPackage

from checkpoints.models import Job
from checkpoints.queue import jobs
from checkpoints.queue.jobs import Step
from orchestrator.engine.errors import StaleLease
from orchestrator.jobs import kinds
from orchestrator.worker import tasks
from tests.support.clusters import cluster, slow, status
from tests.support.processes import until

pytestmark = pytest.mark.django_db(transaction=True)


def row(job_id):
    return Job.objects.get(id=job_id)


def fetched(broker):
    return [SignedPackage.loads(message) for _, message in broker.dequeue()]


def test_a_job_is_done_and_shows_how_far_it_got(counting):
    job = kinds.advance(jobs.add_job("count"))
    assert job.status == "done"
    assert counting == [0, 1, 2, 3]
    assert job.progress == {"done": 4, "total": 4, "note": "counting", "place": 4}
    assert job.ended_at is not None


def test_a_job_goes_on_from_its_place_after_a_slice(counting, configure):
    configure(SLICE_SECONDS=1e-9)
    job_id = jobs.add_job("count")
    kinds.run_job(job_id, jobs.claim_one(job_id))
    assert row(job_id).status == "queued"
    assert row(job_id).attempts == 0
    assert counting == [0]
    assert kinds.advance(job_id).status == "done"
    assert counting == [0, 1, 2, 3]


def test_a_job_whose_worker_died_goes_on_from_its_place(counting):
    job_id = jobs.add_job("count")
    lease = jobs.begin_job(job_id, jobs.claim_one(job_id))
    jobs.report(lease, Step(2, 4, place=2))
    assert jobs.claim_one(job_id) is None
    Job.objects.filter(id=job_id).update(
        lease_until=timezone.now() - timedelta(hours=1)
    )
    assert kinds.advance(job_id).status == "done"
    assert counting == [2, 3]


def test_a_draining_worker_gives_a_job_back_after_the_piece_in_hand(counting):
    job_id = jobs.add_job("count")
    kinds.run_job(job_id, jobs.claim_one(job_id), draining=lambda: True)
    assert row(job_id).status == "queued"
    assert counting == [0]


def test_whoever_lost_the_lease_of_a_job_changes_nothing():
    job_id = jobs.add_job("count")
    lease = jobs.begin_job(job_id, jobs.claim_one(job_id))
    Job.objects.filter(id=job_id).update(
        lease_until=timezone.now() - timedelta(hours=1)
    )
    taken = jobs.begin_job(job_id, jobs.claim_one(job_id))
    before = Job.objects.values().get(id=job_id)
    for act in (
        lambda: jobs.report(lease, Step(1)),
        lambda: jobs.finish_job(lease),
        lambda: jobs.fail_job(lease, "x", "y"),
        lambda: jobs.give_back(lease),
    ):
        with pytest.raises(StaleLease):
            act()
    assert not jobs.heartbeat(lease.id, lease.epoch)
    assert jobs.begin_job(job_id, lease.epoch) is None
    assert Job.objects.values().get(id=job_id) == before
    assert jobs.heartbeat(taken.id, taken.epoch)


def test_an_unknown_kind_is_tried_again_and_then_fails_by_name():
    job_id = jobs.add_job("brew_coffee")
    job = kinds.advance(job_id)
    assert job.status == "queued"
    assert job.error_code == "unknown_kind"
    assert job.due_at > timezone.now()
    for _ in range(jobs.MOST_ATTEMPTS - 1):
        Job.objects.update(due_at=timezone.now() - timedelta(seconds=1))
        job = kinds.advance(job_id)
    assert job.status == "failed"
    assert "brew_coffee" in job.error


def test_a_job_that_raises_keeps_its_error_and_is_tried_again_later(monkeypatch):
    def broken(lease):
        yield Step(1, 2, place="here")
        raise ValueError("no such luck")

    monkeypatch.setitem(kinds.KINDS, "broken", broken)
    job = kinds.advance(jobs.add_job("broken"))
    assert job.status == "queued"
    assert job.error_code == "job_failed"
    assert job.error == "ValueError: no such luck"
    assert job.due_at > timezone.now()
    assert job.progress["place"] == "here"


def test_each_failed_attempt_of_a_job_is_counted(counting, watched, monkeypatch):
    kinds.advance(jobs.add_job("count"))
    assert watched.totals()["jobs_failed"] == 0

    def broken(lease):
        raise ValueError("no")
        yield

    monkeypatch.setitem(kinds.KINDS, "broken", broken)
    job_id = jobs.add_job("broken")
    for attempt in (1, 2):
        Job.objects.filter(id=job_id).update(due_at=timezone.now())
        kinds.run_job(job_id, jobs.claim_one(job_id))
        assert watched.totals()["jobs_failed"] == attempt


def test_a_lost_job_is_no_failed_attempt(watched, monkeypatch):
    def broken(lease):
        jobs.cancel_job(lease.id)
        raise ValueError("no")
        yield

    monkeypatch.setitem(kinds.KINDS, "broken", broken)
    job_id = jobs.add_job("broken")
    kinds.run_job(job_id, jobs.claim_one(job_id))
    assert watched.totals()["jobs_failed"] == 0


def test_a_job_that_kills_its_workers_stops(counting):
    job_id = jobs.add_job("count")
    for _ in range(jobs.MOST_ATTEMPTS):
        jobs.begin_job(job_id, jobs.claim_one(job_id))
        Job.objects.update(lease_until=timezone.now() - timedelta(hours=1))
    assert kinds.advance(job_id).status == "failed"
    assert row(job_id).error_code == "poison"


def test_the_same_name_is_queued_once_until_it_has_ended(counting):
    first = jobs.add_job("count", name="the count")
    assert jobs.add_job("count", name="the count") == first
    kinds.advance(first)
    assert jobs.add_job("count", name="the count") != first


def test_a_standing_job_comes_back(counting, monkeypatch):
    monkeypatch.setitem(kinds.STANDING, "count", 3600.0)
    job = kinds.advance(jobs.add_job("count", name="count"))
    assert job.status == "queued"
    assert job.progress == {}
    assert timedelta(minutes=59) < job.due_at - timezone.now() < timedelta(minutes=61)


def test_a_job_is_not_taken_before_it_is_due():
    job_id = jobs.add_job("count", due_in=3600)
    assert jobs.claim_one(job_id) is None
    assert not jobs.any_due()


def test_a_cancelled_job_is_taken_by_nobody_and_its_holder_finds_it_lost():
    waiting = jobs.add_job("count")
    begun = jobs.add_job("count")
    lease = jobs.begin_job(begun, jobs.claim_one(begun))
    assert jobs.cancel_job(waiting)
    assert jobs.cancel_job(begun)
    assert not jobs.cancel_job(begun)
    assert jobs.claim(worker=None, limit=9) == []
    with pytest.raises(StaleLease):
        jobs.finish_job(lease)


def test_jobs_that_ended_long_ago_are_swept(counting):
    old = kinds.advance(jobs.add_job("count"))
    new = kinds.advance(jobs.add_job("count"))
    Job.objects.filter(id=old.id).update(ended_at=timezone.now() - timedelta(days=31))
    kinds.advance(jobs.add_job("sweep_jobs"))
    assert set(Job.objects.filter(kind="count").values_list("id", flat=True)) == {
        new.id
    }


def test_the_broker_hands_out_jobs_beside_runs_and_never_more_than_it_has_slots(
    broker, counting
):
    run = slow()
    job_id = jobs.add_job("count")
    jobs.add_job("count")
    # The run is handed out before the look for jobs.
    in_turn = [
        [(task["func"], task["args"]) for task in fetched(broker)] for _ in "123"
    ]
    assert in_turn == [
        [(tasks.ADVANCE, (str(run.id), 1))],
        [(tasks.WORK, (str(job_id), 1))],
        [],
    ]
    tasks.work(str(job_id), 1)
    assert row(job_id).status == "done"
    assert broker.state.slots.free() == 1


def test_many_runs_do_not_keep_jobs_waiting_and_many_jobs_no_runs(
    broker, counting, monkeypatch
):
    monkeypatch.setattr(tasks, "GOING_ON_SECONDS", 0.0)
    for _ in range(12):
        slow()
        jobs.add_job("count")
    taken = []
    for _ in range(6):
        for task in fetched(broker):
            taken.append(task["func"])
            (tasks.work if task["func"] == tasks.WORK else tasks.advance)(*task["args"])
    assert taken.count(tasks.WORK) >= 4
    assert taken.count(tasks.ADVANCE) >= 4


def test_an_idle_look_for_jobs_costs_one_statement_a_second(
    broker, django_assert_num_queries, settings
):
    broker.dequeue()
    broker._presence._next = broker._renew_at = float("inf")
    with django_assert_num_queries(3):
        for _ in range(3):
            broker.dequeue()
    broker._order.jobs_notified()
    with django_assert_num_queries(2):
        broker.dequeue()


def test_a_job_that_nobody_begins_is_renewed_and_handed_back(broker):
    job_id = jobs.add_job("count")
    broker.dequeue()
    Job.objects.update(lease_until=timezone.now())
    broker._renew_at = 0.0
    broker.dequeue()
    assert jobs.claim_one(job_id) is None
    broker.state.drain()
    broker.dequeue()
    assert row(job_id).status == "queued"
    tasks.work(str(job_id), 1)
    assert row(job_id).attempts == 0


def test_a_new_job_wakes_an_idle_worker_at_once(broker, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip(
            "SQLite has no notifications: its workers look for jobs every second"
        )
    broker.dequeue()
    monkeypatch.setattr("orchestrator.worker.wait.NET_SECONDS", 30.0)
    jobs.add_job("count")
    broker.dequeue()
    assert [task["func"] for task in fetched(broker)] == [tasks.WORK]


def test_a_cluster_works_on_jobs(tmp_path):
    with cluster(tmp_path):
        job_id = jobs.add_job("sweep_jobs")
        run = slow()
        until(
            lambda: (
                row(job_id).status == "queued"
                and row(job_id).epoch > 0
                or row(job_id).status == "done"
            )
        )
        until(lambda: status(run) == "completed")
        until(
            lambda: Job.objects.filter(name="sweep_jobs", status="queued").count() == 1
        )
