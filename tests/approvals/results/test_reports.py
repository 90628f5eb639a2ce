"""What approvers see of what whoever asked reported."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from approvals.models import Receipt
from approvals.results.reports import listed_reports
from checkpoints.models import RunEvent
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.graphs import approval
from tests.support.approvals import decided, opened, payers, reported
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.notices import send_notices
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def rita(people: People) -> User:
    registry.replace(approval)
    payers(people.reviewer)
    return people.reviewer


@pytest.fixture
def browser(rita: User) -> Client:
    client = Client()
    client.force_login(rita)
    return client


def _said(item: str, result: str, detail: str = "") -> dict[str, Any]:
    return {"item": item, "result": result, "detail": detail}


def _words(browser: Client, page: str, *of: Any, **query: str) -> str:
    answer = browser.get(reverse(page, args=of), query)
    assert answer.status_code == 200
    text = answer.content.decode().replace("<bdi>", "").replace("</bdi>", "")
    return " ".join(text.split())


def test_a_review_of_items_says_what_is_done_with_them_and_nothing_of_channels(
    browser: Client,
) -> None:
    asked_approval = opened()
    page = _words(browser, "review", asked_approval.run.id)
    assert "The caller asks" in page
    assert "Whoever asked acts outside with it once it is approved." in page
    assert "The caller acts on what you approved" in page
    assert '"300.00"' not in page
    assert "&quot;300.00&quot;" not in page
    for useless in ("combined with", "into <code>", "Staged by", "there already"):
        assert useless not in page
    assert "written into the run" not in page


def test_a_failure_is_on_each_page_on_which_an_approver_learns_what_came_of_it(
    browser: Client, rita: User
) -> None:
    asked_approval = decided(opened(reports=True), rita, "approve", "approve")
    receipt = Receipt.objects.get(run=asked_approval.run)
    for page in (
        _words(browser, "inbox", folder="decided"),
        _words(browser, "receipt", receipt.id),
    ):
        assert "The caller has not reported yet" in page

    reported(asked_approval.run, [_said("inv-1", "failed", "account <b>closed</b>")])
    assert (
        "The caller reported: 1 not reported yet, 1 failed: "
        "account &lt;b&gt;closed&lt;/b&gt;"
    ) in _words(browser, "inbox", folder="decided")
    for page in (
        _words(browser, "receipt", receipt.id),
        _words(browser, "review", asked_approval.run.id),
    ):
        assert "that it failed: account &lt;b&gt;closed&lt;/b&gt;" in page
    reported(asked_approval.run, [_said("inv-2", "done")])
    page = browser.get(reverse("receipt", args=[receipt.id]))
    [(words, is_bad)] = page.context["came_of_it"]
    assert is_bad
    assert words.startswith("The caller reported: 1 done, 1 failed (Invoice 1")


def test_a_report_of_somebody_else_than_who_asked_names_them(
    browser: Client, rita: User, people: People
) -> None:
    asked_approval = decided(opened(by=people.starter), rita, "approve", "approve")
    reported(asked_approval.run, [_said("inv-1", "done")], by=people.steward)
    reported(asked_approval.run, [_said("inv-2", "done")], by=people.starter)
    page = _words(browser, "review", asked_approval.run.id)
    assert f"{people.steward.get_username()} reported at " in page
    assert page.count("The caller reported at ") == 1


def test_an_approver_reads_a_notice_of_what_failed(browser: Client, rita: User) -> None:
    asked_approval = decided(opened(), rita, "approve", "approve")
    reported(asked_approval.run, [_said("inv-1", "failed")])
    send_notices()
    page = _words(browser, "notices")
    assert "What you approved did not come off, as the caller reported" in page


def test_what_was_asked_again_says_what_came_of_it_before(
    browser: Client, rita: User
) -> None:
    asked_approval = decided(opened(), rita, "approve", "approve")
    reported(asked_approval.run, [_said("inv-1", "failed", "closed")])
    runs.rewind(asked_approval.run.id, f"{asked_approval.run.key}:initial")
    runs.advance(asked_approval.run.id)
    page = _words(browser, "review", asked_approval.run.id)
    assert "The caller reported: failed (Invoice 1 (inv-1): closed)" in page


def test_the_api_says_what_was_reported_of_a_request(rita: User) -> None:
    asked_approval = decided(opened(), rita, "approve", "approve")
    reported(asked_approval.run, [_said("inv-1", "unknown", "timeout")])
    client = APIClient()
    client.force_authenticate(rita)
    assert asked_approval.request is not None
    answer = client.get(f"/api/v1/requests/{asked_approval.request.id}/").json()
    [caller] = answer["came_of_it"]
    assert (caller["status"], caller["counts"]) == ("unknown", {"unknown": 1})
    assert caller["error"] == "Invoice 1 (inv-1): timeout"
    assert caller["is_sound"]
    line = RunEvent.objects.get(run=asked_approval.run, type="outcome_reported")
    tamper(line, task=line.task.replace("unknown", "done"))
    [caller] = client.get(f"/api/v1/requests/{asked_approval.request.id}/").json()[
        "came_of_it"
    ]
    assert not caller["is_sound"]


def test_a_list_costs_the_same_however_many_were_reported(
    browser: Client, rita: User
) -> None:
    costs = []
    for _ in range(2):
        asked_approval = decided(opened(), rita, "approve", "approve")
        reported(asked_approval.run, [_said("inv-1", "done"), _said("inv-2", "failed")])
        with counted() as statements:
            _words(browser, "inbox", folder="decided")
        costs.append(len(statements))
    assert costs[0] == costs[1]


def test_the_inbox_shows_the_newest_reason_and_cuts_a_long_one(
    browser: Client, rita: User
) -> None:
    asked_approval = decided(opened(), rita, "approve", "approve")
    reported(asked_approval.run, [_said("inv-1", "failed", "closed")])
    reported(asked_approval.run, [_said("inv-2", "failed", "no money " * 100)])
    page = _words(browser, "inbox", folder="decided")
    assert "The caller reported: 2 failed: no money" in page
    assert "closed" not in page
    assert "no money " * 20 not in page
    line = RunEvent.objects.filter(
        run=asked_approval.run, type="outcome_reported"
    ).last()
    tamper(line, payload=b"x")
    page = _words(browser, "inbox", folder="decided")
    assert "2 failed: what was reported cannot be read" in page


def test_a_list_reads_few_lines_of_a_question_with_many_items(rita: User) -> None:
    items = [{"id": f"i{number}", "value": number} for number in range(60)]
    asked_approval = decided(opened(items=items, reports=True), rita, *["approve"] * 60)
    reported(asked_approval.run, [_said(item["id"], "unknown") for item in items[:50]])
    reported(asked_approval.run, [_said(item["id"], "done") for item in items[:30]])
    assert asked_approval.request is not None
    listed = listed_reports([asked_approval.request])[asked_approval.request.id]
    assert listed.counts == {"done": 30, "unknown": 20}
    assert listed.awaited == 10
    assert len(listed.lines) == 21 + 20
