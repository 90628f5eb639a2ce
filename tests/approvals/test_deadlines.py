"""A deadline decides what people have left open, once, as a signature of the system."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals import deadlines
from approvals.gates.deadline_jobs import KIND
from approvals.models import ApprovalRequest, Decision
from checkpoints.models import AuditLine, Job, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import AlreadyDecided, WrongStatus
from tests.support import cast, run_actions
from tests.support.deadlines import HOUR, let_come, paused_run, work_off
from tests.support.forging import remove, rewrite, tamper
from tests.support.run_actions import event_payloads, log, request, sign, state

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


def verdicts(run: Run) -> list[tuple[str, str]]:
    rows = Decision.objects.filter(run=run.id).order_by("event_seq")
    return [(row.by_name, row.verdict) for row in rows]


def test_a_request_has_its_deadline_and_a_job_for_it() -> None:
    before = timezone.now()
    run = paused_run()
    asked = request(run)
    assert before + HOUR <= asked.deadline <= timezone.now() + HOUR
    assert asked.policy["on_deadline"] == "reject"
    job = Job.objects.get(run=run.id)
    assert (job.kind, job.due_at) == (KIND, asked.deadline)
    assert job.facts == {"request": str(asked.id)}
    assert verify_run(run.id) == []


def test_a_gate_without_a_deadline_has_neither_job_nor_word_of_it() -> None:
    run = paused_run(deadline=None)
    assert request(run).deadline is None
    assert "on_deadline" not in request(run).policy
    assert not Job.objects.filter(run=run.id).exists()


def test_at_the_deadline_what_is_open_is_rejected_and_the_run_goes_on() -> None:
    run = paused_run()
    let_come(run)
    [job] = work_off(run)
    assert job.status == "done"
    assert verdicts(run) == [("the deadline", "reject")] * 2
    assert request(run).outcome == "rejected"
    run = runs.advance(run.id)
    assert run.status == "rejected"
    assert state(run)["letter"] == ""
    assert verify_run(run.id) == []


def test_what_people_settled_before_keeps_its_verdict(rita: Any) -> None:
    run = paused_run()
    sign(run, rita, ["approve", None])
    let_come(run)
    work_off(run)
    run = runs.advance(run.id)
    assert verdicts(run) == [("rita", "approve"), ("the deadline", "reject")]
    assert request(run).outcome == "partial"
    assert state(run)["letter"] == "Dear Marta"
    assert state(run)["total"] == 0
    assert verify_run(run.id) == []


def test_it_settles_whatever_the_quorums_and_four_eyes(rita: Any) -> None:
    run = paused_run(quorum=3, reject_quorum=3, four_eyes=True)
    sign(run, rita, ["approve", ("edit", 5)])
    let_come(run)
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_under_all_or_nothing_it_rejects_all(rita: Any) -> None:
    run = paused_run(all_or_nothing=True)
    sign(run, rita, ["approve", None])
    let_come(run)
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_advance_meets_a_deadline_that_has_come_without_its_job() -> None:
    run = paused_run()
    let_come(run)
    assert runs.advance(run.id).status == "rejected"
    # Its job comes afterwards, and finds nothing to decide.
    count = Run.objects.get(id=run.id).event_seq
    assert [job.status for job in work_off(run)] == ["done"]
    assert Run.objects.get(id=run.id).event_seq == count


def test_who_signs_after_it_is_answered_with_its_name(rita: Any) -> None:
    run = paused_run()
    let_come(run)
    work_off(run)
    with pytest.raises(AlreadyDecided) as answer:
        sign(run, rita, ["approve", "approve"])
    assert answer.value.facts["by"] == ["the deadline"]
    assert "the deadline" in answer.value.message


def test_it_comes_too_late_where_people_have_signed(rita: Any) -> None:
    run = paused_run()
    sign(run, rita, ["approve", "approve"])
    let_come(run)
    work_off(run)
    assert verdicts(run) == [("rita", "approve")] * 2
    assert runs.advance(run.id).status == "completed"


def test_a_job_that_comes_early_decides_nothing_and_comes_again() -> None:
    run = paused_run()
    Job.objects.filter(run=run.id).update(due_at=timezone.now())
    work_off(run)
    assert verdicts(run) == []
    again = Job.objects.get(run=run.id, status="queued")
    assert again.due_at == request(run).deadline
    assert verify_run(run.id) == []


def test_in_a_cancelled_run_it_decides_nothing(people: cast.People) -> None:
    run = paused_run()
    let_come(run)
    runs.cancel(run.id, by=people.steward)
    assert not deadlines.meet_deadline(run.id, request(run).id)
    assert [job.status for job in work_off(run)] == ["cancelled"]
    with pytest.raises(WrongStatus):
        sign(run, run_actions.reviewer(people.reviewer), ["approve", "approve"])


def test_its_lines_in_log_and_audit_name_it() -> None:
    run = paused_run()
    let_come(run)
    work_off(run)
    assert log(run)[-3:] == ["decision_signed"] * 2 + ["request_settled"]
    assert event_payloads(run, "request_settled")[0]["outcome"] == "rejected"
    line = AuditLine.objects.get(kind="deadline_passed")
    assert (line.run, line.actor_name) == (run.id, "")
    assert line.facts["verdicts"] == {"reject": 2}


def test_a_decision_before_the_deadline_is_named(rita: Any) -> None:
    run = paused_run()
    let_come(run)
    work_off(run)
    rewrite(request(run), deadline=timezone.now() + HOUR)
    faults = verify_run(run.id)
    assert any("no such deadline" in fault.reason for fault in faults)


def test_a_removed_decision_of_a_deadline_is_named() -> None:
    run = paused_run()
    let_come(run)
    work_off(run)
    row = Decision.objects.filter(run=run.id).first()
    assert row is not None
    remove(row)
    assert any("of the deadline" in fault.reason for fault in verify_run(run.id))


@pytest.mark.parametrize("change", ["removed", "put off", "of another request"])
def test_a_job_that_would_not_meet_the_deadline_is_named(change: str) -> None:
    run = paused_run()
    job = Job.objects.get(run=run.id)
    if change == "removed":
        job.delete()
    elif change == "put off":
        tamper(job, due_at=job.due_at + timedelta(days=1))
    else:
        tamper(job, facts={"request": str(run.id)})
    [fault] = verify_run(run.id)
    assert "no job" in fault.reason


def test_a_request_whose_row_was_changed_leaves_the_run_tampered() -> None:
    run = paused_run()
    row = ApprovalRequest.objects.get(run=run)
    tamper(row, deadline=timezone.now() - HOUR)
    Job.objects.filter(run=run.id).update(due_at=timezone.now())
    work_off(run)
    assert Run.objects.get(id=run.id).status == "tampered"
    assert verdicts(run) == []
