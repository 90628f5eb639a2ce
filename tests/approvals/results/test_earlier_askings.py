"""What a gate had asked before it asks again, and where people are told of it: first on
the review, in the inbox, on the receipt and in the API.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from approvals.models import ApprovalRequest, Receipt
from approvals.results.earlier_askings import earlier_askings
from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import Graph
from tests.support import cast, run_actions
from tests.support.effect_graphs import fine, paying
from tests.support.page_people import browse  # noqa: F401
from tests.support.rows import a_request, a_run
from tests.support.small_graphs import advanced
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[[User], Client]
AGAIN = "Asked again."


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


def failing_once() -> Graph:
    """People approve a payment; if it fails, they are asked again."""
    fails = iter([True, False, False])

    def pay(state: Any, ctx: Any) -> None:
        if next(fails):
            raise ValueError("the bank <b>refused</b> it")

    flow = paying(pay, name="failing_once")
    flow.node("settle")(fine)
    flow.edge("pay", "settle", when="error")
    flow.edge("settle", "review")
    return flow


@pytest.fixture
def again(rita: User) -> Run:
    """A run that asks a second time, because what was approved failed."""
    run = advanced(failing_once())
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    return run


def review(client: Client, run: Run) -> str:
    page = client.get(reverse("review", args=[run.id])).content.decode()
    return page.replace("<bdi>", "").replace("</bdi>", "")


def test_a_first_asking_is_none_of_these(rita: User) -> None:
    request = run_actions.request(advanced(failing_once()))
    with counted() as sent:
        assert earlier_askings([request]) == {}
    assert len(sent) == 0


def test_the_review_says_first_that_what_was_approved_failed(
    again: Run,
    rita: User,
    ravi: User,
    browse: Browse,  # noqa: F811
) -> None:
    page = review(browse(rita), again)
    note, question = page.index(AGAIN), page.index("The run asks")
    assert note < question
    assert "You approved it at " in page
    assert "pay: failed (the bank &lt;b&gt;refused&lt;/b&gt; it)" in page
    # For another reader the same person has a name.
    assert f"{rita.get_username()} approved it at " in review(browse(ravi), again)


def test_only_those_are_named_whose_signatures_count_for_how_it_ended(
    rita: User,
    ravi: User,
    browse: Browse,  # noqa: F811
) -> None:
    flow = paying(name="two_of_them", gate={"quorum": 2})
    flow.edges[:] = [edge for edge in flow.edges if edge.source != "refuse"]
    flow.edge("refuse", "review")
    run = advanced(flow)
    run_actions.sign_open(run, rita, "approve")
    run_actions.sign_open(run, ravi, "reject")
    run = runs.advance(run.id)
    page = review(browse(rita), run)
    assert f"{ravi.get_username()} rejected it at " in page
    assert "You" not in page[page.index(AGAIN) : page.index("rejected it at ")]


def test_what_was_decided_only_afterwards_was_not_asked_before(rita: User) -> None:
    run = a_run(status="paused")
    now = timezone.now()
    open_now = a_request(run, "group:claims", visit=2)
    ApprovalRequest.objects.filter(id=open_now.id).update(opened_at=now)
    open_now.opened_at = now
    later = a_request(run, "group:claims", visit=1, status="applied")
    ApprovalRequest.objects.filter(id=later.id).update(
        settled_at=now + timedelta(hours=1)
    )
    assert earlier_askings([open_now]) == {}


def test_only_the_first_of_many_questions_show_their_outcome(
    again: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("approvals.results.earlier_askings.MOST_LISTED", 0)
    request = ApprovalRequest.objects.get(run=again, status="open")
    assert earlier_askings([request]) == {request.id: None}


def test_a_first_review_says_nothing_of_it(
    rita: User,
    browse: Browse,  # noqa: F811
) -> None:
    run = advanced(failing_once())
    assert AGAIN not in review(browse(rita), run)


def test_a_question_that_was_rejected_says_so_when_it_comes_again(
    rita: User,
    browse: Browse,  # noqa: F811
) -> None:
    flow = failing_once()
    flow.edges[:] = [edge for edge in flow.edges if edge.source != "refuse"]
    flow.edge("refuse", "review")
    run = advanced(flow)
    run_actions.sign_open(run, rita, "reject")
    run = runs.advance(run.id)
    page = review(browse(rita), run)
    assert "You rejected it at " in page
    assert "refuse: done" in page


def test_the_inbox_marks_what_is_asked_again_and_says_what_came_of_what_is_decided(
    again: Run,
    rita: User,
    browse: Browse,  # noqa: F811
) -> None:
    client = browse(rita)
    assert b'data-test="asked-again"' in client.get(reverse("inbox")).content
    decided = client.get(reverse("inbox"), {"folder": "decided"}).content.decode()
    assert 'data-test="came-of-it"' in decided
    decided = decided.replace("<bdi>", "").replace("</bdi>", "")
    assert "pay: failed" in " ".join(decided.split())


def test_the_receipt_says_what_came_of_it(
    again: Run,
    rita: User,
    browse: Browse,  # noqa: F811
) -> None:
    receipt = Receipt.objects.get()
    page = browse(rita).get(reverse("receipt", args=[receipt.id]))
    assert page.context["came_of_it"] == [
        ("pay: failed (the bank <b>refused</b> it)", True),
        ("tell: not yet", False),
    ]


def test_who_may_not_see_the_run_any_more_learns_how_it_ended_and_no_value(
    again: Run,
    rita: User,
    browse: Browse,  # noqa: F811
) -> None:
    rita.groups.clear()
    receipt = Receipt.objects.get()
    page = browse(rita).get(reverse("receipt", args=[receipt.id]))
    assert page.context["came_of_it"] == [
        ("pay: failed", True),
        ("tell: not yet", False),
    ]
    assert b"refused" not in page.content


def test_the_api_says_what_came_of_a_request(again: Run, rita: User) -> None:
    client = APIClient()
    client.force_authenticate(rita)
    first, second = ApprovalRequest.objects.filter(run=again).order_by("visit")
    answer = client.get(f"/api/v1/requests/{first.id}/").json()
    pay, tell = answer["came_of_it"]
    assert pay["node"] == "pay"
    assert pay["effect"] == "external"
    assert pay["status"] == "failed"
    assert pay["counts"] == {"failed": 1}
    assert pay["at"] is not None
    assert pay["error"] == "the bank <b>refused</b> it"
    assert tell["status"] == "not yet"
    assert client.get(f"/api/v1/requests/{second.id}/").json()["came_of_it"] == []
