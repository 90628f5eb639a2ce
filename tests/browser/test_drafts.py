"""Deciding in a real browser: nothing that was chosen is lost, and no trouble with the
server signs twice.
"""

from collections.abc import Callable
from typing import Any

from django.contrib.sessions.models import Session

from approvals.models import Decision, Draft
from checkpoints.models import Run
from tests.browser.conftest import Page
from tests.support import cast, claims
from tests.support.cast import People

Browse = Callable[..., Page]


def opened(people: People, browse: Browse, key: str, **options: Any) -> Page:
    claims.paused(key, people.starter)
    page = browse(people.reviewer, **options)
    page.open(f"/reviews/{key}/")
    return page


def choose(page: Page, write: int, word: str) -> None:
    page.page.check(f"#w{write} input[value={word}]", force=True)


def kept(page: Page, count: int) -> None:
    """Wait until so many writes have a draft on the server."""
    for _ in range(600):
        if Draft.objects.count() == count:
            return
        page.page.wait_for_timeout(50)
    raise AssertionError(f"{Draft.objects.count()} drafts, not {count}")


def chosen(page: Page) -> list[str]:
    verdicts = page.page.eval_on_selector_all(
        ".trip input:checked", "all => all.map(element => element.value)"
    )
    return [str(verdict) for verdict in verdicts]


def test_what_is_chosen_survives_reload_and_another_browser(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-20")
    choose(page, 1, "edit")
    page.page.fill("#w1 .editor input[name$='.amount']", "9.75")
    choose(page, 2, "reject")
    page.page.fill("#w2 .why textarea", "the tone is wrong")
    kept(page, 2)
    page.page.wait_for_selector("#next :text('Rejected: it does not happen.')")
    page.page.wait_for_timeout(1500)
    page.page.reload()
    other = browse(people.reviewer)
    other.open("/reviews/CLM-20/")
    for window in (page, other):
        assert chosen(window) == ["edit", "reject"]
        assert window.page.input_value("#w1 .editor input[name$='.amount']") == "9.75"
        assert window.page.input_value("#w2 .why textarea") == "the tone is wrong"
        assert window.page.inner_text("#sum") == "2 of 3 decided"
    assert page.complaints == []


def test_a_server_that_does_not_answer_signs_nothing_twice(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-21")
    for write in (1, 2, 3):
        choose(page, write, "approve")
    answers = iter(("lost", "broken"))

    def trouble(route: Any) -> None:
        how = next(answers, "")
        if how == "lost":
            route.fetch(
                max_redirects=0
            )  # it arrives and counts; only the answer is lost
            route.abort()
        elif how == "broken":
            route.fulfill(status=503, body="")
        else:
            route.continue_()

    page.page.route("**/sign/", trouble)
    for _ in range(2):
        page.page.click("#sign")
        page.page.wait_for_selector("#unsigned:not([hidden])")
        assert "Not signed." in page.page.inner_text("#unsigned")
        assert page.page.inner_text("#sign") == "Sign 3 decisions"
    page.page.click("#sign")
    page.page.wait_for_url("**/receipts/**")
    assert page.page.inner_text("h1") == "3 decisions signed"
    assert Decision.objects.count() == 3
    assert not Draft.objects.exists()


def test_no_success_is_shown_before_the_server_has_answered(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-22")
    for write in (1, 2, 3):
        choose(page, write, "approve")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.page.route("**/sign/", hold)
    page.page.click("#sign")
    page.page.wait_for_timeout(1000)
    assert page.page.inner_text("#sign") == "Signing…"
    assert "/reviews/" in page.page.url
    page.page.click("#sign")
    assert len(held) == 1, "a second press sends nothing"
    held[0].continue_()
    page.page.wait_for_url("**/receipts/**")


def test_a_refused_signature_leaves_no_old_error_and_no_page_that_is_posted_again(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-24")
    amount = page.page.locator("[name^='e-'][name$='.amount']")
    slip = page.page.locator(".slip").filter(has=amount)
    for write in (1, 2, 3):
        choose(page, write, "approve")

    def sign_a_wrong_amount() -> None:
        slip.locator("input[value=edit]").check(force=True)
        amount.fill("a lot")
        page.page.click("#sign")
        page.page.wait_for_selector("#message")

    sign_a_wrong_amount()
    assert not page.page.url.endswith("/sign/")
    choices = chosen(page)
    kept(page, 3)
    assert page.page.reload().request.method == "GET"
    assert chosen(page) == choices
    assert sorted(choices) == ["approve", "approve", "edit"]

    sign_a_wrong_amount()
    held: list[Any] = []
    page.page.route("**/sign/", lambda route: held.append(route))
    slip.locator("input[value=approve]").check(force=True)
    page.page.click("#sign")
    page.page.wait_for_selector("#sign:text('Signing…')")
    for _ in range(600):
        if held:
            break
        page.page.wait_for_timeout(50)
    assert not page.page.is_visible("#message")
    held[0].continue_()
    page.page.wait_for_url("**/receipts/**")
    assert page.page.go_back().request.method == "GET"
    assert "Approved 3." in page.page.inner_text("#signatures")


def test_a_session_that_ends_while_signing_leads_back_with_every_choice(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-23")
    for write, word in ((1, "approve"), (2, "approve")):
        choose(page, write, word)
    kept(page, 2)
    Session.objects.all().delete()
    choose(page, 3, "reject")
    page.page.wait_for_selector("#unsaved [data-why=out]:not([hidden])")
    page.page.click("#sign")
    page.page.wait_for_selector("#id_username")
    assert "your session has ended" in page.page.inner_text("main")
    page.page.fill("#id_username", people.reviewer.username)
    page.page.fill("#id_password", cast.PASSWORD)
    page.page.click("button.sign")
    page.page.wait_for_url("**/reviews/**")
    assert chosen(page) == ["approve", "approve", "reject"]
    assert not Decision.objects.exists()
    page.page.click("#sign")
    page.page.wait_for_url("**/receipts/**")
    assert Decision.objects.count() == 3


def test_choices_are_kept_without_scripts_by_a_button(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-24", java_script_enabled=False)
    choose(page, 1, "approve")
    choose(page, 2, "edit")
    page.page.click("#keep")
    assert "Your choices are kept; nothing is signed." in page.page.inner_text("main")
    marked = page.page.locator(".trip input[checked]").all()
    assert [one.get_attribute("value") for one in marked] == ["approve", "edit"]
    assert "Approved." in page.page.inner_text("#next")
    assert Run.objects.get(key="CLM-24").status == "paused"


def test_another_tab_with_newer_choices_is_not_overwritten(
    people: People, browse: Browse
) -> None:
    page = opened(people, browse, "CLM-25")
    other = browse(people.reviewer)
    other.open("/reviews/CLM-25/")
    choose(page, 1, "approve")
    kept(page, 1)
    choose(other, 1, "reject")
    other.page.wait_for_selector("#unsaved [data-why=newer]:not([hidden])")
    other.page.click("#unsaved [data-why=newer] a")
    other.page.wait_for_selector("#w1 input[value=approve]:checked", state="attached")
