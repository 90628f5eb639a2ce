"""How pages look where a rule can be measured: what stands on one line, what does not
touch, what is not cut off.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpoints import timeline
from orchestrator import runs
from tests.browser.axe import sideways
from tests.browser.conftest import Page
from tests.browser.scenes import forked_run, lost_run
from tests.support import claims, long_runs
from tests.support.cast import People

Browse = Callable[..., Page]
BROKEN_LINES = """() => [...document.querySelectorAll('td time, td code.nowrap')].filter(
  element => new Set([...element.getClientRects()].map(box => box.top)).size > 1
).map(element => element.textContent)"""
TOUCHING = """() => [...document.querySelectorAll('main .panel')].filter(panel => {
  const next = panel.nextElementSibling;
  if (!next || !next.checkVisibility()) return false;
  const [above, below] = [panel.getBoundingClientRect(), next.getBoundingClientRect()];
  return below.left < above.right && below.top - above.bottom < 8;
}).map(panel => panel.innerText.slice(0, 40))"""


@pytest.fixture
def steward(people: People, browse: Browse) -> Page:
    for role in ("reviewer", "auditor"):
        claims.member(people.starter, role)
    return browse(claims.member(people.starter, "steward"))


@pytest.fixture
def long_run(people: People) -> Iterator[Any]:
    """A run whose tape is as long as the list of runs shows one, and longer than its
    own page.
    """
    graph = long_runs.long_graph()
    with claims.registered(graph, claims.graph_of()):
        yield long_runs.finished(graph)


def test_times_and_seals_in_tables_stand_on_one_line(
    steward: Page, people: People
) -> None:
    run = claims.paused("CLM-1", people.starter)
    runs.cancel(
        claims.paused("CLM-2", people.starter).id,
        by=people.starter,
        reason="a long reason " * 30,
    )
    broken = {}
    for path in ("/audit/", f"/runs/{run.id}/?tab=writes", "/workers/"):
        steward.open(path)
        broken[path] = steward.page.evaluate(BROKEN_LINES)
    assert broken == {path: [] for path in broken}


def test_no_card_touches_what_follows_it(steward: Page, people: People) -> None:
    run = claims.paused("CLM-1", people.starter)
    touching = {}
    for path in (
        "/graphs/page_claim/",
        f"/compare/?a={run.id}&b={forked_run(run, people).id}",
        f"/runs/{run.id}/",
    ):
        steward.open(path)
        touching[path] = steward.page.evaluate(TOUCHING)
    assert touching == {path: [] for path in touching}


def test_the_numbers_of_a_long_tape_stand_upright(steward: Page, long_run: Any) -> None:
    steward.open(f"/runs/{long_run.id}/")
    number = steward.page.locator(".tape .col:not(.kept) .no").first
    assert number.evaluate("element => getComputedStyle(element).fontStyle") == "normal"


def test_the_list_of_runs_does_not_scroll_sideways_with_the_longest_tape(
    steward: Page, people: People, long_run: Any
) -> None:
    lost_run(people)
    claims.BROKEN.add("read")
    claims.paused("CLM-2", people.starter)
    steward.open("/runs/")
    wide = []
    for width in (761, 768, 820, 900, 901, 1000):
        steward.page.set_viewport_size({"width": width, "height": 900})
        wide += [width for _ in sideways(steward.page, width)]
    assert wide == []


def test_a_fork_is_marked_in_the_list_of_runs_however_long_its_key(
    steward: Page, people: People
) -> None:
    origin = claims.paused("CLM-1", people.starter)
    older = timeline.get_checkpoint(f"{origin.key}:at-1").id
    fork = runs.fork(
        older,
        key="CLM-1-with-a-key-that-is-much-longer-than-the-column",
        by=people.starter,
    )
    steward.open("/runs/")
    mark = steward.page.locator(f"#run-{fork.id} .sub .tag").bounding_box()
    line = steward.page.locator(f"#run-{fork.id} .sub:has(.tag)").bounding_box()
    assert mark["x"] + mark["width"] <= line["x"] + line["width"] + 1


def test_the_tabs_of_a_checkpoint_stay_within_their_card(
    steward: Page, people: People
) -> None:
    run = claims.paused("CLM-1", people.starter)
    steward.open(f"/runs/{run.id}/")
    over = {}
    for width in (768, 985, 1180, 1440):
        steward.page.set_viewport_size({"width": width, "height": 900})
        tabs = steward.page.locator("#trio .subtabs")
        over[width] = tabs.evaluate(
            "tabs => tabs.getBoundingClientRect().right -"
            " tabs.closest('.panel').getBoundingClientRect().right > 0"
        )
    assert over == dict.fromkeys(over, False)


def test_what_is_said_of_an_unknown_outcome_is_aligned_with_its_question(
    steward: Page, people: People
) -> None:
    steward.open(f"/runs/{lost_run(people).id}/settle/")
    said = steward.page.locator(".settle-kv dt").first.bounding_box()
    question = steward.page.locator(".settles .panel h2").first.bounding_box()
    assert abs(said["x"] - question["x"]) <= 1
