"""Policies in the admin: who may change them, what they say, and what is refused."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from checkpoints.models import AuditLine, RetentionPolicy, Run
from orchestrator import runs
from tests.support import cast
from tests.support.histories import policy
from tests.support.large_states import large
from tests.support.small_graphs import started

pytestmark = pytest.mark.django_db(transaction=True)


def browser_of(user: Any) -> Client:
    user.is_staff = True
    user.save()
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.fixture
def run() -> Run:
    return runs.advance(started(large("short", "abcd", snapshot=1000)).id)


@pytest.fixture
def steward(people: cast.People) -> Client:
    return browser_of(people.steward)


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_a_policy_is_kept_as_days_by_status_and_says_what_it_removes_today(run: Run, steward: Client) -> None:
    add = reverse("admin:checkpoints_retentionpolicy_add")
    form = {"graph": "short", "keep_last": "2", "age_failed": "90", "whole_cancelled": "0.5"}
    answer = steward.post(add, form, follow=True)
    assert "3 checkpoints and 0 whole runs would be removed today" in text(answer)
    row = RetentionPolicy.objects.get()
    kept = (row.keep_last, row.max_age_days, row.remove_runs_after_days)
    assert kept == (2, {"failed": 90.0}, {"cancelled": 0.5})
    change = reverse("admin:checkpoints_retentionpolicy_change", args=[row.pk])
    page = text(steward.get(change))
    assert re.search(r'name="age_failed" value="90"', page)
    assert "By its name: short." in page
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
    assert (row.keep_last, row.max_age_days) == (2, {"failed": 90.0})
    assert AuditLine.objects.filter(kind="retention_policy_saved").count() == 1


def test_whoever_may_only_see_policies_changes_none(people: cast.People) -> None:
    rule = policy("short", keep_last=2)
    people.reviewer.user_permissions.add(Permission.objects.get(codename="view_retentionpolicy"))
    browser = browser_of(people.reviewer)
    change = reverse("admin:checkpoints_retentionpolicy_change", args=[rule.pk])
    assert browser.get(change).status_code == 200
    assert browser.post(change, {"graph": "short", "keep_last": "0"}).status_code == 403
    assert browser.get(reverse("admin:checkpoints_retentionpolicy_add")).status_code == 403


def test_a_policy_of_a_graph_that_is_not_here_says_so(run: Run, steward: Client) -> None:
    add = reverse("admin:checkpoints_retentionpolicy_add")
    page = text(steward.post(add, {"graph": "shrot", "keep_last": "2"}, follow=True))
    assert "There is no run of shrot: is this the name of the graph?" in page
    assert "is this the name" not in text(steward.post(add, {"graph": "short", "keep_last": "2"}, follow=True))
