"""Policies in the admin: who may change them, what they say, and what is refused."""

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.timezone import localtime

from checkpoints import retention
from checkpoints.admin import policies as policy_admin
from checkpoints.models import AuditLine, Job, RemovedKey, RetentionPolicy, Run
from checkpoints.retention.rule import REMOVABLE
from orchestrator.jobs import kinds
from tests.support import cast
from tests.support.histories import policy, pruned
from tests.support.rows import missing
from tests.support.statements import counted
from tests.support.stewards import browser_of, run, steward, text

__all__ = ["run", "steward"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_a_policy_is_kept_as_days_by_status_and_says_what_it_removes_today(
    run: Run, steward: Client
) -> None:
    add = reverse("admin:checkpoints_retentionpolicy_add")
    form = {
        "graph": "short",
        "keep_last": "2",
        "most_a_night": "10",
        "age_failed": "90",
        "whole_cancelled": "0.5",
    }
    answer = steward.post(add, form, follow=True)
    assert "3 checkpoints and 0 whole runs would be removed today" in text(answer)
    row = RetentionPolicy.objects.get()
    kept = (row.keep_last, row.max_age_days, row.remove_runs_after_days)
    assert kept == (2, {"failed": 90.0}, {"cancelled": 0.5})
    change = reverse("admin:checkpoints_retentionpolicy_change", args=[row.pk])
    page = text(steward.get(change))
    assert re.search(r'name="age_failed" value="90"', page)
    assert "The name of a graph: short." in page
    listed = text(steward.get(reverse("admin:checkpoints_retentionpolicy_changelist")))
    assert "failed: 90 days" in listed
    assert "cancelled: 0.5 days" in listed
    assert "3 checkpoints and 0 whole runs would be removed today" in page
    for bad in (
        {"keep_last": "-1"},
        {"age_failed": "-1"},
        {"age_failed": "1e99"},
        {"age_failed": "nan"},
        {"graph": ""},
    ):
        assert steward.post(change, {**form, **bad}).status_code == 200
    row.refresh_from_db()
    assert row.keep_last == 2
    assert row.max_age_days == {"failed": 90.0}
    assert AuditLine.objects.filter(kind="retention_policy_saved").count() == 1


def test_what_is_typed_is_counted_before_it_is_saved(run: Run, steward: Client) -> None:
    add = reverse("admin:checkpoints_retentionpolicy_add")
    assert "Type a graph and its rules" in text(steward.get(add))
    form = {
        "graph": "short",
        "keep_last": "2",
        "most_a_night": "10",
        "age_failed": "90",
        "_count": "count",
    }
    page = text(steward.post(add, form))
    assert "3 checkpoints and 0 whole runs would be removed today" in page
    assert 'name="age_failed" value="90"' in page
    assert "Please correct" not in page
    row = policy("short", keep_last=4)
    change = reverse("admin:checkpoints_retentionpolicy_change", args=[row.pk])
    assert "1 checkpoint and 0 whole runs would be removed today" in text(
        steward.get(change)
    )
    assert "4 checkpoints and 0 whole runs would be removed today" in text(
        steward.post(change, {**form, "keep_last": "1"})
    )
    assert "Please correct the error" in text(
        steward.post(change, {**form, "keep_last": "-1"})
    )
    row.refresh_from_db()
    assert RetentionPolicy.objects.count() == 1
    assert row.keep_last == 4
    assert row.max_age_days == {}
    # That of the stored policy itself.
    assert AuditLine.objects.filter(kind="retention_policy_saved").count() == 1


def test_whoever_may_only_see_policies_changes_none(people: cast.People) -> None:
    rule = policy("short", keep_last=2)
    people.reviewer.user_permissions.add(
        Permission.objects.get(codename="view_retentionpolicy")
    )
    browser = browser_of(people.reviewer)
    change = reverse("admin:checkpoints_retentionpolicy_change", args=[rule.pk])
    assert "_count" not in text(browser.get(change))
    assert (
        browser.post(change, {"graph": "short", "_count": "count"}).status_code == 403
    )
    assert browser.post(change, {"graph": "short", "keep_last": "0"}).status_code == 403
    assert (
        browser.get(reverse("admin:checkpoints_retentionpolicy_add")).status_code == 403
    )


def test_a_policy_of_a_graph_that_is_not_here_says_so(
    run: Run, steward: Client
) -> None:
    add = reverse("admin:checkpoints_retentionpolicy_add")
    page = text(
        steward.post(
            add, {"graph": "shrot", "keep_last": "2", "most_a_night": "10"}, follow=True
        )
    )
    assert "There is no run of shrot: is this the name of the graph?" in page
    assert "is this the name" not in text(
        steward.post(
            add, {"graph": "short", "keep_last": "2", "most_a_night": "10"}, follow=True
        )
    )


def test_keys_of_removed_runs_are_found_by_key_and_run_and_change_no_more(
    steward: Client, people: cast.People
) -> None:
    people.steward.user_permissions.add(
        Permission.objects.get(codename="view_removedkey")
    )
    gone = [
        RemovedKey.objects.create(key=key, run=missing())
        for key in ("journey-1", "journey-2", "other")
    ]
    listed = reverse("admin:checkpoints_removedkey_changelist")
    for sought, matches in (
        ("journey", 2),
        (str(gone[2].run), 1),
        ("nothing", 0),
        ("", 3),
    ):
        page = text(steward.get(listed, {"q": sought}))
        assert sum(f">{row.key}<" in page for row in gone) == matches, sought
    page_of_key = reverse("admin:checkpoints_removedkey_change", args=["journey-1"])
    assert str(gone[0].run) in text(steward.get(page_of_key))
    assert steward.post(page_of_key, {"key": "free"}).status_code == 403
    assert steward.get(reverse("admin:checkpoints_removedkey_add")).status_code == 403
    assert Client().get(listed).status_code == 302


def test_the_days_of_a_policy_stand_in_one_table_a_row_a_status(
    run: Run, steward: Client
) -> None:
    page = text(steward.get(reverse("admin:checkpoints_retentionpolicy_add")))
    table = page.split('<fieldset class="module ages">')[1].split("</table>")[0]
    assert table.count("<tr>") == 1 + len(policy_admin.AGED)
    assert table.count('<input type="number"') == len(policy_admin.AGED) + len(
        REMOVABLE
    )
    assert page.count('name="age_failed"') == 1


def test_the_count_stands_beside_the_button_that_asks_for_it(
    run: Run, steward: Client
) -> None:
    form = {"graph": "short", "keep_last": "2", "most_a_night": "10", "_count": "count"}
    page = text(steward.post(reverse("admin:checkpoints_retentionpolicy_add"), form))
    beside = page.split('name="_count"')[1].split("</div>")[0]
    assert "3 checkpoints and 0 whole runs would be removed today" in beside
    assert page.count('type="submit"') == 3, "count, save, log out"


def test_a_saved_policy_says_that_it_waits_for_its_dry_run(
    run: Run, steward: Client
) -> None:
    form = {"graph": "short", "keep_last": "2", "most_a_night": "10"}
    page = text(
        steward.post(
            reverse("admin:checkpoints_retentionpolicy_add"), form, follow=True
        )
    )
    dry = reverse("admin:clean_up_dry_run", args=[RetentionPolicy.objects.get().pk])
    assert (
        f'It does not act by itself yet: <a href="{dry}">look at its dry run</a>'
        in page
    )
    assert f'<a href="{dry}">waits for you to confirm its dry run</a>' in page


def test_last_and_next_run_stand_beside_the_policy(
    run: Run, steward: Client, people: cast.People
) -> None:
    row = policy("short", keep_last=2)
    retention.confirm_policy(row, by=people.steward, confirmed=3)
    job = pruned(row)
    kinds.ensure_standing()
    due = date_format(
        localtime(Job.objects.get(kind="run_policies").due_at), "Y-m-d H:i"
    )
    for place in ("changelist", "change"):
        page = text(
            steward.get(
                reverse(
                    f"admin:checkpoints_retentionpolicy_{place}",
                    args=[row.pk][: place == "change"],
                )
            )
        )
        assert f'<a href="{reverse("admin:clean_up_job", args=[job.id])}">' in page
        assert ", 3 checkpoints</a>" in page
        assert due in page


def test_a_list_of_policies_takes_as_many_statements_for_many(
    run: Run, steward: Client, people: cast.People
) -> None:
    listed = reverse("admin:checkpoints_retentionpolicy_changelist")
    retention.confirm_policy(
        policy("short", keep_last=2), by=people.steward, confirmed=3
    )
    with counted() as few:
        steward.get(listed)
    for number in range(9):
        retention.confirm_policy(
            policy(f"graph {number}", keep_last=2), by=people.steward, confirmed=0
        )
    with counted() as many:
        steward.get(listed)
    assert len(many) == len(few)
