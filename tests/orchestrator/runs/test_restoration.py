"""After a copy of the database was put back nothing is repeated in silence: runs stop
until a person looked.
"""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import QuerySet
from django.utils import timezone

from approvals.gates.deadline_jobs import KIND, TIER_KIND
from approvals.models import Decision
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.models import Job, Run, TaskResult
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs, leases
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Task
from tests.support import cast, paid_claims, run_actions
from tests.support.deadlines import HOUR, let_come, paused_run, work_off
from tests.support.run_actions import request
from tests.support.small_graphs import advanced, graph, held, slice_of, started
from tests.support.tiers import ONE_OF_EACH, let_tiers_come, work_off_tiers

pytestmark = pytest.mark.django_db(transaction=True)


def _pays(paid: list[str]) -> Graph:
    flow = graph("pays")

    @flow.node("pay", effect="external", idempotent=True)
    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        paid.append(ctx.idempotency_key)
        return {"notes": ["paid"]}

    flow.edge(START, "pay")
    flow.edge("pay", END)
    return flow


def _restored(*words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("restored", "--reason", "the disk broke", "--json", *words, stdout=out)
    facts: dict[str, Any] = json.loads(out.getvalue())
    return facts


def _again(run: Run) -> Run:
    return Run.objects.get(id=run.id)


def test_a_queued_run_does_not_act_after_restored() -> None:
    paid: list[str] = []
    run = started(_pays(paid))
    assert _restored()["stopped"] == {"failed": 1}
    assert runs.advance(run.id).status == "failed"
    assert paid == []


def test_a_run_that_stopped_says_why_and_verifies() -> None:
    run = started(_pays([]))
    _restored()
    assert _again(run).error_code == "database_restored"
    assert verify_run(run.id) == []


def test_a_person_who_has_looked_lets_it_go_on() -> None:
    paid: list[str] = []
    run = started(_pays(paid))
    _restored()
    runs.resume(run.id)
    assert runs.advance(run.id).status == "completed"
    assert len(paid) == 1


def test_an_open_intent_is_unknown_after_restored_also_where_the_node_is_idempotent() -> (
    None
):
    run = started(_pays([]))
    lease = held(run)
    journal.write_intents(
        lease, [Intent(Task("pay", 1, 0), 1, "external", "h" * 64, 10.0)]
    )
    assert _restored()["stopped"] == {"unknown": 1}
    assert TaskResult.objects.get(run=run).outcome == "unknown"
    assert verify_run(run.id) == []


def test_a_deadline_comes_once_the_last_unknown_outcome_is_settled(
    people: cast.People,
) -> None:
    flow = graph("pays_while_people_are_asked")
    gate = Gate(reviewers=["group:claims"], deadline=timedelta(hours=1))
    flow.node("ask", effect="human", gate=gate)(lambda state, ctx: {"letter": "Dear"})
    flow.node("wait")(lambda state, ctx: None)
    flow.node("pay", effect="external")(lambda state, ctx: {"notes": ["paid"]})
    flow.edge(START, "ask")
    flow.edge("ask", END)
    flow.edge(START, "wait")
    flow.edge("wait", "pay")
    flow.edge("pay", END)
    turns = iter([False])
    run = slice_of(started(flow), draining=lambda: next(turns, True))
    lease = held(run)
    task = Task("pay", 1, 0)
    journal.write_intents(lease, [Intent(task, 1, "external", "h" * 64, 10.0)])
    assert _restored()["stopped"] == {"unknown": 1}
    runs.settle(run.id, str(task), happened=True, by=people.steward, reason="seen")
    in_an_hour = timezone.now() + timedelta(hours=1)
    jobs_of_run = Job.objects.filter(run=run.id, kind=KIND, status="queued")
    assert jobs_of_run.filter(due_at__lte=in_an_hour).exists()


def test_a_worker_that_had_a_lease_before_finds_it_gone() -> None:
    run = started(_pays([]))
    lease = held(run)
    _restored()
    assert not leases.heartbeat(run.id, lease.epoch)
    runs.resume(run.id)
    held(run)
    assert not leases.heartbeat(run.id, lease.epoch)


def test_a_run_that_is_to_be_cancelled_is_cancelled() -> None:
    run = started(_pays([]))
    held(run)
    runs.cancel(run.id)
    assert _restored()["stopped"] == {"cancelled": 1}
    assert verify_run(run.id) == []


def test_with_the_audit_log_alone_no_run_is_touched() -> None:
    run = started(_pays([]))
    _restored("--audit-log-only")
    assert _again(run).status == "queued"
    assert _again(run).epoch == run.epoch


def test_a_run_that_does_not_verify_is_left_and_named() -> None:
    run = started(_pays([]))
    Run.objects.filter(id=run.id).update(event_seq=99)
    with pytest.raises(CommandError, match="1 runs were left"):
        _restored()
    assert _again(run).status == "queued"


def test_restored_needs_a_reason() -> None:
    with pytest.raises(CommandError, match="--reason needs a text"):
        call_command("restored", "--reason", "  ")


def test_a_signature_that_the_copy_lost_does_not_repeat_what_it_led_to(
    people: cast.People,
) -> None:
    paid_claims.PAID.clear()
    run = advanced(paid_claims.claim("restorable"))
    signer = run_actions.reviewer(people.reviewer)
    assert _restored()["stopped"] == {"failed": 1}
    run_actions.sign(run, signer, ["approve"])
    assert runs.advance(run.id).status == "failed"
    assert paid_claims.PAID == []


def test_a_paused_run_asks_its_people_again_when_it_is_resumed(
    people: cast.People,
) -> None:
    run = advanced(paid_claims.claim("restorable"))
    _restored()
    runs.resume(run.id)
    assert runs.advance(run.id).status == "paused"
    assert verify_run(run.id) == []


def test_a_deadline_of_the_lost_time_decides_nothing_before_people_have_looked() -> (
    None
):
    run = paused_run()
    let_come(run)
    _restored()
    work_off(run)
    assert not Decision.objects.filter(run=run.id).exists()
    assert verify_run(run.id) == []


def test_after_a_restore_people_have_time_before_a_deadline_of_the_lost_time_acts(
    people: cast.People,
) -> None:
    run = paused_run()
    let_come(run)
    _restored()
    # Nobody has looked yet.
    assert runs.advance(run.id).status == "failed"
    assert not Decision.objects.filter(run=run.id).exists()
    before = timezone.now()
    runs.resume(run.id, by=people.steward)
    work_off(run)
    assert not Decision.objects.filter(run=run.id).exists()
    last = Job.objects.filter(run=run.id, kind=KIND).order_by("-created_at")[0]
    assert before < last.due_at - timedelta(minutes=29) < timezone.now() + HOUR
    assert verify_run(run.id) == []


def test_after_a_restore_tiers_of_the_lost_time_wait_as_deadlines_do(
    people: cast.People,
) -> None:
    run = paused_run(tiers=ONE_OF_EACH, deadline=None)
    let_tiers_come(run)
    _restored()
    work_off_tiers(run)
    runs.resume(run.id, by=people.steward)
    assert runs.advance(run.id).status == "paused"
    work_off_tiers(run)
    assert request(run).passed_tiers is None
    assert verify_run(run.id) == []
    # The time that people have is over.
    Job.objects.filter(run=run.id, kind=TIER_KIND, status="queued").update(
        due_at=timezone.now()
    )
    work_off_tiers(run)
    assert len(request(run).passed_tiers) == 1
    assert verify_run(run.id) == []


def test_in_a_run_that_had_stopped_tiers_wait_too() -> None:
    run = paused_run(tiers=ONE_OF_EACH, deadline=None)
    let_tiers_come(run)
    Run.objects.filter(id=run.id).update(status="failed")
    _restored()
    work_off_tiers(run)
    assert request(run).passed_tiers is None


@pytest.mark.parametrize("status", ["failed", "unknown"])
def test_in_a_run_that_had_stopped_before_the_copy_people_have_that_time_too(
    status: str,
) -> None:
    run = paused_run()
    let_come(run)
    Run.objects.filter(id=run.id).update(status=status)
    _restored()
    work_off(run)
    assert not Decision.objects.filter(run=run.id).exists()
    # Silence acts there as before, once the time that people have is over.
    _live_jobs(run).update(due_at=timezone.now())
    work_off(run)
    assert Decision.objects.filter(run=run.id).exists()


def test_for_that_time_nobody_who_moves_the_run_on_lets_its_deadline_act(
    people: cast.People,
) -> None:
    run = paused_run()
    let_come(run)
    _restored()
    runs.resume(run.id, by=people.steward)
    assert runs.advance(run.id).status == "paused"
    assert not Decision.objects.filter(run=run.id).exists()
    assert verify_run(run.id) == []
    # The time that people have is over.
    _live_jobs(run).update(due_at=timezone.now())
    assert runs.advance(run.id).status == "rejected"
    assert verify_run(run.id) == []


def test_a_second_resume_takes_nothing_of_that_time_away(people: cast.People) -> None:
    run = paused_run()
    let_come(run)
    _restored()
    before = timezone.now()
    runs.resume(run.id, by=people.steward)
    for status in ("failed", "incompatible"):
        Run.objects.filter(id=run.id).update(status=status)
        runs.resume(run.id, by=people.steward)
    [job] = _live_jobs(run)
    assert job.due_at > before + timedelta(minutes=29)
    work_off(run)
    assert runs.advance(run.id).status == "paused"
    assert not Decision.objects.filter(run=run.id).exists()


def test_the_job_that_waited_for_the_resume_ends_with_it(people: cast.People) -> None:
    run = paused_run()
    [paused] = _live_jobs(run)
    _restored()
    runs.resume(run.id, by=people.steward)
    [job] = _live_jobs(run)
    assert job.id != paused.id
    assert not jobs.continue_job(paused.id)
    assert Job.objects.get(id=paused.id).status == "cancelled"


def _live_jobs(run: Run) -> "QuerySet[Job]":
    """Return the jobs of a run's deadlines that have not ended."""
    return Job.objects.filter(run=run.id, kind=KIND, status__in=LIVE)
