"""A result that is not as it was recorded is never used, never covered up by a new
seal, and nothing is done twice.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.models import AuditLine, LateResult, Run, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from tests.support import cast
from tests.support import sealed_graphs as graphs
from tests.support.forging import remove, tamper
from tests.support.processes import calls
from tests.support.run_actions import reviewer, sign
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import held

pytestmark = pytest.mark.django_db(transaction=True)
PAY = Task("pay", 1)


@pytest.fixture(autouse=True)
def one_key(configure: Any) -> None:
    configure(**ONE_KEY)


@pytest.fixture
def rita(people: cast.People) -> User:
    return reviewer(people.reviewer)


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def approved(request: pytest.FixtureRequest, tmp_path: Path, rita: User) -> Run:
    """A run that is signed and not worked on yet."""
    run = graphs.started(tmp_path, encrypted=request.param)
    sign(run, rita, ["approve", "approve"])
    return run


def _paid_and_killed(run: Run) -> TaskResult:
    """The superstep of `pay` cut off after its result was recorded; the lease has run
    out.
    """
    lease = held(run)
    journal.write_intents(lease, [Intent(PAY, 1, "external", "x", 60.0)])
    journal.write_results(lease, [Ending(PAY, 1, "done", {"writes": []})])
    Run.objects.filter(id=run.id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    return TaskResult.objects.get(run=run)


def _unknown(run: Run) -> Run:
    """The run, stopped because nobody knows whether `pay` happened."""
    graphs.broken.add("pay")
    run = runs.advance(run.id)
    graphs.broken.clear()
    assert run.status == Status.UNKNOWN
    return run


@pytest.mark.parametrize(
    "changed",
    [
        {"output": pack_json({"writes": [{"channel": "letter", "value": "forged"}]})},
        {"input_hash": "0" * 64},
        {"outcome": Outcome.NOT_DONE},
        {"outcome": Outcome.FAILED},
        {"attempt": 2},
        {"visit": 2},
        {"seal": b""},
    ],
    ids=lambda changed: " ".join(changed),
)
def test_a_result_that_was_changed_is_not_used_and_its_effect_is_not_made_again(
    changed: dict[str, Any], approved: Run, tmp_path: Path
) -> None:
    tamper(_paid_and_killed(approved), **changed)
    run = runs.advance(approved.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert calls(tmp_path) == []


def test_a_result_that_is_as_it_was_recorded_verifies_after_each_of_its_changes(
    approved: Run,
) -> None:
    row = _paid_and_killed(approved)
    protection = protection_of(approved)
    sealed_rows.verify_row(row, protection)
    seals = {bytes(row.seal or b"")}
    for outcome in (Outcome.UNKNOWN, Outcome.NOT_DONE):
        journal.amend_result(row, protection, outcome=outcome)
        row.refresh_from_db()
        sealed_rows.verify_row(row, protection)
        seals.add(bytes(row.seal or b""))
    assert len(seals) == 3
    assert read_value(row, "output") == {"writes": []}


def test_an_intent_that_was_changed_is_not_closed_under_a_new_seal_and_what_happened_is_kept(
    approved: Run,
) -> None:
    lease = held(approved)
    journal.write_intents(lease, [Intent(PAY, 1, "external", "x", 60.0)])
    row = TaskResult.objects.get(run=approved)
    tamper(row, over_at=timezone.now())
    with pytest.raises(TamperedRow):
        journal.write_results(lease, [Ending(PAY, 1, "done", {"writes": []})])
    row.refresh_from_db()
    assert row.outcome == Outcome.OPEN
    late = LateResult.objects.get(run=approved)
    sealed_rows.verify_row(late, lease.protection)
    assert read_value(late, "output") == {"writes": []}


def test_an_outcome_that_was_changed_cannot_be_settled(
    tmp_path: Path, approved: Run, people: cast.People
) -> None:
    run = _unknown(approved)
    row = TaskResult.objects.get(run=run)
    tamper(row, over_at=timezone.now() - timedelta(hours=1))
    with pytest.raises(TamperedRow, match="is not as it was sealed"):
        runs.settle(run.id, "pay:1:0", happened=False, by=people.starter, reason="no")
    assert calls(tmp_path) == []


def test_the_reason_of_whoever_settled_is_kept_encrypted_where_the_run_is(
    approved: Run, people: cast.People
) -> None:
    run = _unknown(approved)
    runs.settle(
        run.id, "pay:1:0", happened=True, by=people.starter, reason="the bank said so"
    )
    row = TaskResult.objects.get(run=run)
    sealed_rows.verify_row(row, protection_of(run))
    assert read_value(row, "settled_reason") == "the bank said so"
    assert (b"the bank" in bytes(row.settled_reason)) is not run.encrypted
    assert runs.advance(run.id).status == Status.COMPLETED


def test_a_result_that_was_deleted_before_its_superstep_was_saved_does_not_let_its_effect_run_again(
    approved: Run, tmp_path: Path
) -> None:
    remove(_paid_and_killed(approved))
    run = runs.advance(approved.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert calls(tmp_path) == []


def test_an_unknown_outcome_that_was_deleted_does_not_let_its_effect_run_again(
    approved: Run, tmp_path: Path
) -> None:
    run = _unknown(approved)
    remove(TaskResult.objects.get(run=run))
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert calls(tmp_path) == []


def test_a_result_that_was_deleted_does_not_let_its_effect_run_again(
    approved: Run, tmp_path: Path
) -> None:
    run = runs.advance(approved.id)
    assert run.status == Status.COMPLETED
    made = calls(tmp_path)
    remove(TaskResult.objects.get(run=run))
    assert runs.advance(run.id).status == Status.COMPLETED
    assert calls(tmp_path) == made


def test_a_line_of_the_audit_log_is_sealed(people: cast.People) -> None:
    audit_log.record("refused_resume", actor=people.starter, node="x")
    row = AuditLine.objects.get()
    sealed_rows.verify_row(row, sealed_rows.PLAIN)
    tamper(row, actor_name="mallory")
    row.refresh_from_db()
    with pytest.raises(TamperedRow):
        sealed_rows.verify_row(row, sealed_rows.PLAIN)
