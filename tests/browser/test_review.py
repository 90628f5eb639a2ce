"""The review page in a real browser: what it says as one decides, at every width, and
once nothing is left.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from approvals.models import Decision
from checkpoints.models import Run
from orchestrator import runs
from tests.browser.axe import sideways, violations
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People, named

Browse = Callable[..., Page]
WIDTHS = (1440, 1180, 1024, 900, 768, 600, 390, 320)
SMALLEST_TARGET = 44
BROKEN_IDS = """() => [...document.querySelectorAll('main .id')]
  .filter(element => element.offsetParent && element.getClientRects().length > 1)
  .map(element => element.textContent)"""
OUTSIDE = """() => [...document.querySelectorAll('.slip')].flatMap(slip => {
  const edge = slip.getBoundingClientRect().right + 1;
  return [...slip.querySelectorAll('.trip .btn, td, .id')]
    .filter(element => element.offsetParent && element.getBoundingClientRect().right > edge)
    .map(element => element.textContent.trim());
})"""
CUT = """() => [...document.querySelectorAll('.slip .id')]
  .filter(element => element.offsetParent && getComputedStyle(element).overflow !== 'visible')
  .filter(element => element.scrollWidth > element.clientWidth + 1)
  .map(element => element.textContent)"""


@pytest.fixture
def review(people: People, browse: Browse) -> Page:
    """Rita's review of three writes; live."""
    named(people.second_reviewer, "Ravi Shah")
    claims.paused("CLM-118867", people.starter)
    page = browse(people.reviewer)
    page.open("/reviews/CLM-118867/")
    page.page.wait_for_selector(".live:not([hidden])")
    return page


@pytest.fixture
def five(people: People, browse: Browse) -> Iterator[Run]:
    """A run that asks for five writes."""
    with claims.registered(claims.many_writes("five_notes", 5), claims.graph_of()):
        yield claims.paused("CLM-5", people.starter, graph="five_notes")


def test_an_amount_an_account_number_or_an_id_is_never_cut_or_broken_over_two_lines_at_any_width(
    review: Page,
) -> None:
    for width in WIDTHS:
        review.page.set_viewport_size({"width": width, "height": 900})
        assert review.page.evaluate(BROKEN_IDS) == [], width
        assert review.page.evaluate(CUT) == [], width


def test_nothing_leaves_its_slip_at_any_width(review: Page) -> None:
    for width in WIDTHS:
        review.page.set_viewport_size({"width": width, "height": 900})
        assert review.page.evaluate(OUTSIDE) == [], width


def test_at_390_px_five_writes_can_be_signed_with_44_px_targets_and_no_sideways_scroll(
    five: Run, people: People, browse: Browse
) -> None:
    phone = browse(
        people.reviewer, viewport={"width": 390, "height": 844}, has_touch=True
    )
    phone.open("/reviews/CLM-5/")
    assert sideways(phone.page, 390) == []
    heights = phone.page.eval_on_selector_all(
        ".trip .btn, .foot .btn:not([hidden])",
        "all => all.filter(element => element.offsetParent)"
        ".map(element => element.getBoundingClientRect().height)",
    )
    assert min(heights) >= SMALLEST_TARGET
    for number in range(1, 6):
        phone.page.locator(f"#w{number} .trip .btn").first.tap()
    phone.page.locator("#sign").tap()
    phone.page.wait_for_url("**/receipts/**")
    assert phone.page.inner_text("h1") == "5 decisions signed"
    assert sideways(phone.page, 390) == []


def test_what_happens_when_you_sign_lists_nodes_in_order_and_changes_when_a_draft_changes(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.in_two_steps(), claims.graph_of()):
        claims.paused("CLM-2", people.starter, graph="two_steps")
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/CLM-2/")
        for number in (1, 2):
            reviewer.page.check(f"#w{number} input[value=approve]", force=True)
        reviewer.page.wait_for_selector("#next code:text('post')")
        assert reviewer.page.locator("#next code").all_inner_texts() == [
            "transfer",
            "post",
        ]
        reviewer.page.check("#w1 input[value=reject]", force=True)
        reviewer.page.wait_for_selector("#next :text('may find nothing to do')")
        assert "Rejected: it does not happen." in reviewer.page.inner_text("#next")


def test_a_run_cancelled_while_open_says_so_within_two_seconds_and_that_drafts_were_not_sent(
    review: Page, people: People
) -> None:
    page = review.page
    page.check("#w1 input[value=approve]", force=True)
    page.check("#w2 input[value=reject]", force=True)
    page.wait_for_selector("#next :text('Rejected: it does not happen.')")
    runs.cancel("CLM-118867", by=people.starter, reason="sent twice")
    page.wait_for_selector("#gone :text('The run was cancelled at')")
    page.wait_for_selector("#gone :text('Your 2 drafts were not sent.')")
    assert page.locator("[data-test=withdrawn]").count() == 3
    assert page.locator(".changed:visible").count() == 0
    assert page.locator(".trip:visible, .keys:visible, #foot:visible").count() == 0
    assert "The run waits until" not in page.inner_text("main")
    page.reload()
    assert "Your draft (Approved) was not sent." in page.inner_text("#w1")
    assert "0 of 0" not in page.inner_text("#signatures")
    assert review.complaints == []


def test_a_cancelled_run_answers_410_to_a_signature(
    people: People, browse: Browse
) -> None:
    claims.paused("CLM-3", people.starter)
    plain = browse(people.reviewer, java_script_enabled=False)
    plain.open("/reviews/CLM-3/")
    plain.page.check("#w1 input[value=approve]", force=True)
    runs.cancel("CLM-3", by=people.starter, reason="sent twice")
    with plain.page.expect_response("**/sign/") as answer:
        plain.page.click("#sign")
    assert answer.value.status == 410
    assert "Your draft (Approved) was not sent." in plain.page.inner_text("#w1")
    assert "was not sent" not in plain.page.inner_text("#w2")
    assert not Decision.objects.exists()


def test_a_settled_review_is_one_quiet_line(review: Page, people: People) -> None:
    claims.decide_all(
        Run.objects.get(key="CLM-118867"), by=people.second_reviewer, verdict="reject"
    )
    page = review.page
    page.wait_for_selector("#gone :text('Settled by Ravi Shah at')")
    assert "Nothing left to decide." in page.inner_text("#gone")
    assert page.locator("#gone .bad").count() == 0
    assert page.locator(".keys:visible").count() == 0
    page.reload()
    assert page.locator("#w1 [data-test=settled-line]").count() == 1
    assert page.inner_text("#w1").count("Ravi Shah") == 2, (
        "who settled it, and whose reason it was"
    )
    assert "0 of 0" not in page.inner_text("#signatures")
    assert violations(page) == []


def test_a_new_value_has_one_column_and_reads_as_its_type_says(
    people: People, browse: Browse
) -> None:
    with claims.registered(
        claims.many_payouts("payouts", ["4512.50"]), claims.graph_of()
    ):
        claims.paused("CLM-7", people.starter, graph="payouts")
        reviewer = browse(people.reviewer)
        reviewer.open("/reviews/CLM-7/")
        table = reviewer.page.inner_text("#w1-change")
        assert "€4,512.50" in table
        assert '"' not in table
        assert "—" not in table
        gaps = reviewer.page.locator("#w1-change .account > span")
        assert gaps.all_inner_texts() == ["DE89", "3704", "0044", "0532", "0130", "00"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_a_reviewer_pass_axe(
    people: People, browse: Browse, scheme: Any
) -> None:
    claims.paused("CLM-1", people.starter)
    for width in (1440, 390):
        reviewer = browse(
            people.reviewer,
            color_scheme=scheme,
            viewport={"width": width, "height": 900},
        )
        for path in ("/reviews/", "/reviews/CLM-1/"):
            reviewer.open(path)
            reviewer.page.wait_for_timeout(300)
            assert violations(reviewer.page) == [], (width, path)
