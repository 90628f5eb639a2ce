"""Live pages whose own requests fail or come late: the last line of a log is shown all
the same.
"""

from collections.abc import Callable
from typing import Any

import pytest

from approvals import reviews
from checkpoints.models import PendingWrite, Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People, named

Browse = Callable[..., Page]
REJECTED = "#w1 .changed :text('Rejected by Ravi Shah at')"


@pytest.fixture
def review(people: People, browse: Browse) -> tuple[Page, Run]:
    """Rita's review in which the first write has a choice that is not signed; Ravi has
    a name.
    """
    named(people.second_reviewer, "Ravi Shah")
    run = claims.paused("CLM-1", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open(f"/reviews/{run.id}/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    reviewer.page.check("#w1 input[value=approve]", force=True)
    return reviewer, run


def end(run: Run, people: People) -> None:
    """Reject everything as Ravi; nothing is written to the log after that."""
    claims.decide_all(run, by=people.second_reviewer, verdict="reject")
    runs.advance(run.id)


def fail_first(page: Any, path: str, *, count: int) -> list[int]:
    """Answer 503 to the first `count` fetches of a page; the list grows with each of
    them.
    """
    failures: list[int] = []

    def answer(route: Any) -> None:
        if route.request.resource_type != "fetch" or len(failures) >= count:
            route.continue_()
            return
        failures.append(503)
        route.fulfill(status=503, body="")

    page.route(lambda url: path in url, answer)
    return failures


def test_a_review_whose_look_failed_looks_again_though_the_log_says_no_more(
    review: tuple[Page, Run], people: People
) -> None:
    reviewer, run = review
    failures = fail_first(reviewer.page, f"/reviews/{run.id}/", count=2)
    end(run, people)
    reviewer.page.wait_for_selector(REJECTED)
    assert len(failures) == 2
    assert reviewer.page.locator("#foot").is_hidden()


def test_choices_that_cannot_be_kept_do_not_hide_that_a_review_is_over(
    review: tuple[Page, Run], people: People
) -> None:
    reviewer, run = review
    reviewer.page.route("**/draft/", lambda route: route.fulfill(status=503, body=""))
    reviewer.page.check("#w2 input[value=approve]", force=True)
    reviewer.page.wait_for_selector("#unsaved [data-why=off]:not([hidden])")
    end(run, people)
    reviewer.page.wait_for_selector(REJECTED)


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    review: tuple[Page, Run], people: People
) -> None:
    reviewer, run = review
    held: list[Any] = []

    def hold_first(route: Any) -> None:
        if route.request.resource_type == "fetch" and not held:
            held.append((route, route.fetch()))
        else:
            route.continue_()

    reviewer.page.route(lambda url: f"/reviews/{run.id}/" in url, hold_first)
    letter = PendingWrite.objects.get(run=run, channel="letter")
    decision = {
        "write": str(letter.write),
        "hash": letter.hash,
        "verdict": "reject",
        "reason": "no",
    }
    reviews.sign(run.id, [decision], by=people.second_reviewer)
    for _ in range(200):
        if held:
            break
        reviewer.page.wait_for_timeout(50)
    end(run, people)
    reviewer.page.wait_for_timeout(1000)
    route, old_answer = held[0]
    route.fulfill(response=old_answer)
    reviewer.page.wait_for_selector("#gone :text('Nothing left to decide')")
    reviewer.page.wait_for_timeout(1000)
    assert "Nothing left to decide" in reviewer.page.inner_text("#gone")


def test_a_run_page_whose_look_failed_looks_again(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter)
    page = browse(people.reviewer)
    page.open(f"/runs/{run.id}/")
    page.page.wait_for_selector(".live:not([hidden])")
    failures = fail_first(page.page, f"/runs/{run.id}/", count=2)
    end(run, people)
    page.page.wait_for_selector("#run-head .pill:text('Completed')")
    assert failures


def test_an_inbox_whose_look_failed_looks_again(people: People, browse: Browse) -> None:
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    failures = fail_first(reviewer.page, "/reviews/", count=1)
    claims.paused("CLM-1", people.starter)
    reviewer.page.wait_for_selector("#inbox :text('Pay CLM-1?')")
    assert failures
