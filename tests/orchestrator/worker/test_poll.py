"""A project's own task queue can carry the work: a doorbell says "look", and a look
does what is due.
"""

import pytest
from django.db import transaction

from checkpoints.models import Job
from checkpoints.queue import jobs
from orchestrator.checks import check_settings
from orchestrator.worker.poll import look
from tests.support.clusters import slow, status

pytestmark = pytest.mark.django_db(transaction=True)
RINGS = []


def doorbell():
    RINGS.append("ring")


def broken_doorbell():
    RINGS.append("broken")
    raise ConnectionError("the queue is down")


@pytest.fixture
def ring_by(configure):
    RINGS.clear()

    def named(name):
        configure(DOORBELL=f"{__name__}.{name}")
        return RINGS

    return named


def test_the_doorbell_rings_after_the_commit_and_not_before(ring_by):
    rings = ring_by("doorbell")
    with transaction.atomic():
        slow()
        jobs.add_job("sweep_jobs")
        assert rings == []
    assert rings == ["ring", "ring"]


def test_a_start_that_is_rolled_back_rings_nothing(ring_by):
    rings = ring_by("doorbell")
    with transaction.atomic():
        slow()
        transaction.set_rollback(True)
    assert rings == []


def test_a_doorbell_that_fails_loses_no_run(ring_by):
    rings = ring_by("broken_doorbell")
    run = slow()
    assert rings == ["broken"]
    assert status(run) == "queued"


def test_a_look_does_what_is_due_and_a_second_one_nothing(ring_by):
    ring_by("doorbell")
    first = slow()
    second = slow()
    job_id = jobs.add_job("brew_coffee")
    look()
    assert status(first) == "completed"
    assert status(second) == "completed"
    assert Job.objects.get(id=job_id).error_code == "unknown_kind"
    assert look() == 0


def test_a_look_ends_after_so_many_slices():
    begun = [slow() for _ in range(4)]
    assert look(2) == 2
    assert sorted(status(run) for run in begun) == [
        "completed",
        "completed",
        "queued",
        "queued",
    ]


@pytest.mark.parametrize(
    "name",
    [
        5,
        "tests.orchestrator.worker.test_poll.missing",
        "no.such.module",
        "tests.orchestrator.worker.test_poll.RINGS",
    ],
)
def test_a_doorbell_that_is_no_function_is_refused_at_start_up(configure, name):
    configure(DOORBELL=name)
    assert [error.id for error in check_settings(None)] == ["orchestrator.E001"]
