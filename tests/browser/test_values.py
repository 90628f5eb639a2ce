"""Values in a real browser: what differs looks different, and long lists have pages
that are turned in place.
"""

import gzip
import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator import runs
from orchestrator.engine import END, START
from tests.approvals.views.looks import ALIKE, rendered
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People
from tests.support.small_graphs import graph

Browse = Callable[..., Page]
WIDTHS = (1440, 390)
BEFORE = (None, {}, "something") if os.environ.get("COUNTERSIGN_LOOKS") else (None,)
"""What stood there before; `make sweep` tries all."""


def picture(window: Page, html: str) -> bytes:
    """Return what a card looks like, as pixels."""
    window.page.evaluate(
        "html => { document.body.innerHTML = `<main class='page'><article"
        " class='slip'><div class='stub'></div>"
        "<div class='body' id='card'>${html}</div></article></main>`; }",
        html,
    )
    image: bytes = window.page.locator("#card").screenshot(animations="disabled")
    return image


@pytest.mark.parametrize("width", WIDTHS)
def test_values_that_differ_do_not_look_alike(
    width: int, people: People, browse: Browse
) -> None:
    window = browse(people.reviewer, viewport={"width": width, "height": 900})
    window.page.evaluate("document.fonts.ready")
    assert picture(window, rendered(1, 2)) == picture(window, rendered(1, 2))
    for case, (left, right) in ALIKE.items():
        for now in BEFORE:
            looks = [
                picture(window, rendered(now, {"k": value})) for value in (left, right)
            ]
            assert looks[0] != looks[1], (case, now)
        assert picture(window, rendered(left, left)) != picture(
            window, rendered(left, right)
        ), case


def test_the_pages_of_a_long_list_are_turned_in_place(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.long_list("long_list", 500), claims.graph_of()):
        run = claims.paused("CLM-9", people.starter, graph="long_list")
        reviewer = browse(people.reviewer)
        reviewer.open(f"/reviews/{run.id}/")
        page = reviewer.page
        page.check("#w1 input[value=approve]", force=True)
        assert "note 0" in page.inner_text("#w1-change")
        page.click("#w1-change a:text('Later')")
        page.wait_for_selector("#w1-change :text('Page 2 of')")
        assert "note 40" in page.inner_text("#w1-change")
        assert page.is_checked("#w1 input[value=approve]")
        assert page.url.endswith(f"/reviews/{run.id}/")
        assert reviewer.complaints == []


def test_the_pages_of_a_long_list_are_links_without_scripts(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.long_list("long_list", 500), claims.graph_of()):
        run = claims.paused("CLM-9", people.starter, graph="long_list")
        reviewer = browse(people.reviewer, java_script_enabled=False)
        reviewer.open(f"/reviews/{run.id}/")
        reviewer.page.click("#w1-change a:text('Later')")
        assert "note 40" in reviewer.page.inner_text("#w1-change")


def test_a_value_keeps_its_blanks_and_its_own_direction(
    people: People, browse: Browse
) -> None:
    window = browse(people.reviewer)
    picture(window, rendered(None, {"k": "אב \u202e גד", "l": "a  b"}))
    style = window.page.eval_on_selector_all(
        "bdi",
        "all => all.map(element => [getComputedStyle(element).unicodeBidi,"
        " getComputedStyle(element).whiteSpace])",
    )
    assert style
    assert {tuple(one) for one in style} <= {
        ("isolate", "pre-wrap"),
        ("isolate", "break-spaces"),
    }


def test_the_edit_form_of_a_large_value_opens_on_demand(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.long_list("long_list", 5000), claims.graph_of()):
        run = claims.paused("CLM-9", people.starter, graph="long_list")
        reviewer = browse(people.reviewer)
        reviewer.open(f"/reviews/{run.id}/")
        page: Any = reviewer.page
        page.check("#w1 input[value=edit]", force=True)
        assert page.locator("#w1 .editor textarea").count() == 0
        page.click("#w1 .editor a:text('Open its edit form')")
        page.wait_for_selector("#w1 .editor textarea")
        assert page.is_checked("#w1 input[value=edit]")
        assert reviewer.complaints == []


def test_a_state_of_a_megabyte_is_a_light_page_and_its_large_value_loads_and_downloads(
    people: People, browse: Browse
) -> None:
    text = random.Random(7).randbytes(500_000).hex()
    flow = graph("megabyte")

    @flow.node()
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": text}

    flow.edge(START, "write")
    flow.edge("write", END)
    with claims.registered(flow):
        run = runs.advance(runs.start(flow.name, {}, key="MB", by=people.starter).id)
        window = browse(people.starter)
        page = window.page
        with page.expect_response(lambda answer: "tab=state" in answer.url) as answer:
            window.open(f"/runs/{run.id}/?tab=state")
        # Random digits: nothing can be gained by compressing them.
        assert len(gzip.compress(answer.value.body())) <= 40 * 1024
        page.click("#state-scratch-letter summary")
        page.wait_for_selector("#state-scratch-letter pre:not([hidden])")
        shown = page.text_content("#state-scratch-letter pre")
        assert json.loads(shown or "") == text
        with page.expect_download() as download:
            page.click("#state-scratch-letter a:text('Download')")
        assert json.loads(download.value.path().read_text()) == text
