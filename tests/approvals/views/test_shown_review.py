"""What a review says of itself: how many writes are decided, and how it ended."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.views import inbox
from approvals.views.shown_review import Tally
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from tests.support import deadlines, run_actions
from tests.support.cast import People, named
from tests.support.small_graphs import advanced, graph
from tests.support.tiers import ONE_OF_EACH, let_tiers_come, work_off_tiers

Browse = Callable[[User], Client]


def open_review(browse: Browse, user: User, run: Run) -> Any:
    page = browse(user).get(reverse("review", args=[run.id]))
    assert page.status_code == 200
    return page


def test_a_tally_counts_verdicts_and_its_bars_follow_each_other() -> None:
    tally = Tally.of_verdicts(["approve", "", "reject", "approve", "edit", ""])
    assert tally.approve == 2
    assert tally.edit == 1
    assert tally.reject == 1
    assert tally.undecided == 2
    assert tally.done == 4
    assert tally.total == 6
    assert tally.edit_from == 2
    assert tally.reject_from == 3


def test_the_keyboard_begins_at_the_first_write_that_is_not_decided(
    run: Run, people: People, browse: Browse
) -> None:
    page = open_review(browse, people.reviewer, run).context["page"]
    assert page.current == "w1"
    page.slips[0].chosen = "approve"
    assert page.current == "w2"
    assert page.undecided == 2


def test_the_count_of_signatures_says_what_it_counts(
    run: Run, people: People, browse: Browse
) -> None:
    assert (
        ">0 of 1 signed</span>"
        in open_review(browse, people.reviewer, run).content.decode()
    )


def test_who_cancelled_the_run_is_asked_once_for_the_whole_page(
    run: Run, people: People, browse: Browse
) -> None:
    runs.cancel(run.id, by=people.starter, reason="not wanted")
    client = browse(people.reviewer)
    with CaptureQueriesContext(connection) as sent:
        client.get(reverse("review", args=[run.id]))
    queries = [query["sql"] for query in sent.captured_queries]
    assert len([sql for sql in queries if "'cancel_requested'" in sql]) == 1


def test_who_cancelled_the_run_is_called_by_name(
    run: Run, people: People, browse: Browse
) -> None:
    runs.cancel(run.id, by=named(people.starter, "Olive Hart"), reason="not wanted")
    assert (
        " by Olive Hart. None of these writes will happen."
        in open_review(browse, people.reviewer, run).content.decode()
    )


@pytest.mark.django_db(transaction=True)
def test_a_review_says_what_its_deadline_does_and_afterwards_that_it_did(
    people: People, browse: Browse
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    waiting = deadlines.paused_run()
    page = open_review(browse, rita, waiting).content.decode()
    assert "If nobody decides by" in page
    assert "it is rejected</strong>" in page
    assert "Silence approves nothing here." in page

    open_request = run_actions.request(waiting)
    deadlines.let_come(waiting)
    runs.advance(waiting.id)
    address = reverse("review", args=[waiting.id])
    page = browse(rita).get(address, {"seen": str(open_request.id)}).content.decode()
    assert "Time ran out at" in page
    assert "; rejected by the deadline." in page
    assert "Rejected by the deadline at" in page, "on each write"
    assert "of 1 signed" not in page, "a deadline is no signature"


@pytest.mark.django_db(transaction=True)
def test_a_review_of_several_deadlines_says_what_each_of_them_does(
    people: People, browse: Browse
) -> None:
    flow = graph("three-deadlines")

    def proposing(name: str, hours: int, on_deadline: Any) -> None:
        gate = Gate(
            reviewers=["group:claims"],
            deadline=hours * deadlines.HOUR,
            on_deadline=on_deadline,
        )

        @flow.node(name, effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"notes": [name]}

        flow.edge(START, name)
        flow.edge(name, END)

    proposing("soon", 1, "reject")
    proposing("later", 5, "approve")
    proposing("last", 9, "fail")
    waiting = advanced(flow)
    assert waiting.status == "paused"
    rita = run_actions.reviewer(people.reviewer)
    page = open_review(browse, rita, waiting)
    acts = [act for _, act in page.context["page"].deadlines]
    assert acts == ["it is rejected", "the system approves it", "the run fails"]
    text = page.content.decode()
    assert text.count('data-test="at-deadline"') == 3
    assert "Silence approves nothing here." not in text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("status", "act"),
    [
        ("failed", "it is closed, and asked anew when the run is resumed"),
        ("incompatible", "nothing happens before the run goes on"),
    ],
)
def test_a_run_that_has_stopped_already_is_not_said_to_fail_at_the_deadline(
    people: People, status: str, act: str
) -> None:
    waiting = deadlines.paused_run(on_deadline="fail")
    open_request = run_actions.request(waiting)
    open_request.run.status = status
    assert inbox.at_deadline(open_request) == act


@pytest.mark.django_db(transaction=True)
def test_a_review_that_its_deadline_closed_says_that_the_run_failed(
    people: People, browse: Browse
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    waiting = deadlines.paused_run(on_deadline="fail")
    assert (
        "the run fails</strong>" in open_review(browse, rita, waiting).content.decode()
    )
    open_request = run_actions.request(waiting)
    deadlines.let_come(waiting)
    assert runs.advance(waiting.id).status == "failed"
    address = reverse("review", args=[waiting.id])
    page = browse(rita).get(address, {"seen": str(open_request.id)}).content.decode()
    assert "; the run failed by the deadline." in page


@pytest.mark.django_db(transaction=True)
def test_a_review_says_whom_it_asks_too_since_when_and_what_comes_next(
    people: People, browse: Browse
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    waiting = deadlines.paused_run(tiers=ONE_OF_EACH, deadline=None)
    page = open_review(browse, rita, waiting).content.decode()
    assert "a reminder goes to those who may decide." in page
    assert "also asked" not in page
    let_tiers_come(waiting)
    work_off_tiers(waiting)
    assert (
        "leads may decide too." in open_review(browse, rita, waiting).content.decode()
    )
    let_tiers_come(waiting)
    work_off_tiers(waiting)
    page = open_review(browse, rita, waiting).content.decode()
    assert "Has also asked leads since" in page
    assert "may decide too" not in page
