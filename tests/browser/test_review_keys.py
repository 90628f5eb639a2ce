"""Keys on a review in a real browser: which write they decide, when they do nothing,
and how they are switched off.
"""

from collections.abc import Callable

import pytest

from approvals.models import Decision, RequestClaim
from checkpoints.models import Run
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People

Browse = Callable[..., Page]


@pytest.fixture
def review(people: People, browse: Browse) -> Page:
    """Rita's review of three writes, fresh: nothing is chosen and nothing has focus."""
    claims.paused("CLM-1", people.starter)
    page = browse(people.reviewer)
    page.open("/reviews/CLM-1/")
    return page


def chosen(page: Page) -> dict[str, str]:
    """The slips with a verdict: {id of the slip: verdict}."""
    verdicts = page.page.eval_on_selector_all(
        ".trip input:checked",
        "all => all.map(input => [input.closest('.slip').id, input.value])",
    )
    return dict(verdicts)


def marked(page: Page) -> list[str]:
    """The slips with the blue outline."""
    ids: list[str] = page.page.eval_on_selector_all(
        ".slip.cur", "all => all.map(slip => slip.id)"
    )
    return ids


def switch_keys_off(page: Page) -> None:
    """Do as the server does for a person who switched shortcuts off."""
    page.page.evaluate("document.body.dataset.shortcuts = 'off'")


def test_keys_decide_the_write_that_has_focus(review: Page) -> None:
    review.page.focus("#w3 .trip input[value=approve]")
    review.page.keyboard.press("a")
    assert chosen(review) == {"w3": "approve"}
    assert marked(review) == ["w3"]
    review.page.keyboard.press("z")
    assert chosen(review) == {}


def test_tabbing_into_a_write_marks_it_in_the_list_too(review: Page) -> None:
    review.page.focus("#w2 h3")
    review.page.keyboard.press("Tab")
    assert marked(review) == ["w2"]
    assert review.page.get_attribute(".wlist a[aria-current]", "href") == "#w2"


def test_keys_on_a_fresh_page_decide_the_write_that_is_marked(review: Page) -> None:
    assert review.page.evaluate("document.activeElement === document.body")
    assert marked(review) == ["w1"]
    review.page.keyboard.press("r")
    assert chosen(review) == {"w1": "reject"}
    assert review.complaints == []


def test_the_first_marked_write_is_the_first_that_is_left_to_decide(
    review: Page, people: People
) -> None:
    review.page.check("#w1 input[value=approve]", force=True)
    review.page.wait_for_selector("#next :text('Approved')")
    review.page.reload()
    assert marked(review) == ["w2"]


def test_an_address_that_names_a_write_marks_it(review: Page) -> None:
    review.page.goto("about:blank")
    review.open("/reviews/CLM-1/#w3")
    review.page.wait_for_selector("#w3.cur")
    assert marked(review) == ["w3"]


def test_a_link_in_the_list_marks_the_write_it_leads_to(review: Page) -> None:
    review.page.click(".wlist a[href='#w3']")
    review.page.keyboard.press("a")
    assert chosen(review) == {"w3": "approve"}


def test_on_opening_no_verdict_is_chosen_no_button_is_filled_enter_and_space_on_the_page_do_nothing(
    review: Page,
) -> None:
    for key in ("Enter", " ", "Control+Enter"):
        review.page.keyboard.press(key)
    assert chosen(review) == {}
    assert review.page.locator(".stamp.draft:visible").count() == 0
    colours = review.page.eval_on_selector_all(
        ".trip .btn",
        "all => [...new Set(all.map(element => getComputedStyle(element).backgroundColor))]",
    )
    assert colours == ["rgba(0, 0, 0, 0)"]
    assert review.page.url.endswith("/reviews/CLM-1/")


def test_a_in_a_comment_field_types_a_with_shortcuts_switched_off_a_does_nothing(
    review: Page,
) -> None:
    review.page.check("#w2 input[value=reject]", force=True)
    review.page.focus("#w2 .why textarea")
    review.page.keyboard.press("a")
    assert review.page.input_value("#w2 .why textarea") == "a"
    assert chosen(review) == {"w2": "reject"}
    switch_keys_off(review)
    review.page.focus("#w3 h3")
    review.page.keyboard.press("a")
    assert chosen(review) == {"w2": "reject"}


def test_with_shortcuts_switched_off_the_list_of_keys_is_not_there(
    review: Page,
) -> None:
    assert review.page.locator(".wl .keys").is_visible()
    switch_keys_off(review)
    assert review.page.locator(".wl .keys").is_hidden()
    assert review.page.locator(".trip kbd:visible").count() == 0


def test_ctrl_enter_does_nothing_while_the_sign_button_is_not_ready(
    review: Page,
) -> None:
    posted: list[str] = []
    review.page.on(
        "request",
        lambda request: posted.append(request.url) if "/sign/" in request.url else None,
    )
    review.page.check("#w1 input[value=approve]", force=True)
    review.page.keyboard.press("Control+Enter")
    review.page.wait_for_timeout(300)
    assert posted == []
    assert not Run.objects.get(key="CLM-1").decisions


def test_the_sign_button_counts_undecided_slips_and_moves_focus_to_the_first(
    review: Page,
) -> None:
    review.page.check("#w3 input[value=approve]", force=True)
    assert review.page.inner_text("#sign") == "Decide 2 more to sign"
    review.page.click("#sign", force=True)
    assert review.page.evaluate("document.activeElement.closest('.slip').id") == "w1"
    assert marked(review) == ["w1"]


def test_enter_held_on_a_focused_verdict_never_signs(review: Page) -> None:
    review.page.focus("#w1 .trip input[value=approve]")
    for _ in range(3):
        review.page.keyboard.press("Enter")
    assert chosen(review) == {}
    assert review.page.url.endswith("/reviews/CLM-1/")


def decide_all(review: Page) -> None:
    for slip in ("w1", "w2", "w3"):
        review.page.check(f"#{slip} input[value=approve]", force=True)
    review.page.wait_for_selector("#sign:text('Sign 3 decisions')")


def test_ctrl_enter_in_a_comment_writes_it_and_signs_nothing(review: Page) -> None:
    decide_all(review)
    review.page.fill("#comment-text", "Wait, is this right?")
    review.page.keyboard.press("Control+Enter")
    review.page.wait_for_selector("[data-test=comment] :text('Wait, is this right?')")
    assert not Decision.objects.exists()
    assert review.complaints == []


def test_ctrl_enter_in_a_hand_over_hands_it_over_and_signs_nothing(
    review: Page, people: People
) -> None:
    review.page.click("[data-test=claim] button[value=claim]")
    review.page.wait_for_selector("[data-test=claim] button[value=release]")
    decide_all(review)
    review.page.fill("[data-test=claim] [name=to]", people.second_reviewer.username)
    review.page.fill("[data-test=claim] [name=comment]", "Yours.")
    review.page.keyboard.press("Control+Enter")
    review.page.wait_for_selector("[data-test=comment] :text('Yours.')")
    assert RequestClaim.objects.get().by == people.second_reviewer
    assert not Decision.objects.exists()
