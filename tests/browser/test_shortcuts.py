"""Keys that work everywhere: their list, the ways to other pages, and the switch that
turns them off.
"""

from collections.abc import Callable

from orchestrator.models import Preference
from tests.browser.axe import violations
from tests.browser.conftest import Page
from tests.support.cast import People

Browse = Callable[..., Page]


def test_the_question_mark_opens_the_keys_of_this_page_and_escape_gives_focus_back(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open("/runs/")
    page = window.page
    page.focus("#main")
    page.keyboard.press("?")
    page.wait_for_selector("dialog#keys[open]")
    assert "find a run" in page.inner_text("#keys")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog#keys", state="hidden")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_question_mark_in_a_text_field_is_typed(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open("/runs/")
    window.page.focus("#find")
    window.page.keyboard.press("?")
    assert window.page.input_value("#find") == "?"
    assert not window.page.is_visible("dialog#keys")


def test_g_and_a_letter_lead_to_another_page(people: People, browse: Browse) -> None:
    window = browse(people.starter)
    window.open("/graphs/")
    window.page.keyboard.press("g")
    window.page.keyboard.press("r")
    window.page.wait_for_url("**/runs/")


def test_with_shortcuts_switched_off_no_key_does_anything(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open("/account/")
    window.page.click("text=Switch shortcuts off")
    window.page.wait_for_selector("body[data-shortcuts=off]")
    assert not Preference.objects.get(user=people.starter).shortcuts
    window.open("/graphs/")
    for key in ("?", "/", "g", "r"):
        window.page.keyboard.press(key)
    assert not window.page.is_visible("dialog#keys")
    assert window.page.evaluate("document.activeElement.tagName") == "BODY"
    assert window.page.url.endswith("/graphs/")
