"""With SQL alone nobody puts in a job of his own, changes what a job is for, or moves
it past what it must do.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from checkpoints.models import AuditLine, Job
from checkpoints.queue import jobs
from checkpoints.queue.jobs import Step
from orchestrator.jobs import kinds
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

RULE = {"graph": "claims", "keep_last": 0}


def _begun(job: Any) -> jobs.JobLease | None:
    epoch = jobs.claim_one(job)
    assert epoch is not None
    return jobs.begin_job(job, epoch)


def _error(job: Any) -> tuple[str, str]:
    row = Job.objects.get(id=job)
    return row.status, row.error_code


def test_a_job_that_was_put_in_by_sql_is_not_begun() -> None:
    now = timezone.now() - timedelta(minutes=1)
    row = Job.objects.create(kind="prune_runs", facts=RULE, due_at=now, created_at=now)
    assert _begun(row.id) is None
    assert _error(row.id) == ("failed", "tampered_row")


@pytest.mark.parametrize(
    "change",
    [{"facts": RULE | {"keep_last": 1}}, {"kind": "erase_values"}, {"name": "other"}],
)
def test_a_job_whose_purpose_was_changed_is_not_begun(change: dict[str, Any]) -> None:
    job = jobs.add_job("prune_runs", name="prune_runs claims", **RULE)
    Job.objects.filter(id=job).update(**change)
    assert _begun(job) is None
    assert _error(job) == ("failed", "tampered_row")


def test_a_seal_of_another_job_proves_nothing() -> None:
    job = jobs.add_job("prune_runs", **RULE)
    other = jobs.add_job("prune_runs", graph="letters")
    row = Job.objects.get(id=job)
    Job.objects.filter(id=other).update(facts=row.facts, facts_seal=row.facts_seal)
    assert _begun(other) is None


def test_a_verification_whose_place_was_set_records_nothing() -> None:
    job = jobs.add_job("verify_runs", runs=[], graph="", since="", mark=False)
    place = {"checked": 9, "failed": 0, "last": "f" * 32, "bad": [], "chain": None}
    Job.objects.filter(id=job).update(progress={"place": place})
    kinds.advance(job)
    assert _error(job) == ("failed", "tampered_row")
    assert not AuditLine.objects.filter(kind="runs_verified").exists()


def test_a_job_goes_on_from_the_place_that_it_reported() -> None:
    job = jobs.add_job("some", graph="g", share=1e16)
    lease = _begun(job)
    assert lease is not None
    jobs.report(lease, Step(1, place={"seconds": 0.5, "rows": 1e16, "last": ["a"]}))
    jobs.give_back(lease)
    again = _begun(job)
    assert again is not None
    assert again.place == {"seconds": 0.5, "rows": 1e16, "last": ["a"]}


def test_the_seals_are_read_in_the_same_statement() -> None:
    epoch_of = jobs.claim_one
    job = jobs.add_job("some", graph="g")
    epoch = epoch_of(job)
    assert epoch is not None
    with counted() as statements:
        assert jobs.begin_job(job, epoch) is not None
    assert len(statements) == 1


def test_a_job_without_facts_needs_no_seal() -> None:
    now = timezone.now() - timedelta(minutes=1)
    row = Job.objects.create(kind="sweep_jobs", due_at=now, created_at=now)
    assert _begun(row.id) is not None
