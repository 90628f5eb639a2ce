"""A worker that has worked on what it was told of goes on to what is due next, in the
same slot, without a message.
"""

from datetime import timedelta
from functools import partial

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from checkpoints.models import Checkpoint, Job, Run
from checkpoints.queue import jobs, leases
from checkpoints.queue.jobs import Step
from orchestrator.execution import loop
from orchestrator.jobs import kinds
from orchestrator.worker import claimable, tasks
from tests.support.clusters import handed_out, slow, status
from tests.support.small_graphs import expire_lease

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def facts(broker):
    """Return what a worker process does that is told of one run: call it when others
    are due.
    """
    first = slow()
    (claim,) = handed_out(broker)
    assert str(first.id) == claim.id
    return partial(tasks.advance, claim.id, claim.epoch)


def statuses(*begun):
    return [status(run) for run in begun]


def hold_next():
    return leases.begin_next(worker=None, only=claimable.claimable())


def test_a_worker_goes_on_to_what_is_due_and_then_leaves_its_slot(broker, facts):
    others = [slow() for _ in range(3)]
    facts()
    assert statuses(*others) == ["completed"] * 3
    assert broker.state.slots.free() == len(broker.state.slots)
    assert set(Run.objects.values_list("epoch", "leased_by")) == {(2, None)}, (
        "each was claimed and begun once"
    )


def test_it_takes_the_most_urgent_first_and_leaves_what_is_not_due_and_what_it_does_not_know(
    broker, facts
):
    later = slow()
    foreign = slow()
    Run.objects.filter(id=later.id).update(due_at=timezone.now() + timedelta(hours=1))
    Run.objects.filter(id=foreign.id).update(graph="elsewhere", fingerprint="0" * 64)
    common = slow()
    urgent = slow()
    Run.objects.filter(id=urgent.id).update(priority=5)
    facts()
    assert statuses(common, urgent, later, foreign) == [
        "completed",
        "completed",
        "queued",
        "queued",
    ]
    urgent.refresh_from_db()
    common.refresh_from_db()
    assert urgent.started_at < common.started_at


def test_it_goes_on_for_so_long_only_that_the_cluster_sees_it_live(monkeypatch, facts):
    other = slow()
    monkeypatch.setattr(tasks, "GOING_ON_SECONDS", 0.0)
    facts()
    assert status(other) == "queued"


@pytest.fixture
def at_work(monkeypatch):
    """Have something done before the slices of other runs than the first, and after
    each. Gives the holds.
    """
    work_on = loop.run_begun_slice
    holds = []

    def between(before=lambda: None, after=lambda: None):
        def work(lease, **how):
            holds.append(lease)
            if len(holds) > 1:
                before()
            work_on(lease, **how)
            after()

        monkeypatch.setattr(loop, "run_begun_slice", work)
        return holds

    return between


def test_a_worker_that_drains_goes_on_to_nothing(broker, facts, at_work):
    at_work(after=broker.state.drain)
    other = slow()
    facts()
    other.refresh_from_db()
    assert other.status == "queued"
    assert other.epoch == 0


def test_a_worker_that_drains_gives_back_what_it_has_gone_on_to(broker, facts, at_work):
    at_work(before=broker.state.drain)
    other = slow()
    facts()
    other.refresh_from_db()
    assert other.status == "queued"
    assert other.epoch == 2
    assert other.claims_since_progress == 0


def test_a_job_that_it_has_gone_on_to_is_given_back_by_a_worker_that_drains(
    broker, facts, monkeypatch
):
    def long(lease):
        broker.state.drain()
        yield Step(1, 2, "half", place=1)
        yield Step(2, 2, "all", place=2)

    monkeypatch.setitem(kinds.KINDS, "long", long)
    job_id = jobs.add_job("long")
    facts()
    job = Job.objects.get(id=job_id)
    assert job.status == "queued"
    assert job.progress["place"] == 1


def test_what_it_has_gone_on_to_is_in_the_hands_of_its_cluster(broker, facts, at_work):
    leased = []
    holds = at_work(
        before=lambda: leased.extend(
            Run.objects.filter(status="running").values_list("leased_by")
        )
    )
    slow()
    facts()
    assert [lease.worker for lease in holds] == [broker.state.worker] * 2
    assert leased == [(broker.state.worker,)]


@pytest.mark.parametrize("broken", ["loop.run_begun_slice", "leases.begin_next"])
def test_whatever_fails_the_slot_is_left_and_nothing_is_raised(
    broker, facts, monkeypatch, broken
):
    def fail(*arguments, **how):
        raise OperationalError("gone")

    slow()
    where, name = {
        "loop.run_begun_slice": (loop, "run_begun_slice"),
        "leases.begin_next": (leases, "begin_next"),
    }[broken]
    monkeypatch.setattr(where, name, fail)
    facts()
    assert broker.state.slots.free() == len(broker.state.slots)


def test_runs_and_jobs_are_served_in_turns_without_messages_too(counting, facts):
    for _ in range(8):
        slow()
        jobs.add_job("count")
    facts()
    ended = sorted(
        [(at, "run") for at in Run.objects.values_list("ended_at", flat=True)]
        + [
            (at, "job")
            for at in Job.objects.filter(kind="count").values_list(
                "ended_at", flat=True
            )
        ]
    )
    first = [what for _, what in ended[:9]]
    assert first.count("run") >= 4
    assert first.count("job") >= 4


def test_to_take_and_begin_the_next_is_what_a_claim_and_a_beginning_are_in_one_statement():
    first = slow()
    other = slow()
    (claim,) = leases.claim(worker=None, limit=1, only=claimable.claimable())
    assert claim.id == first.id
    in_two = leases.begin_lease(claim.id, claim.epoch)
    only = claimable.claimable()
    with CaptureQueriesContext(connection) as seen:
        at_once = leases.begin_next(worker=None, only=only)
    assert sum("UPDATE" in query["sql"] for query in seen) == 1
    assert at_once.id == other.id
    own = {
        "id",
        "key",
        "label",
        "started_at",
        "head",
        "head_hash",
        "end",
        "seal",
        "cover",
        "skew",
    }
    for name in set(leases.Lease.__slots__) - own:
        assert getattr(at_once, name) == getattr(in_two, name), name
    rows = [
        Run.objects.values("status", "epoch", "claims_since_progress").get(id=run.id)
        for run in (first, other)
    ]
    assert rows == [{"status": "running", "epoch": 2, "claims_since_progress": 1}] * 2
    assert hold_next() is None, "both are leased"
    loop.run_begun_slice(at_once)
    assert status(other) == "completed"


def test_what_was_taken_and_begun_at_once_counts_towards_poison():
    run = slow()
    for begun in range(1, 4):
        assert hold_next().claims == begun
        expire_lease(run)


def test_who_lost_the_run_to_one_that_took_and_began_it_at_once_changes_nothing():
    run = slow()
    late = hold_next()
    expire_lease(run)
    lease = hold_next()
    assert late.epoch == 2
    assert lease.epoch == 4
    loop.run_begun_slice(late)
    assert not leases.heartbeat(run.id, late.epoch)
    assert status(run) == "running"
    loop.run_begun_slice(lease)
    assert status(run) == "completed"


def test_on_sqlite_a_look_that_finds_nothing_writes_nothing(django_assert_num_queries):
    only = claimable.claimable()
    with django_assert_num_queries(1), CaptureQueriesContext(connection) as seen:
        assert leases.begin_next(worker=None, only=only) is None
    assert connection.vendor == "postgresql" or "UPDATE" not in seen[0]["sql"]


def test_what_a_worker_does_is_counted_in_the_sums_of_its_slot(broker, watched, facts):
    others = [slow() for _ in range(2)]
    facts()
    assert statuses(*others) == ["completed"] * 2
    totals = watched.totals()
    assert totals["runs_claimed"] == 3
    assert totals["leases_lost"] == totals["slices_failed"] == 0
    assert sum(totals["superstep_buckets"]) >= 3
    rows = Checkpoint.objects.exclude(superstep=0)
    assert totals["checkpoints"] == rows.count()
    assert totals["checkpoint_bytes"] == sum(row.stored_size for row in rows)


def test_a_slice_that_fails_is_counted(broker, watched, facts, monkeypatch):
    def fail(*of_slice, **options):
        raise RuntimeError

    monkeypatch.setattr(loop, "run_slice", fail)
    facts()
    assert watched.totals()["slices_failed"] == 1
