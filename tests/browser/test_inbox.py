"""The inbox in a real browser: what is new appears, what is settled says so, and the
counts follow by themselves.
"""

from collections.abc import Callable
from typing import Any

import pytest

from approvals import reviews
from checkpoints.models import PendingWrite, Run
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People, named

Browse = Callable[..., Page]


def counts(page: Any) -> tuple[str, str]:
    """What the bar and the tab's title say."""
    return page.inner_text(".nav [data-waiting]"), page.title().partition(" ")[0]


def test_a_new_review_appears_by_itself_in_an_empty_inbox_and_the_counts_follow(
    people: People, browse: Browse
) -> None:
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/")
    assert "Nothing waits for you" in reviewer.page.inner_text("#inbox")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    claims.paused("CLM-1", people.starter)
    reviewer.page.wait_for_selector("#inbox :text('Pay CLM-1?')")
    assert counts(reviewer.page) == ("1", "(1)")
    assert reviewer.complaints == []


def test_a_new_review_is_added_without_moving_a_row_and_a_settled_one_says_by_whom(
    people: People, browse: Browse
) -> None:
    named(people.second_reviewer, "Ravi Shah")
    first = claims.paused("CLM-1", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    claims.paused("CLM-2", people.starter)
    reviewer.page.wait_for_selector("#inbox li:nth-child(2) :text('Pay CLM-2?')")
    assert "CLM-1" in reviewer.page.inner_text("#inbox li:nth-child(1)")
    assert counts(reviewer.page) == ("2", "(2)")

    claims.decide_all(first, by=people.second_reviewer, verdict="reject")
    reviewer.page.wait_for_selector("#inbox li.gone :text('rejected by Ravi Shah at')")
    assert "CLM-1" in reviewer.page.inner_text("#inbox li:nth-child(1)")
    assert counts(reviewer.page) == ("1", "(1)")
    assert reviewer.page.inner_text("#folders [aria-current] .count") == "1"
    reviewer.open("/reviews/")
    assert "CLM-1" not in reviewer.page.inner_text("#inbox")
    assert reviewer.complaints == []


def test_a_row_that_one_may_not_see_any_more_leaves_the_list(
    people: People, browse: Browse
) -> None:
    claims.paused("CLM-1", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/")
    reviewer.page.wait_for_selector("#inbox :text('Pay CLM-1?')")
    people.reviewer.groups.clear()
    reviewer.page.wait_for_selector("#inbox li", state="detached")
    assert counts(reviewer.page)[1] != "(1)"


def test_every_page_counts_what_waits(people: People, browse: Browse) -> None:
    reviewer = browse(people.reviewer)
    reviewer.open("/runs/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    assert reviewer.page.locator(".nav [data-waiting]").is_hidden()
    claims.paused("CLM-1", people.starter)
    reviewer.page.wait_for_selector(".nav [data-waiting]:text('1')")
    assert reviewer.complaints == []


def test_without_scripts_the_inbox_says_that_it_has_to_be_reloaded(
    people: People, browse: Browse
) -> None:
    reviewer = browse(people.reviewer, java_script_enabled=False)
    reviewer.open("/reviews/")
    assert "reload the page to see what is new" in reviewer.page.inner_text("#inbox")
    assert "by themselves" not in reviewer.page.inner_text("#inbox")


@pytest.fixture
def drafting(people: People, browse: Browse) -> tuple[Page, Run]:
    """Rita's review with a choice for each write, none of them signed; Ravi has a name."""
    named(people.second_reviewer, "Ravi Shah")
    run = claims.paused("CLM-1", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open(f"/reviews/{run.id}/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
    for number in (1, 2, 3):
        reviewer.page.check(f"#w{number} input[value=approve]", force=True)
    return reviewer, run


def test_what_somebody_else_settles_while_one_drafts_names_him_and_says_that_the_draft_was_not_sent(
    drafting: tuple[Page, Run], people: People
) -> None:
    reviewer, run = drafting
    write = PendingWrite.objects.get(channel="letter")
    given = [
        {
            "write": str(write.write),
            "hash": write.hash,
            "verdict": "reject",
            "reason": "no",
        }
    ]
    reviews.sign(run.id, given, by=people.second_reviewer)
    reviewer.page.wait_for_selector("#w2 .changed :text('Rejected by Ravi Shah at')")
    assert "Your draft was not sent." in reviewer.page.inner_text("#w2 .changed")
    assert "This changed" not in reviewer.page.inner_text("#w2 .changed")
    assert reviewer.page.inner_text("#sum") == "2 of 2 decided"
    reviewer.page.click("#sign")
    reviewer.page.wait_for_url("**/receipts/**")
    assert reviewer.page.inner_text("h1") == "2 decisions signed"
    assert reviewer.complaints == []


def test_a_review_that_is_over_while_one_drafts_says_who_ended_it(
    drafting: tuple[Page, Run], people: People
) -> None:
    from orchestrator import runs

    reviewer, run = drafting
    claims.decide_all(run, by=people.second_reviewer, verdict="reject")
    runs.advance(run.id)
    reviewer.page.wait_for_selector("#w1 .changed :text('Rejected by Ravi Shah at')")
    assert reviewer.page.locator("#foot").is_hidden()
    assert reviewer.complaints == []


def test_the_tab_of_a_review_counts_what_is_left(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open(f"/reviews/{run.id}/")
    assert reviewer.page.title().startswith("(3 left) ")
    reviewer.page.check("#w2 input[value=approve]", force=True)
    assert reviewer.page.title().startswith("(2 left) ")


def test_the_button_that_is_not_ready_leads_to_the_first_write_that_is_undecided(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open(f"/reviews/{run.id}/")
    reviewer.page.click("#sign", force=True)
    assert reviewer.page.evaluate("document.activeElement.closest('.slip').id") == "w1"
    reviewer.page.check("#w1 input[value=approve]", force=True)
    reviewer.page.check("#w3 input[value=approve]", force=True)
    reviewer.page.click("#sign", force=True)
    assert reviewer.page.evaluate("document.activeElement.closest('.slip').id") == "w2"


def test_the_button_that_is_not_ready_can_be_read_under_the_pointer(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter)
    for scheme in ("light", "dark"):
        reviewer = browse(people.reviewer, color_scheme=scheme)
        reviewer.open(f"/reviews/{run.id}/")
        reviewer.page.wait_for_timeout(300)  # its colours change by transition
        still = reviewer.page.eval_on_selector(
            "#sign", "e => getComputedStyle(e).backgroundColor"
        )
        reviewer.page.hover("#sign")
        reviewer.page.wait_for_timeout(300)
        assert (
            reviewer.page.eval_on_selector(
                "#sign", "e => getComputedStyle(e).backgroundColor"
            )
            == still
        )
