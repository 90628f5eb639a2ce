"""Verification of all runs looks at the audit log and at tokens too; that of some runs
does not. Who marks is named, and jobs ask again for the rights of who asked for them.
"""

import io
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from approvals import reviews
from approvals.models import (
    ApprovalRequest,
    Delegation,
    Door,
    DoorMessage,
    Passkey,
    RequestClaim,
    Webhook,
)
from approvals.webhooks import verbs as webhooks
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine, Job, Run
from checkpoints.queue import jobs
from orchestrator import runs, tokens
from orchestrator.jobs import kinds
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from orchestrator.models import ApiToken
from tests.support import api_graphs, authenticators, run_actions
from tests.support.cast import People
from tests.support.doors import Sender, waiting_run
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)


def _verified(wanted: Wanted) -> Verified:
    result = Verified()
    for _ in verify_runs(wanted, result, by=None):
        pass
    return result


def _bad_run() -> Run:
    api_graphs.register()
    run = runs.start("gated", {"claim_id": "C"})
    tamper(run, label="another")
    return run


def test_all_is_looked_at_where_all_runs_are_wanted(people: People) -> None:
    api_graphs.register()
    run = runs.start("gated", {"claim_id": "C"}, by=people.starter)
    tokens.make_token(people.starter, scopes=["read"])
    audit_log.record("refused", actor=None)
    audit_chain.chain_lines()
    assert _verified(Wanted()).checked == 1
    assert _verified(Wanted()).bad == []
    tamper(ApiToken.objects.get(), scopes=["read", "steer"])
    tamper(AuditLine.objects.get(kind="refused"), kind="granted")
    verified = _verified(Wanted())
    assert [fault["table"] for fault in verified.bad] == [
        "checkpoints_auditline",
        "orchestrator_apitoken",
    ]
    assert verified.checked == 1
    assert verified.failed == 2
    for some in (
        Wanted(runs=(str(run.id),)),
        Wanted(graph="gated"),
        Wanted(since="2020-01-01T00:00:00+00:00"),
    ):
        assert _verified(some).bad == []


def test_sealed_rows_of_no_single_run_are_verified_with_all_runs(
    people: People,
) -> None:
    sender = Sender()
    sender.send()
    waiting_run("B-1")
    assert sender.send("msg_2", key="B-1").status_code == 200
    webhooks.add_webhook("https://hooks.example.org/", by=None)
    authenticators.registered(people.steward)
    rita = run_actions.reviewer(people.reviewer)
    waiting = ApprovalRequest.objects.get(run=waiting_run())
    reviews.claim(waiting.id, by=rita)
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=people.steward, by=rita, ends=ends)
    assert _verified(Wanted()).bad == []
    changed = {
        Delegation: {"ends_at": ends + timedelta(days=1)},
        Door: {"node": "other"},
        DoorMessage: {"key": "another"},
        Passkey: {"rp_id": "elsewhere.example.org"},
        RequestClaim: {"by_name": "another"},
        Webhook: {"url": "https://elsewhere.example.org/"},
    }
    for model, values in changed.items():
        tamper(model.objects.earliest("id"), **values)
    tables = [fault["table"] for fault in _verified(Wanted()).bad]
    assert tables == [model._meta.db_table for model in changed]


def _marking(by: str) -> Job:
    return Job.objects.get(
        id=jobs.add_job("verify_runs", by=by, **asdict(Wanted(mark=True)))
    )


def test_a_run_that_is_marked_leaves_one_line_with_who_marked_it(
    people: People,
) -> None:
    bad = _bad_run()
    with pytest.raises(CommandError, match="there is no active user"):
        call_command("verify_runs", "--mark", "--by", "no such person")
    bad.refresh_from_db()
    assert bad.status == "queued"
    assert AuditLine.objects.count() == 0
    for _ in range(2):
        with pytest.raises(CommandError, match="1 of 1 runs"):
            call_command(
                "verify_runs",
                "--mark",
                "--by",
                people.steward.username,
                stdout=io.StringIO(),
            )
    bad.refresh_from_db()
    line = AuditLine.objects.get()
    assert bad.status == "tampered"
    assert line.kind == "run_marked"
    assert line.actor == people.steward
    assert line.run == bad.id
    assert line.facts == {"row": f"checkpoints_run {bad.id}"}


def test_the_job_marks_as_who_asked_for_it(people: People) -> None:
    bad = _bad_run()
    assert kinds.advance(_marking(people.steward.username).id).error == ""
    assert [(line.kind, line.actor) for line in AuditLine.objects.order_by("id")] == [
        ("run_marked", people.steward),
        ("runs_verified", people.steward),
    ]
    bad.refresh_from_db()
    assert bad.status == "tampered"


@pytest.mark.parametrize("gone", ["groups", "is_active", "name"])
def test_who_has_lost_the_right_before_the_job_runs_marks_nothing(
    people: People, gone: str
) -> None:
    bad = _bad_run()
    stella = people.steward
    marking = _marking(stella.username)
    if gone == "groups":
        stella.groups.clear()
    elif gone == "is_active":
        stella.is_active = False
    else:
        stella.username = "stella-anne"
    stella.save()
    AuditLine.objects.all().delete()
    assert kinds.advance(marking.id).status == "failed"
    bad.refresh_from_db()
    assert bad.status == "queued"
    left = [line.kind for line in AuditLine.objects.all()]
    assert left == ([] if gone == "name" else ["refused_right"])


def test_a_rotation_asks_again_too(people: People, configure: Any) -> None:
    configure(ENCRYPTION_KEYS={"k": bytes(range(32))})
    rotation = jobs.add_job("rotate_keys", key="k", by=people.starter.username)
    assert kinds.advance(rotation).status == "failed"
    assert [(line.kind, line.actor) for line in AuditLine.objects.all()] == [
        ("refused_right", people.starter)
    ]
