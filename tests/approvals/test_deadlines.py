"""A deadline decides what people have left open, once, as a signature of the system."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals import deadlines
from approvals.exported_receipt import export_receipt
from approvals.gates.deadline_jobs import KIND
from approvals.gates.request_state import why_of
from approvals.models import ApprovalRequest, Decision
from checkpoints.core.ids import uuid7
from checkpoints.models import AuditLine, Job, Run
from checkpoints.queue import jobs, notify
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import DEADLINE_UNMET, verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Command, Fact, Gate, Graph, Send, Show
from orchestrator.engine.errors import AlreadyDecided, WrongStatus
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from tests.support import cast, run_actions
from tests.support.bundles import PUBLIC, exported, forgotten, loaded
from tests.support.deadlines import HOUR, let_come, paused_run, work_off
from tests.support.forging import remove, rewrite, tamper
from tests.support.run_actions import (
    event_payloads,
    log,
    pending,
    request,
    sign,
    state,
)
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced, graph, slice_of
from tests.support.statements import counted

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
    open_request = request(run)
    assert before + HOUR <= open_request.deadline <= timezone.now() + HOUR
    assert open_request.policy["on_deadline"] == "reject"
    job = Job.objects.get(run=run.id)
    assert (job.kind, job.due_at) == (KIND, open_request.deadline)
    assert job.facts == {"request": str(open_request.id)}
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


def test_whoever_looks_silence_does_not_act_before_its_job_is_due(
    people: cast.People,
) -> None:
    run = paused_run()
    let_come(run)
    [job] = Job.objects.filter(run=run.id)
    jobs.pause_job(job.id)
    assert runs.advance(run.id).status == "paused"
    # Neither does a resume give it another job.
    Run.objects.filter(id=run.id).update(status="incompatible")
    runs.resume(run.id, by=people.steward)
    assert runs.advance(run.id).status == "paused"
    assert verdicts(run) == []
    jobs.continue_job(job.id)
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_a_job_that_nobody_sealed_makes_no_deadline_due() -> None:
    run = paused_run()
    let_come(run)
    [job] = Job.objects.filter(run=run.id)
    jobs.pause_job(job.id)
    forged = Job(id=uuid7(), kind=KIND, run=run.id, facts=job.facts)
    forged.due_at = forged.created_at = timezone.now()
    forged.facts_seal = job.facts_seal
    forged.save()
    assert not deadlines.meet_due_deadlines(run.id)
    assert verdicts(run) == []


def test_who_signs_after_it_is_answered_with_its_name(rita: Any) -> None:
    run = paused_run()
    let_come(run)
    work_off(run)
    with pytest.raises(AlreadyDecided) as answer:
        sign(run, rita, ["approve", "approve"])
    assert answer.value.facts["by"] == ["the deadline"]
    assert "the deadline" in answer.value.message


def test_who_signs_what_a_person_settled_before_it_is_answered_with_that_name(
    rita: Any, people: cast.People
) -> None:
    run = paused_run(on_deadline="fail")
    sign(run, rita, ["approve", None])
    let_come(run)
    work_off(run)
    ravi = run_actions.reviewer(people.second_reviewer)
    with pytest.raises(AlreadyDecided) as answer:
        sign(run, ravi, ["approve", None])
    assert answer.value.facts["by"] == ["rita"]
    with pytest.raises(AlreadyDecided) as answer:
        sign(run, ravi, [None, "approve"])
    assert answer.value.facts["by"] == ["the deadline"]


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


def test_on_approve_it_approves_what_the_node_proposed() -> None:
    run = paused_run(on_deadline="approve", quorum=2)
    let_come(run)
    work_off(run)
    assert verdicts(run) == [("the deadline", "approve")] * 2
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["letter"] == "Dear Marta"
    assert verify_run(run.id) == []


@pytest.mark.parametrize("gate", [{"four_eyes": True}, {"quorum": 2}])
def test_on_approve_an_edit_that_lacks_signatures_is_not_what_is_approved(
    rita: Any, gate: dict[str, Any]
) -> None:
    run = paused_run(on_deadline="approve", title="To: {letter}", **gate)
    sign(run, rita, [("edit", "Dear Mallory"), None])
    assert pending(run)[0].revision == 2
    let_come(run)
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["letter"] == "Dear Marta"
    assert pending(run)[0].revision == 3
    assert pending(run)[0].author_id is None
    assert verify_run(run.id) == []


def test_on_approve_no_wording_of_an_unfinished_edit_stays(rita: Any) -> None:
    facts = [Fact("Letter", "proposal.letter")]
    run = paused_run(
        on_deadline="approve", title="{proposal.letter}", facts=facts, four_eyes=True
    )
    proposed = _texts_of(run)
    sign(run, rita, [("edit", "Dear Mallory"), None])
    assert [row.revision for row in pending(run)] == [2, 2]
    assert "Mallory" in str(_texts_of(run))
    let_come(run)
    run = runs.advance(run.id)
    assert state(run)["letter"] == "Dear Marta"
    assert _texts_of(run) == proposed
    assert verify_run(run.id) == []


def test_on_approve_an_edit_that_is_settled_stays_in_the_words_of_the_request(
    rita: Any, people: cast.People
) -> None:
    title = "{proposal.letter}, {proposal.total}"
    run = paused_run(on_deadline="approve", title=title, four_eyes=True)
    ravi = run_actions.reviewer(people.second_reviewer)
    sign(run, rita, [("edit", "Dear Martha"), None])
    sign(run, rita, [None, ("edit", 40)])
    sign(run, ravi, ["approve", None])
    assert read_value(request(run), "title") == "Dear Martha, 40"
    let_come(run)
    run = runs.advance(run.id)
    assert (state(run)["letter"], state(run)["total"]) == ("Dear Martha", 4)
    assert read_value(request(run), "title") == "Dear Martha, 4"
    assert read_value(pending(run)[1], "shown")["title"] == "Dear Martha, 4"
    assert verify_run(run.id) == []


def _texts_of(run: Run) -> list[Any]:
    """Title and facts of a run's request, and those beside each of its writes."""
    open_request = request(run)
    texts = [read_value(open_request, "title"), read_value(open_request, "facts")]
    for row in pending(run):
        shown = read_value(row, "shown")
        texts += [shown["title"], shown["facts"]]
    return texts


def test_on_approve_an_edit_that_is_settled_stays(rita: Any) -> None:
    run = paused_run(on_deadline="approve")
    sign(run, rita, [("edit", "Dear Martha"), None])
    let_come(run)
    run = runs.advance(run.id)
    assert state(run)["letter"] == "Dear Martha"
    assert state(run)["total"] == 4
    assert verify_run(run.id) == []


def test_on_approve_under_all_or_nothing_a_rejection_still_rejects_all(
    rita: Any,
) -> None:
    run = paused_run(on_deadline="approve", all_or_nothing=True, reject_quorum=2)
    sign(run, rita, ["reject", None])
    let_come(run)
    assert runs.advance(run.id).status == "completed"
    run = paused_run("as-one", on_deadline="approve", all_or_nothing=True)
    sign(run, rita, ["reject", None])
    let_come(run)
    assert runs.advance(run.id).status == "rejected"


def test_silence_never_approves_what_a_person_patched(people: cast.People) -> None:
    run = paused_run(on_deadline="approve", writes={"letter": Show()})
    fork = runs.fork(
        run.head, patch={"scratch": {"letter": "Dear Mallory"}}, by=people.steward
    )
    fork = runs.advance(fork.id)
    requests = ApprovalRequest.objects.filter(run=fork, status="open")
    kinds = {row.node: row.policy["on_deadline"] for row in requests}
    assert kinds == {"$patch": "reject", "propose": "approve"}
    let_come(fork)
    assert runs.advance(fork.id).status == "rejected"
    assert state(fork)["letter"] == ""
    assert verify_run(fork.id) == []


def _two_letters() -> Run:
    """A run at two gates that hold a letter each; silence approves the first."""
    flow = graph("two-letters")
    silent = Gate(reviewers=["group:claims"], deadline=HOUR, on_deadline="approve")

    def proposing(name: str, gate: Gate) -> None:
        @flow.node(name, effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"letter": name}

        flow.edge(START, name)
        flow.edge(name, END)

    proposing("silent", silent)
    proposing("signed", Gate(reviewers=["group:claims"]))
    return advanced(flow)


def test_a_write_that_comes_back_after_its_deadline_meets_it_at_once(rita: Any) -> None:
    run = _two_letters()
    sign(
        run, rita, ["approve" if row.node == "signed" else None for row in pending(run)]
    )
    let_come(run)
    approval_request = ApprovalRequest.objects.get(run=run, node="silent")
    assert deadlines.meet_deadline(run.id, approval_request.id)
    # The letter that was settled first is applied; the other one comes back.
    slice_of(run)
    approval_request.refresh_from_db()
    assert approval_request.status == "open"
    assert verify_run(run.id) == []
    # The job of its deadline is still in the queue, so that there is no second one.
    assert [job.status for job in work_off(run)] == ["done"]
    run = runs.advance(run.id)
    assert state(run)["letter"] == "silent"
    by_deadline = Decision.objects.filter(run=run.id, by=None).order_by("event_seq")
    assert [row.revision for row in by_deadline] == [1, 2]
    assert verify_run(run.id) == []


def test_a_fork_that_asks_again_has_a_deadline_of_its_own(people: cast.People) -> None:
    run = paused_run()
    let_come(run)
    fork = runs.fork(run.head, by=people.steward)
    approval_request = ApprovalRequest.objects.get(run=fork)
    assert approval_request.deadline > timezone.now() + HOUR - timedelta(minutes=5)
    assert Job.objects.get(run=fork.id).due_at == approval_request.deadline
    assert runs.advance(run.id).status == "rejected"
    assert runs.advance(fork.id).status == "paused"


def test_a_run_that_goes_back_asks_again_with_a_new_deadline(
    people: cast.People,
) -> None:
    run = paused_run()
    runs.rewind(run.id, run.head, by=people.steward)
    [job] = Job.objects.filter(run=run.id, status="queued")
    approval_request = ApprovalRequest.objects.get(run=run, line=2)
    assert job.facts == {"request": str(approval_request.id)}
    assert verify_run(run.id) == []


def test_a_function_that_fails_leaves_no_deadline_and_page_and_log_say_so() -> None:
    def breaks(now: Any, state: Any) -> Any:
        raise LookupError(f"no calendar for {state.total}")

    run = paused_run(deadline=breaks)
    open_request = request(run)
    assert open_request.deadline is None
    assert open_request.policy["reads"] == ["total"]
    assert "no calendar for 0" in why_of(open_request)
    [warning] = event_payloads(run, "warning")
    assert warning["code"] == "no_deadline"
    assert "no calendar for 0" in warning["message"]
    assert verify_run(run.id) == []


def test_a_patch_of_what_the_function_read_waits_for_the_people_of_the_gate(
    people: cast.People,
) -> None:
    def later(now: Any, state: Any) -> Any:
        return now + timedelta(hours=1 + state.total)

    run = paused_run(deadline=later)
    fork = runs.fork(run.head, patch={"scratch": {"total": 9}}, by=people.steward)
    requests = ApprovalRequest.objects.filter(run=fork).order_by("node")
    assert [row.node for row in requests] == ["$patch", "propose"]
    # The patch does not give itself more time either.
    latest = timezone.now() + timedelta(hours=2)
    assert all(row.deadline < latest for row in requests)


def test_a_resumed_run_gets_its_jobs_anew(people: cast.People) -> None:
    run = paused_run()
    Job.objects.filter(run=run.id).delete()
    Run.objects.filter(id=run.id).update(status="tampered")
    runs.resume(run.id, by=people.steward)
    assert Job.objects.filter(run=run.id, status="queued").count() == 1


def test_bundles_and_receipts_carry_what_a_deadline_decided(
    configure: Any, people: cast.People
) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})
    run = paused_run(on_deadline="approve")
    let_come(run)
    run = runs.advance(run.id)
    row = Decision.objects.filter(run=run.id).first()
    assert row is not None
    receipt = json.loads(export_receipt(row.id))
    assert json.loads(base64.b64decode(receipt["payload"]))["decision"]["by"] == (
        "the deadline"
    )
    data = exported(run)
    forgotten(run)
    imported = loaded(data)
    assert verify_run(imported.id) == []
    assert verdicts(imported) == [("the deadline", "approve")] * 2


def test_on_fail_the_run_fails_and_a_resume_asks_again_with_a_new_deadline(
    rita: Any, people: cast.People
) -> None:
    run = paused_run(on_deadline="fail", quorum=2)
    sign(run, rita, [("edit", "Dear Mallory"), "approve"])
    let_come(run)
    [job] = work_off(run)
    assert job.status == "done"
    first = request(run)
    assert first.status == "expired"
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == ("failed", "deadline_passed")
    assert verify_run(run.id) == []
    with pytest.raises(AlreadyDecided) as late:
        sign(run, rita, ["approve", "approve"])
    assert late.value.facts["by"] == ["the deadline"]

    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    second = ApprovalRequest.objects.get(run=run, ordinal=1)
    assert second.status == "open"
    assert second.deadline > timezone.now()
    assert Job.objects.get(run=run.id, status="queued").due_at == second.deadline
    assert [row.revision for row in pending(run)] == [3, 2]
    assert verify_run(run.id) == []

    ravi = run_actions.reviewer(people.second_reviewer)
    sign(run, rita, ["approve", "approve"])
    sign(run, ravi, ["approve", "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert state(run)["letter"] == "Dear Marta"
    assert verify_run(run.id) == []


def test_on_fail_a_deadline_may_pass_again_and_a_fork_asks_too(
    people: cast.People,
) -> None:
    run = paused_run(on_deadline="fail")
    for _ in range(2):
        let_come(run)
        run = runs.advance(run.id)
        assert (run.status, run.error_code) == ("failed", "deadline_passed")
        assert verify_run(run.id) == []
        runs.resume(run.id, by=people.steward)
        run = runs.advance(run.id)
        assert run.status == "paused"
    assert ApprovalRequest.objects.filter(run=run).count() == 3
    fork = runs.advance(runs.fork(run.head, by=people.steward).id)
    assert fork.status == "paused"
    assert verify_run(fork.id) == []
    assert log(run).count("request_expired") == 2


def test_on_fail_a_cancelled_run_stays_cancelled(people: cast.People) -> None:
    run = paused_run(on_deadline="fail")
    let_come(run)
    work_off(run)
    runs.cancel(run.id, by=people.steward)
    assert runs.advance(run.id).status == "cancelled"
    assert verify_run(run.id) == []


def test_a_deadline_that_comes_in_an_imported_run_decides_nothing(
    configure: Any,
) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})
    run = paused_run()
    let_come(run)
    data = exported(run)
    forgotten(run)
    imported = runs.advance(loaded(data).id)
    assert request(imported).status == "open"
    assert verify_run(imported.id) == []


def test_a_deadline_acts_however_often_its_job_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = paused_run()
    let_come(run)

    def fail(run_id: Any, request_id: Any) -> bool:
        raise RuntimeError("a lock could not be had")

    rows = Job.objects.filter(run=run.id, kind=KIND)
    with monkeypatch.context() as broken:
        broken.setattr(deadlines, "meet_deadline", fail)
        for _ in range(jobs.MOST_ATTEMPTS + 2):
            rows.update(due_at=timezone.now() - timedelta(minutes=1))
            [job] = work_off(run)
            assert job.status == "queued"
    rows.update(due_at=timezone.now() - timedelta(minutes=1))
    work_off(run)
    assert {verdict for _, verdict in verdicts(run)} == {"reject"}


def test_a_job_that_is_tried_again_long_after_its_deadline_is_no_fault() -> None:
    run = paused_run()
    rewrite(request(run), deadline=timezone.now() - timedelta(hours=5))
    soon = timezone.now() + timedelta(seconds=2)
    Job.objects.filter(run=run.id, kind=KIND).update(due_at=soon)
    assert verify_run(run.id) == []


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_job_that_was_stopped_reads_as_what_it_is_and_marks_no_run(
    status: str,
) -> None:
    run = paused_run()
    rows = Job.objects.filter(run=run.id, kind=KIND)
    rows.update(status=status, error_code="lock_timeout")
    [fault] = verify_run(run.id)
    assert fault.code == DEADLINE_UNMET
    assert f"{status} with the error lock_timeout" in fault.reason
    list(verify_runs(Wanted(runs=(str(run.id),), mark=True), Verified(), by=None))
    run.refresh_from_db()
    assert run.status == "paused"


def test_a_write_with_other_texts_beside_it_has_a_line_that_says_so(rita: Any) -> None:
    run = paused_run(on_deadline="approve", title="{proposal.letter}", four_eyes=True)
    sign(run, rita, [("edit", "Dear Mallory"), None])
    let_come(run)
    before = log(run).count("texts_changed")
    work_off(run)
    assert log(run)[-4:] == [
        *["decision_signed"] * 2,
        "texts_changed",
        "request_settled",
    ]
    [event] = event_payloads(run, "texts_changed")[before:]
    assert (event["channel"], event["revision"]) == ("total", 3)
    assert verify_run(run.id) == []


def _asking_of(count: int) -> Graph:
    """A graph that asks about this many notes at once, each with a deadline."""
    flow = graph("many-deadlines")

    @flow.node(sends=["ask"])
    def split(state: Any, ctx: Any) -> Command:
        return Command(send=[Send("ask", n) for n in range(count)])

    gate = Gate(reviewers=["group:claims"], deadline=HOUR)

    @flow.node(effect="human", gate=gate)
    def ask(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [str(ctx.payload)]}

    flow.edge(START, "split")
    flow.edge("ask", END)
    return flow


def test_many_requests_have_their_jobs_in_one_statement_and_wake_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    announced: list[str] = []

    def note(what: str = notify.RUN_DUE) -> None:
        announced.append(what)

    monkeypatch.setattr(notify, "notify_workers", note)
    # What is read once a process is read by now.
    advanced(_asking_of(1))
    sent: list[int] = []
    for count in (2, 9):
        with counted() as statements:
            run = advanced(_asking_of(count))
        assert Job.objects.filter(run=run.id, kind=KIND).count() == count
        sent.append(len(statements))
        words = " ".join(statements)
        assert words.count('INSERT INTO "checkpoints_job"') == 1
    assert sent[0] == sent[1]
    # Nothing is due for an hour.
    assert notify.JOB_DUE not in announced
