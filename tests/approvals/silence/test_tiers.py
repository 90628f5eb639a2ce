"""Tiers remind people of a request, or ask others too, once, while it is open."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from approvals import permissions
from approvals.gates.deadline_jobs import TIER_KIND
from approvals.models import (
    REQUEST,
    ApprovalRequest,
    Decision,
    RequestReviewer,
)
from approvals.silence import tiers
from checkpoints.models import AuditLine, Job, Run
from checkpoints.queue import jobs
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import NotAReviewer
from tests.support import cast, notices, run_actions
from tests.support.bundles import PUBLIC, exported, forgotten, loaded
from tests.support.deadlines import let_come, paused_run, work_off
from tests.support.forging import rewrite, tamper
from tests.support.run_actions import event_payloads, log, request, sign
from tests.support.sealed_tables import ONE_KEY
from tests.support.tiers import (
    HOUR,
    LEADS,
    ONE_OF_EACH,
    let_tiers_come,
    meet_tiers,
    work_off_tiers,
)

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def lena() -> Any:
    user = cast.UserFactory.create(username="lena")
    user.groups.add(Group.objects.create(name="leads"))
    return user


def asking_run(**gate: Any) -> Run:
    return paused_run(**{"tiers": ONE_OF_EACH, "deadline": DAY, **gate})


def acted(run: Run) -> list[str]:
    return [kind for kind in log(run) if kind in tiers.EVENTS.values()]


def test_a_request_has_its_tiers_and_a_job_for_the_first() -> None:
    run = asking_run()
    open_request = request(run)
    assert open_request.tier_at == open_request.deadline - DAY + HOUR
    assert [tier["act"] for tier in open_request.policy["tiers"]] == [
        "remind",
        "escalate",
    ]
    job = Job.objects.get(run=run.id, kind=TIER_KIND)
    assert (job.due_at, job.facts) == (
        open_request.tier_at,
        {"request": str(open_request.id)},
    )
    assert verify_run(run.id) == []


def test_a_gate_without_tiers_says_nothing_of_them() -> None:
    run = paused_run()
    open_request = request(run)
    assert (open_request.tier_at, open_request.passed_tiers) == (None, None)
    assert "tiers" not in open_request.policy
    assert not Job.objects.filter(run=run.id, kind=TIER_KIND).exists()


def test_one_after_the_other_they_act_once_and_the_deadline_goes_on(
    rita: Any,
) -> None:
    run = asking_run()
    deadline = request(run).deadline
    let_tiers_come(run)
    assert [job.status for job in work_off_tiers(run)] == ["done"]
    assert acted(run) == ["request_reminded"]
    assert verify_run(run.id) == []
    open_request = request(run)
    assert open_request.reviewers_now == ["group:claims"]
    assert Job.objects.get(run=run.id, kind=TIER_KIND, status="queued").due_at == (
        open_request.tier_at
    )
    # Done twice it does nothing.
    assert not meet_tiers(run)

    let_tiers_come(run)
    work_off_tiers(run)
    assert acted(run) == ["request_reminded", "request_escalated"]
    open_request = request(run)
    assert open_request.reviewers_now == ["group:claims", LEADS]
    assert (open_request.tier_at, open_request.deadline) == (None, deadline)
    assert len(open_request.passed_tiers) == 2
    assert not meet_tiers(run)
    assert verify_run(run.id) == []
    sign(run, rita, ["approve", "approve"])
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_several_that_have_come_act_in_their_order_at_once() -> None:
    run = asking_run()
    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    assert acted(run) == ["request_reminded", "request_escalated"]
    assert event_payloads(run, "request_escalated") == [
        {"request": str(request(run).id), "tier": 1, "to": [LEADS]}
    ]
    assert request(run).tier_at is None
    assert not Job.objects.filter(run=run.id, kind=TIER_KIND, status="queued").exists()
    assert verify_run(run.id) == []


def test_who_is_asked_too_sees_the_run_and_signs_only_from_then_on(lena: Any) -> None:
    run = asking_run()
    assert not permissions.may_see_run(lena, run)
    with pytest.raises(NotAReviewer):
        sign(run, lena, ["approve", "approve"])
    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    assert permissions.may_see_run(lena, run)
    assert [row.request_id for row in _inbox_of(lena)] == [request(run).id]
    sign(run, lena, ["approve", "approve"])
    assert verify_run(run.id) == []
    run = runs.advance(run.id)
    assert run.status == "completed"
    assert set(Decision.objects.values_list("by_name", flat=True)) == {"lena"}
    assert permissions.may_see_run(lena, run)
    assert verify_run(run.id) == []


def _inbox_of(user: Any) -> Any:
    principals = permissions.principals_of(user)
    return RequestReviewer.objects.filter(principal__in=principals, waits=True)


def test_who_is_named_already_is_asked_once() -> None:
    run = asking_run(tiers=[(HOUR, "escalate", ["group:claims", LEADS])])
    let_tiers_come(run)
    work_off_tiers(run)
    rows = RequestReviewer.objects.filter(request=request(run))
    assert sorted(rows.values_list("principal", flat=True)) == ["group:claims", LEADS]
    assert verify_run(run.id) == []


def test_in_a_request_that_was_decided_they_do_nothing(rita: Any) -> None:
    run = asking_run()
    sign(run, rita, ["approve", "approve"])
    open_request = request(run)
    rewrite(open_request, tier_at=timezone.now() - HOUR)
    Job.objects.filter(run=run.id, kind=TIER_KIND).update(due_at=timezone.now())
    assert [job.status for job in work_off_tiers(run)] == ["done"]
    assert acted(run) == []


def test_in_a_cancelled_run_they_do_nothing(people: cast.People) -> None:
    run = asking_run()
    let_tiers_come(run)
    runs.cancel(run.id, by=people.steward)
    assert not tiers.meet_tiers(run.id, request(run).id)
    assert acted(run) == []


def test_once_the_deadline_has_come_it_decides_and_they_do_nothing() -> None:
    run = asking_run()
    let_tiers_come(run)
    let_come(run)
    work_off_tiers(run)
    assert acted(run) == []
    assert verify_run(run.id) == []
    work_off(run)
    assert runs.advance(run.id).status == "rejected"
    assert acted(run) == []
    assert verify_run(run.id) == []


def test_a_tier_that_would_come_after_the_moment_of_a_function_never_does() -> None:
    run = asking_run(
        tiers=[(HOUR, "remind", None), (5 * HOUR, "escalate", [LEADS])],
        deadline=lambda now, state: now + 2 * HOUR,
    )
    open_request = request(run)
    assert open_request.tier_at is not None
    let_tiers_come(run)
    work_off_tiers(run)
    assert request(run).tier_at is None
    assert acted(run) == ["request_reminded"]
    assert verify_run(run.id) == []


def test_without_a_deadline_they_act_too() -> None:
    run = paused_run(tiers=ONE_OF_EACH, deadline=None)
    let_tiers_come(run)
    # As an idle process does that looks at the run.
    assert runs.advance(run.id).status == "paused"
    assert acted(run) == ["request_reminded"]
    assert verify_run(run.id) == []


def test_a_job_that_comes_early_does_nothing_and_comes_again() -> None:
    run = asking_run()
    Job.objects.filter(run=run.id, kind=TIER_KIND).update(due_at=timezone.now())
    work_off_tiers(run)
    assert acted(run) == []
    again = Job.objects.get(run=run.id, kind=TIER_KIND, status="queued")
    assert again.due_at == request(run).tier_at


def test_before_its_job_is_due_none_acts() -> None:
    run = asking_run()
    let_tiers_come(run)
    jobs.pause_job(Job.objects.get(run=run.id, kind=TIER_KIND).id)
    assert not meet_tiers(run)
    assert runs.advance(run.id).status == "paused"
    assert acted(run) == []


def test_a_stopped_run_gets_its_jobs_anew_when_it_goes_on(people: cast.People) -> None:
    run = asking_run()
    Job.objects.filter(run=run.id).delete()
    Run.objects.filter(id=run.id).update(status="tampered")
    assert not meet_tiers(run)
    runs.resume(run.id, by=people.steward)
    assert Job.objects.filter(run=run.id, kind=TIER_KIND).count() == 1


def test_a_fork_and_a_rewind_begin_their_tiers_anew(people: cast.People) -> None:
    run = asking_run()
    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    fork = runs.fork(run.head, by=people.steward)
    runs.rewind(run.id, run.head, by=people.steward)
    for asked in ApprovalRequest.objects.filter(status="open"):
        assert asked.reviewers_now == ["group:claims"]
        assert asked.passed_tiers is None
        assert asked.tier_at > timezone.now()
    assert verify_run(run.id) == []
    assert verify_run(fork.id) == []


def test_each_has_a_line_in_log_and_audit() -> None:
    run = asking_run()
    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    lines = AuditLine.objects.filter(run=run.id, kind__in=tiers.EVENTS.values())
    assert [(row.kind, row.actor_name) for row in lines.order_by("at", "id")] == [
        ("request_reminded", ""),
        ("request_escalated", ""),
    ]
    assert {row.request for row in lines} == {request(run).id}


def test_each_is_a_notice() -> None:
    run = asking_run()
    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    assert notices.events() == [
        ("request.opened", ""),
        ("request.reminded", ""),
        ("request.escalated", ""),
    ]


@pytest.mark.parametrize("change", ["passed_tiers", "tier_at"])
def test_what_was_changed_of_them_is_named_and_gives_no_right(
    change: str, lena: Any
) -> None:
    run = asking_run()
    at = timezone.now()
    value = [at.isoformat()] * 2 if change == "passed_tiers" else at - HOUR
    tamper(request(run), **{change: value})
    assert verify_run(run.id) != []
    Job.objects.filter(run=run.id, kind=TIER_KIND).update(due_at=at)
    work_off_tiers(run)
    assert Run.objects.get(id=run.id).status == "tampered"


def test_a_request_that_was_put_back_to_before_a_tier_is_named() -> None:
    run = asking_run()
    let_tiers_come(run)
    work_off_tiers(run)
    rewrite(request(run), passed_tiers=None)
    assert any("otherwise than the log" in row.reason for row in verify_run(run.id))


def test_a_tier_without_a_job_is_named() -> None:
    run = asking_run()
    Job.objects.filter(run=run.id, kind=TIER_KIND).delete()
    [fault] = verify_run(run.id)
    assert "has a tier, but no job" in fault.reason


def test_bundles_carry_them(configure: Any, lena: Any) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})
    run = asking_run()
    let_tiers_come(run, by=5 * HOUR)
    work_off_tiers(run)
    sign(run, lena, ["approve", "approve"])
    run = runs.advance(run.id)
    data = exported(run)
    forgotten(run)
    imported = loaded(data)
    assert verify_run(imported.id) == []
    assert request(imported).reviewers_now == ["group:claims", LEADS]


@pytest.mark.parametrize(
    ("columns", "tier"),
    [
        ({}, {"act": "escalate", "to": None}),
        ({}, {"act": "escalate", "to": []}),
        ({"passed_tiers": ["yesterday"]}, {}),
        ({"passed_tiers": ["2026-01-01T00:00:00+00:00"] * 3}, {}),
    ],
)
def test_a_bundle_with_tiers_that_no_gate_has_is_refused(
    columns: dict[str, Any], tier: dict[str, Any]
) -> None:
    policy = request(asking_run()).policy
    policy["tiers"] = [{**line, **tier} for line in policy["tiers"]]
    row = ApprovalRequest(policy=policy, **{"passed_tiers": [], **columns})
    fits = (REQUEST["policy"]["tiers?"], REQUEST["passed_tiers"])
    assert not (fits[0](policy["tiers"], row) and fits[1](row.passed_tiers, row))


def test_an_imported_run_has_tiers_that_do_nothing(configure: Any) -> None:
    configure(**ONE_KEY, TRUSTED_KEYS={"north": PUBLIC.hex()})
    run = asking_run()
    data = exported(run)
    forgotten(run)
    imported = loaded(data)
    rewrite(request(imported), tier_at=timezone.now() - HOUR)
    runs.advance(imported.id)
    assert acted(imported) == []
