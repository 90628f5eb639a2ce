"""Clean up now in the admin: choose, dry run, confirm by the number, and the job's
page.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints import retention
from checkpoints.admin.clean_up import Typed, words_of
from checkpoints.models import AuditLine, Checkpoint, Job, RetentionPolicy, Run
from checkpoints.retention import policy_schedules
from checkpoints.retention.dry_runs import DryRun
from orchestrator.jobs import kinds
from tests.support import cast
from tests.support.histories import long_run, policy, seqs
from tests.support.stewards import browser_of, run, steward, text

__all__ = ["run", "steward"]
pytestmark = pytest.mark.django_db(transaction=True)
CSS = Path(__file__).resolve().parents[3] / "static" / "css"


def test_three_pages_and_the_jobs_page_lead_from_a_policy_to_the_audit_log(
    run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=2)
    dry = reverse("admin:clean_up_dry_run", args=[rule.pk])
    assert dry in text(steward.get(reverse("admin:clean_up")))
    page = text(steward.get(dry))
    assert '<dd data-test="count">3</dd>' in page
    assert "the newest of its run" in page
    confirm = reverse("admin:clean_up_confirm", args=[rule.pk])
    assert confirm in page
    assert "This cannot be undone" in text(steward.get(confirm))
    answer = steward.post(confirm, {"seen": "3", "typed": "3"})
    job = Job.objects.get(kind="prune_runs")
    address = reverse("admin:clean_up_job", args=[job.id])
    assert answer.status_code == 302
    assert answer["Location"] == address
    assert "Waiting for a worker" in text(steward.get(address))
    assert kinds.advance(job.id).status == "done"
    page = text(steward.get(address))
    assert '<dd data-test="rows">3 of 3</dd>' in page
    assert 'http-equiv="refresh"' not in page
    assert seqs(run) == [3, 4]
    assert AuditLine.objects.get(kind="history_pruned").facts["checkpoints"] == 3


@pytest.mark.parametrize(
    "form",
    [{}, {"seen": "3", "typed": "2"}, {"seen": "3", "typed": "x"}, {"typed": "9" * 40}],
)
def test_another_number_than_the_one_that_was_shown_removes_nothing(
    form: Any, run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=2)
    answer = steward.post(reverse("admin:clean_up_confirm", args=[rule.pk]), form)
    assert answer.status_code == (422 if form else 200)
    assert Job.objects.count() == 0


def test_where_the_count_moved_the_dry_run_is_offered_again(
    run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=2)
    Checkpoint.objects.get(run=run, seq=0)
    retention.pin(Checkpoint.objects.get(run=run, seq=0).id, by=None)
    answer = steward.post(
        reverse("admin:clean_up_confirm", args=[rule.pk]),
        {"seen": "3", "typed": "3"},
        follow=True,
    )
    assert answer.redirect_chain == [
        (reverse("admin:clean_up_dry_run", args=[rule.pk]), 302)
    ]
    assert "Nothing was removed. 2 checkpoints would be removed now" in text(answer)
    assert Job.objects.count() == 0
    assert len(seqs(run)) == 5


def test_a_policy_is_confirmed_by_the_typed_number_and_removes_nothing_yet(
    run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=2)
    confirm = reverse("admin:clean_up_confirm", args=[rule.pk])
    for typed in ("2", ""):
        assert (
            steward.post(
                confirm, {"seen": "3", "typed": typed, "act": "by-itself"}
            ).status_code
            == 422
        )
    assert not policy_schedules.is_confirmed(rule)
    page = text(
        steward.post(
            confirm, {"seen": "3", "typed": "3", "act": "by-itself"}, follow=True
        )
    )
    assert "acts by itself once a day" in page
    assert policy_schedules.is_confirmed(rule)
    assert Job.objects.filter(kind="prune_runs").count() == 0
    assert len(seqs(run)) == 5


def test_a_policy_that_removes_nothing_today_is_confirmed_on_its_dry_run(
    run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=9)
    page = text(steward.get(reverse("admin:clean_up_dry_run", args=[rule.pk])))
    assert 'data-test="waits"' in page
    assert 'data-test="let-act"' in page
    sent = {"seen": "0", "typed": "0", "act": "by-itself"}
    steward.post(reverse("admin:clean_up_confirm", args=[rule.pk]), sent)
    page = text(steward.get(reverse("admin:clean_up_dry_run", args=[rule.pk])))
    assert 'data-test="waits"' not in page


def test_a_removal_by_the_typed_number_confirms_the_policy_too(
    run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=2)
    steward.post(
        reverse("admin:clean_up_confirm", args=[rule.pk]), {"seen": "3", "typed": "3"}
    )
    assert policy_schedules.is_confirmed(rule)


def test_the_examples_of_a_dry_run_are_a_row_a_run_and_what_stays_comes_first(
    run: Run, steward: Client
) -> None:
    other = long_run("short", "abcd")
    page = text(
        steward.get(
            reverse("admin:clean_up_dry_run", args=[policy("short", keep_last=2).pk])
        )
    )
    examples = page.split('data-test="examples"')[1].split("</ul>")[0]
    assert examples.count("<li>") == 2
    assert all(f">{each_run.key}</a>:" in examples for each_run in (run, other))
    assert examples.count("0 to 2") == 2
    assert (
        page.index("What stays, and why")
        < page.index("What goes")
        < page.index('data-test="go"')
    )


def test_numbers_have_separators_and_may_be_typed_with_them() -> None:
    form = Typed({"seen": "12170", "typed": "12,170"})
    assert form.is_valid()
    assert words_of(
        DryRun("short", timezone.now(), {"checkpoints": 12170, "runs": 1, "kept": 0})
    ) == ("12,170 checkpoints and 1 whole run would be removed today")


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("GET", "clean_up_dry_run"),
        ("GET", "clean_up_confirm"),
        ("POST", "clean_up_confirm"),
    ],
)
def test_a_policy_that_is_not_valid_leads_to_its_page_with_the_reason(
    method: str, name: str, run: Run, steward: Client
) -> None:
    rule = policy("short", keep_last=2)
    RetentionPolicy.objects.filter(pk=rule.pk).update(max_age_days={"gone": 1})
    address = reverse(f"admin:{name}", args=[rule.pk])
    answer = steward.generic(method, address)
    change = reverse("admin:checkpoints_retentionpolicy_change", args=[rule.pk])
    assert answer["Location"] == change
    assert "max_age_days.gone: a status here is one of" in text(steward.get(change))


def test_a_removal_is_paused_goes_on_and_is_stopped(
    run: Run, steward: Client, people: cast.People
) -> None:
    job = retention.prune(policy("short", keep_last=2), by=people.steward)
    for act, status, says in (
        ("pause", "done?", "Paused."),
        ("continue", "", "Waiting for a worker"),
    ):
        steward.post(reverse("admin:clean_up_act", args=[job.id, act]))
        assert says in text(
            steward.get(reverse("admin:clean_up_job", args=[job.id]))
        ), status
        assert (kinds.advance(job.id).status == "queued") == (act == "pause")
    assert seqs(run) == [3, 4]
    other = retention.prune(policy("short", keep_last=1), by=people.steward)
    steward.post(reverse("admin:clean_up_act", args=[other.id, "stop"]))
    assert "Stopped at" in text(
        steward.get(reverse("admin:clean_up_job", args=[other.id]))
    )
    assert (
        AuditLine.objects.filter(kind="history_pruned").latest("id").facts["stopped"]
        is True
    )
    assert kinds.advance(other.id).status == "cancelled"
    assert seqs(run) == [3, 4]
    assert (
        steward.post(reverse("admin:clean_up_act", args=[other.id, "burn"])).status_code
        == 404
    )


def test_whoever_had_to_sign_in_before_he_stopped_a_removal_reads_that_nothing_was_done(
    run: Run, steward: Client, people: cast.People
) -> None:
    job = retention.prune(policy("short", keep_last=2), by=people.steward)
    page = steward.get(
        reverse("admin:clean_up_act", args=[job.id, "stop"]), follow=True
    )
    assert page.redirect_chain == [(reverse("admin:clean_up_job", args=[job.id]), 302)]
    assert "Nothing was changed: your choice did not arrive." in text(page)
    assert kinds.advance(job.id).status == "done"


def test_who_may_not_act_may_look_and_who_may_not_look_finds_nothing(
    run: Run, people: cast.People
) -> None:
    rule = policy("short", keep_last=2)
    job = retention.prune(rule, by=None)
    places = [
        reverse("admin:clean_up"),
        reverse("admin:clean_up_dry_run", args=[rule.pk]),
        reverse("admin:clean_up_job", args=[job.id]),
    ]
    confirm = reverse("admin:clean_up_confirm", args=[rule.pk])
    act = reverse("admin:clean_up_act", args=[job.id, "stop"])
    auditor = browser_of(people.auditor)
    reviewer = browser_of(people.reviewer)
    assert [auditor.get(place).status_code for place in places] == [200] * 3
    assert [auditor.get(confirm).status_code, auditor.post(act).status_code] == [
        403
    ] * 2
    assert [reviewer.get(place).status_code for place in [*places, confirm]] == [
        404
    ] * 4
    assert reviewer.post(act).status_code == 404
    assert Client().get(places[0]).status_code == 302
    job.refresh_from_db()
    assert job.status == "queued"


def test_the_admin_wears_the_colours_of_the_console() -> None:
    tokens = [
        dict(re.findall(r"--([\w-]+):\s*([^;]+);", _root(name)))
        for name in ("admin.css", "console.css")
    ]
    admin, console = tokens
    assert len(admin) > 15
    assert {name: console[name] for name in admin} == admin


def _root(name: str) -> str:
    match = re.search(r":root \{(.*?)\n\}", (CSS / name).read_text(), re.DOTALL)
    assert match
    return match[1]
