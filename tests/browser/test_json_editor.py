"""The JSON editor of the go-on page: loaded when it is opened, within the policy, left
with Tab, and dispensable.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import run_actions
from tests.support.cast import People
from tests.support.paid_claims import paid

Browse = Callable[..., Page]


def opened(window: Page, run: Run, seq: int = 1) -> Any:
    window.open(
        f"/checkpoints/{timeline.get_checkpoint(f'{run.key}:at-{seq}').id}/go-on/"
    )
    return window.page


def open_json(page: Any) -> Any:
    page.click("#view-json")
    page.wait_for_selector(".json-editor .cm-content")
    return page.locator(".json-editor .cm-content")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_editor_is_loaded_when_it_is_opened_and_breaks_no_rule_of_the_policy(
    scheme: str, people: People, browse: Browse
) -> None:
    window = browse(people.starter, color_scheme=scheme)
    calls: list[str] = []
    window.page.on("request", lambda request: calls.append(request.url))
    page = opened(window, paid("loaded", people))
    assert not [url for url in calls if "/vendor/" in url]
    editor = open_json(page)
    assert len([url for url in calls if "/vendor/codemirror" in url]) == 1
    assert {url.split("/")[2] for url in calls} == {window.site.split("/")[2]}
    assert editor.get_attribute("aria-label") == "The state as JSON"
    assert editor.get_attribute("role") == "textbox"
    assert page.locator("style").count() == 0
    paper, ink = (
        editor.evaluate(
            f"element => getComputedStyle(element.closest('.cm-editor'))['{name}']"
        )
        for name in ("backgroundColor", "color")
    )
    dark = [sum(int(n) for n in one[4:-1].split(",")) < 380 for one in (paper, ink)]
    assert dark == ([False, True] if scheme == "light" else [True, False])
    assert window.complaints == []


def test_what_is_typed_there_is_what_is_sent_and_the_old_lines_stand_in_red_above_the_new_ones(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    page = opened(window, paid("typed", people))
    editor = open_json(page)
    state = json.loads(page.input_value("#json"))
    state["scratch"]["letter"] = "dear"
    editor.fill(json.dumps(state, indent=2))
    page.wait_for_selector("#lines .new :text('dear')")
    assert page.inner_text(".json-editor .cm-old").strip() == '"letter": "",'
    assert page.inner_text(".json-editor .cm-new").strip() == '"letter": "dear",'
    assert [
        " ".join(line.split()) for line in page.locator("#lines li").all_inner_texts()
    ] == [
        "scratch.letter Reset",
        "− before: empty text",
        "+ after: dear",
    ]
    page.click("#go")
    page.wait_for_url("**/runs/**")
    new_run = runs.advance(page.url.split("/runs/")[1].split("/")[0])
    assert run_actions.state(new_run)["letter"] == "dear"
    assert window.complaints == []


def test_tab_leaves_the_editor_and_keys_of_the_page_do_nothing_in_it(
    people: People, browse: Browse
) -> None:
    page = opened(browse(people.starter), paid("tabbed", people))
    editor = open_json(page)
    editor.click()
    before = page.input_value("#json")
    page.keyboard.press("Control+End")
    page.keyboard.type("/")
    assert page.input_value("#json") == f"{before}/"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.matches('.json-editor')") is False
    assert page.input_value("#json") == f"{before}/"


def test_one_value_is_put_back_and_then_all(people: People, browse: Browse) -> None:
    page = opened(browse(people.starter), paid("reset", people))
    editor = open_json(page)
    editor.fill(
        '{"scratch": {"letter": "dear", "notes": ["first", "more"], "total": 0}}'
    )
    page.wait_for_selector("#lines .new :text('more')")
    page.click("[aria-label='Reset scratch.notes[1]']")
    page.wait_for_selector("#lines :text('notes')", state="detached")
    page.wait_for_selector(".json-editor .cm-content")
    assert json.loads(page.input_value("#json"))["scratch"] == {
        "letter": "dear",
        "notes": ["first"],
        "total": 0,
    }
    page.click("button:has-text('Reset all')")
    page.wait_for_selector("#lines:not(:has(li))", state="attached")
    assert json.loads(page.input_value("#json"))["scratch"] == {
        "letter": "",
        "notes": ["first"],
        "total": 0,
    }
    assert "0 changes" in page.inner_text("#foot")


def test_a_word_is_found_in_keys_and_values_and_leads_to_its_field(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    page = opened(window, paid("sought", people))
    page.fill("#find-state", "FIRST")
    page.wait_for_selector("#found a:has-text('scratch.notes[0]')")
    page.wait_for_selector("#ch-notes[open]")
    assert page.locator(".chan:visible").count() == 1
    page.click("#found a")
    assert page.evaluate("document.activeElement.name") == "s-notes"
    page.fill("#find-state", "nowhere at all")
    page.wait_for_selector("#found :text('The state does not contain it')")
    assert page.input_value("#find-state") == "nowhere at all"
    assert window.complaints == []


def test_moving_the_starting_point_takes_what_was_typed_along(
    people: People, browse: Browse
) -> None:
    run = paid("taken_along", people)
    page = opened(browse(people.starter), run, 3)
    page.click("#ch-letter summary")
    page.fill("[name=s-letter]", "dear")
    page.click(".tape.start [aria-label^='Checkpoint 1,']")
    page.wait_for_selector(".tape.start [aria-current][aria-label^='Checkpoint 1,']")
    assert page.input_value("[name=s-letter]") == "dear"
    assert f"run={run.id}&seq=1" in page.url
    page.goto(page.url)
    assert "Go on from checkpoint 1" in page.inner_text("h1")


def test_without_scripts_the_textarea_is_there_and_values_are_put_back(
    people: People, browse: Browse
) -> None:
    page = opened(
        browse(people.starter, java_script_enabled=False), paid("plain", people)
    )
    page.click("#view-json")
    page.fill(
        "#json", '{"scratch": {"letter": "dear", "notes": ["first"], "total": 0}}'
    )
    page.click("#foot button:has-text('Check')")
    assert "dear" in page.inner_text("#lines .new")
    page.click("[aria-label='Reset scratch.letter']")
    assert page.locator("#lines li").count() == 0
    assert json.loads(page.input_value("#json"))["scratch"]["letter"] == ""
