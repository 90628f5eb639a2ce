"""Two runs beside each other in a browser: keys, letters that are told apart in grey,
and the way without scripts.
"""

from collections.abc import Callable

from checkpoints.models import Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import claims, forks
from tests.support.cast import People

Browse = Callable[..., Page]


def pair(people: People) -> tuple[Run, Run]:
    a = claims.paused("CLM-1", people.starter)
    b = runs.advance(
        forks.forked(
            a, 1, {"scratch": {"notes": ["patched"], "count": 7}}, by=people.starter
        ).id
    )
    return a, b


def test_keys_lead_from_one_difference_to_the_next_and_swap_the_runs(
    people: People, browse: Browse
) -> None:
    a, b = pair(people)
    window = browse(people.starter)
    window.open(f"/compare/?a={a.id}&b={b.id}")
    page = window.page
    focused = "document.activeElement.querySelector('.p')?.innerText"
    seen = []
    for key in ("n", "n", "n", "p"):
        page.keyboard.press(key)
        seen.append(page.evaluate(focused))
    assert [text.split()[-1] for text in seen] == [
        "count",
        "notes[0]",
        "notes[0]",
        "count",
    ]
    page.keyboard.press("s")
    page.wait_for_url(f"**/compare/?a={b.id}&b={a.id}")
    assert window.complaints == []


def test_a_and_b_can_be_told_apart_without_colour(
    people: People, browse: Browse
) -> None:
    a, b = pair(people)
    window = browse(people.starter)
    window.open(f"/compare/?a={a.id}&b={b.id}")
    style = "(name) => getComputedStyle(document.querySelector(name)).backgroundColor"
    assert window.page.evaluate(style, ".sums .ab.a") != window.page.evaluate(
        style, ".sums .ab.b"
    )
    assert window.page.text_content(".sums .ab.a").strip() == "A"
    assert window.page.text_content(".sums .ab.b").strip() == "B"


def test_without_scripts_two_runs_are_chosen_and_compared_at_a_checkpoint(
    people: People, browse: Browse
) -> None:
    a, b = pair(people)
    window = browse(people.starter, java_script_enabled=False)
    window.open(f"/runs/{a.id}/")
    page = window.page
    page.click("#run-head a:has-text('Compare')")
    page.fill("input[name=b]", b.key)
    page.click("button:has-text('Compare')")
    assert page.text_content("#split").strip() == "They split after checkpoint 1"
    page.click(".lane a.col >> nth=0")
    assert "State at 2 of A and 1 of B" in page.inner_text("#state")
    assert page.is_hidden("[data-difference]")


def test_the_watched_path_is_followed_by_keys(people: People, browse: Browse) -> None:
    a, _ = pair(people)
    window = browse(people.starter)
    window.open(f"/runs/{a.id}/?path=scratch.notes")
    window.page.keyboard.press("[")
    window.page.wait_for_url("**at=1&path=scratch.notes")
    window.page.keyboard.press("[")
    window.page.wait_for_url("**at=0&path=scratch.notes")
    window.page.keyboard.press("]")
    window.page.wait_for_url("**at=1&path=scratch.notes")


def test_comparing_a_run_with_its_fork_shows_the_split_and_a_reason_for_each_difference(
    people: People, browse: Browse
) -> None:
    a, b = pair(people)
    window = browse(people.starter)
    window.open(f"/compare/?a={a.id}&b={b.id}")
    page = window.page
    assert page.inner_text("#split") == "They split after checkpoint 1"
    differences = page.locator("[data-test=difference]").all()
    assert len(differences) == 2
    assert [one.locator(".whyd").inner_text() for one in differences] == [
        "patched in B",
        "patched in B",
    ]
    page.click("nav a:has-text('Path')")
    assert page.inner_text(".subtabs [aria-current]") == "Path"
    assert "0 Fork" in page.inner_text("[data-test=difference]")
    page.click("[role=switch]")
    assert page.get_attribute("[role=switch]", "aria-checked") == "false"
    with page.expect_download() as download:
        page.click("a:has-text('Export as JSON')")
    assert download.value.suggested_filename == "compare-a-b.json"
    page.fill("input[name=c]", a.key)
    page.click("button:has-text('Add a third')")
    page.wait_for_url("**&c=**")
    assert window.complaints == []


def test_no_flag_of_a_lane_is_cut_off(people: People, browse: Browse) -> None:
    a, b = pair(people)
    window = browse(people.starter)
    window.open(f"/compare/?a={a.id}&b={b.id}")
    flags = window.page.locator(".lane .flag")
    assert flags.count() == 2
    for flag in flags.all():
        above = flag.evaluate(
            "f => f.closest('.tape').getBoundingClientRect().top - f.getBoundingClientRect().top"
        )
        assert above <= 0
