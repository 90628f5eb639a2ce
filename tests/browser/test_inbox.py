"""The inbox in a real browser: what is new appears, what is settled says so, and the
counts follow by themselves.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from approvals import reviews
from checkpoints.models import PendingWrite, Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import claims, deadlines, run_actions
from tests.support.cast import People, named

Browse = Callable[..., Page]


def counts(page: Any) -> tuple[str, str]:
    """Return what the bar and the tab's title say."""
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


def test_new_reviews_do_not_move_rows_and_appear_where_they_belong_after_show_them(
    people: People, browse: Browse
) -> None:
    urgent = claims.graph_of("urgent", deadline=timedelta(minutes=20))
    with claims.registered(claims.graph_of(), urgent):
        claims.paused("CLM-1", people.starter)
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/")
        reviewer.page.wait_for_selector(".live:not([hidden])")
        claims.paused("CLM-2", people.starter, graph="urgent")
        claims.paused("CLM-3", people.starter)
        page = reviewer.page
        page.wait_for_selector("#new-reviews:has-text('2 new reviews.')")
        assert page.locator("#inbox li").count() == 1
        assert counts(page) == ("3", "(3)")
        page.click("#new-reviews button")
        page.wait_for_selector("#inbox li:nth-child(3)")
        order = [row.inner_text() for row in page.locator("#inbox li h3").all()]
        # The one with the least time left is first, and has the focus.
        assert [text.split()[1] for text in order] == ["CLM-2?", "CLM-1?", "CLM-3?"]
        focused = page.evaluate("document.activeElement.textContent")
        assert "CLM-2" in focused
        assert not page.is_visible("#new-reviews")
        assert reviewer.complaints == []


def test_rows_are_ordered_by_time_left_and_say_what_happens_at_the_deadline(
    people: People, browse: Browse
) -> None:
    graphs = [
        claims.graph_of("soon", deadline=timedelta(minutes=20)),
        claims.graph_of("today", deadline=timedelta(minutes=90), on_deadline="fail"),
        claims.graph_of("later", deadline=timedelta(days=3)),
        claims.graph_of(),
    ]
    with claims.registered(*graphs):
        claims.paused("CLM-4", people.starter)
        for number, name in ((3, "later"), (2, "today"), (1, "soon")):
            claims.paused(f"CLM-{number}", people.starter, graph=name)
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/")
        rows = reviewer.page.locator("#inbox li").all()
        assert [row.inner_text().split()[1] for row in rows] == [
            "CLM-1?",
            "CLM-2?",
            "CLM-3?",
            "CLM-4?",
        ]
        # The most urgent one has the red edge, and says in text how long is left.
        assert "hot" in str(rows[0].get_attribute("class"))
        assert "min left" in rows[0].inner_text()
        at_deadline = "[data-test=at-deadline]"
        assert rows[0].locator(at_deadline).inner_text() == "then it is rejected"
        assert rows[1].locator(at_deadline).inner_text() == "then the run fails"
        assert "No deadline" in rows[3].inner_text()


def test_where_silence_approves_it_is_said_in_amber(
    people: People, browse: Browse
) -> None:
    # Behind its gate nothing changes the world, so that silence may approve.
    silent = deadlines.gated(
        "silent", reviewers=["group:reviewer"], on_deadline="approve"
    )
    with claims.registered(silent):
        runs.advance(runs.start("silent", {}, by=people.starter).id)
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/")
        said = reviewer.page.locator("[data-test=at-deadline]")
        assert said.inner_text() == "then the system approves it"
        assert said.get_attribute("class") == "alarm"
        # Nothing can be approved from here.
        assert reviewer.page.locator("#inbox input, #inbox form").count() == 0


def test_a_settled_review_stays_in_its_place_and_says_by_whom(
    people: People, browse: Browse
) -> None:
    named(people.second_reviewer, "Ravi Shah")
    first = claims.paused("CLM-1", people.starter)
    claims.paused("CLM-2", people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/")
    reviewer.page.wait_for_selector(".live:not([hidden])")
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
    items = [
        {
            "write": str(write.write),
            "hash": write.hash,
            "verdict": "reject",
            "reason": "no",
        }
    ]
    reviews.sign(run.id, items, by=people.second_reviewer)
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


def test_what_another_edited_appears_by_itself_under_came_back_until_it_is_signed_again(
    people: People, browse: Browse
) -> None:
    two = claims.graph_of("two", quorum=2)
    with claims.registered(two):
        run = claims.paused("CLM-1", people.starter, graph="two")
        claims.decide_all(run, by=people.reviewer)
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/?folder=back")
        page = reviewer.page
        assert "something that you signed has changed" in page.inner_text("#inbox")
        page.wait_for_selector(".live:not([hidden])")
        letter = PendingWrite.objects.get(run=run, channel="letter")
        edit = {
            "write": str(letter.write),
            "hash": letter.hash,
            "verdict": "edit",
            "value": "Dear Ines",
        }
        reviews.sign(run.id, [edit], by=people.second_reviewer)
        page.wait_for_selector("#inbox :text('Pay CLM-1?')")
        folder = page.inner_text("#folders [aria-current]")
        assert folder.split() == ["Came", "back", "1"]
        # Only the edited write is signed again: the other signatures stand.
        (edited,) = run_actions.pending(run)[1:2]
        again = {"write": str(edited.write), "hash": edited.hash, "verdict": "approve"}
        reviews.sign(run.id, [again], by=people.reviewer)
        reviewer.open("/reviews/?folder=back")
        assert "something that you signed has changed" in page.inner_text("#inbox")
        assert reviewer.complaints == []


def test_keys_of_the_inbox_move_take_give_back_and_lead_to_handing_over(
    people: People, browse: Browse
) -> None:
    for key in ("CLM-1", "CLM-2"):
        claims.paused(key, people.starter)
    reviewer = browse(people.reviewer)
    reviewer.open("/reviews/")
    page = reviewer.page
    focused = "document.activeElement.textContent"
    press = page.keyboard.press
    press("j")
    assert "CLM-1" in page.evaluate(focused)
    press("j")
    assert "CLM-2" in page.evaluate(focused)
    press("h")
    page.wait_for_selector("#announce:text-is('Take it first: press T.')")
    press("t")
    second = "#inbox li:nth-child(2)"
    page.wait_for_selector(f"{second} [data-test=claimed]:text-is('taken by you')")
    page.wait_for_selector("#announce:text-is('You have taken this review.')")
    # The focus stays, so the next key is about the same review.
    press("t")
    page.wait_for_selector(f"{second} [data-test=claimed]", state="detached")
    page.wait_for_selector("#announce:text-is('The review is given back.')")
    press("t")
    page.wait_for_selector(f"{second} [data-test=claimed]")
    press("h")
    page.wait_for_url("**/reviews/*/#to-*")
    page.wait_for_function("document.activeElement.name === 'to'")
    assert reviewer.complaints == []


def test_a_review_that_another_has_locked_is_not_taken_by_key_and_says_so(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.graph_of("locked", exclusive=True)):
        run = claims.paused("CLM-1", people.starter, graph="locked")
        reviews.claim(run_actions.request(run).id, by=people.second_reviewer)
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/")
        page = reviewer.page
        page.keyboard.press("j")
        page.keyboard.press("t")
        page.wait_for_selector("#announce:has-text('Nothing was changed')")
        assert "taken by ravi" in page.inner_text("#inbox")
