"""Stepping through the past of a run, of a long one too. Tests are named after the
promises.
"""

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.utils.html import strip_tags

from checkpoints import timeline
from checkpoints.core.state_paths import parsed_path
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.travel.patch import apply
from tests.browser.conftest import Page
from tests.support import claims, rows
from tests.support.cast import People
from tests.support.forging import tamper
from tests.support.long_runs import finished, long_graph
from tests.support.paid_claims import paid

Browse = Callable[..., Page]
LAST = 10_000
STEPS = int(os.environ.get("COUNTERSIGN_STEPS", "20"))
"""Checkpoints at which the change is laid over the parent's state; in the sweep 100."""


@pytest.fixture
def long(site: str, people: People) -> Run:
    """A run with 10,000 checkpoints behind its first."""
    run = claims.paused("CLM-LONG", people.starter)
    rows.many_checkpoints(run, LAST, lambda seq: {"count": seq}, ["read", "propose"])
    for seq in range(4200, 4230):
        rows.an_event(run, seq)
    Run.objects.filter(id=run.id).update(status="completed")
    return run


def test_stepping_changes_number_graph_diff_facts_events_and_url_together_at_10000_checkpoints(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/?at=4212")
    page = window.page

    def shown() -> dict[str, Any]:
        return {
            "number": page.input_value("input[name=at]"),
            "graph": page.inner_text("#stage h2"),
            "here": page.locator(".g .n.here text").all_inner_texts(),
            "diff": page.inner_text("[data-test=changed] tr:has-text('count') .a"),
            "facts": page.inner_text("section:has(#cp) dl code >> nth=0"),
            "events": page.inner_text("section:has(#ev) .xs"),
            "url": page.url.split("?")[1],
        }

    before = shown()
    calls = []
    page.on("request", lambda request: calls.append(request.url))
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("h2:text-is('Graph at checkpoint 4,213')")
    page.wait_for_url("**at=4213")
    after = shown()
    assert [url for url in calls if "/runs/" in url] == [
        f"{window.site}/runs/{long.id}/?at=4213"
    ]
    assert after["number"] == "4213"
    assert after["diff"] == "4213"
    assert after["url"] == "at=4213"
    assert after["facts"] == f"{long.key}:at-4213"
    assert {name for name in before if before[name] != after[name]} >= {
        "number",
        "graph",
        "diff",
        "facts",
        "events",
        "url",
    }
    assert window.complaints == []


def test_with_10000_checkpoints_the_dom_stays_small_and_a_screen_reader_hears_the_place(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    for query in ("?at=4211", "", "?at=0"):
        window.open(f"/runs/{long.id}/{query}")
        assert window.page.evaluate("document.querySelectorAll('*').length") <= 2500
    window.open(f"/runs/{long.id}/?at=4211")
    page = window.page
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(
        "#announce:has-text('Checkpoint 4,212 of 10,000')", state="attached"
    )
    assert page.get_attribute("#announce", "aria-live") == "polite"
    assert page.evaluate("document.querySelectorAll('*').length") <= 2500
    heard = page.get_attribute(".tape [aria-current]", "aria-label")
    assert str(heard).startswith("Checkpoint 4,212 of 10,000")


def parts_of(html: str) -> Iterator[tuple[str, str, str | None, str | None]]:
    """(partition, path, before, after) of each row of the tab of what changed."""
    partition = ""
    for row in (
        html.split('data-test="changed"')[1]
        .split("</table>")[0]
        .split("<tr class=")[1:]
    ):
        if row.startswith('"part"'):
            partition = strip_tags(
                row.split('colspan="4">')[1].split("<small>")[0]
            ).strip()
            continue
        path = strip_tags(
            row.split('class="sr">')[1].split("</span>", 1)[1].split("</td>")[0]
        ).strip()
        # Where nothing was before in any row, there is no column for it.
        cells = [
            row.partition(f'<td class="{name}">')[2].split("</td>")[0]
            for name in ("b", "a")
        ]
        before, after = (value_of(cell) for cell in cells)
        yield partition, path, before, after


def value_of(cell: str) -> str | None:
    """The JSON of the value in a cell; None where there is none."""
    text = plain(strip_tags(cell)).strip()
    if not cell or 'class="nil"' in cell:
        return None
    return json.dumps(text) if 'class="txt"' in cell else text


def plain(text: str) -> str:
    return text.replace("&quot;", '"').replace("&#x27;", "'").replace("&amp;", "&")


def applied(state: Any, path: str, after: str | None) -> Any:
    parts = parsed_path(f"scratch.{path}").parts
    if after is not None:
        state = with_objects(state, parts[:-1])
    keys = "/".join(str(key) for key in parts)
    operation: dict[str, Any] = {"op": "remove", "path": f"/{keys}"}
    if after is not None:
        operation = {"op": "add", "path": f"/{keys}", "value": json.loads(after)}
        if keys.rpartition("/")[2].isdigit() and is_there(state, keys.split("/")):
            operation["op"] = "replace"
    return apply(state, [operation])


def with_objects(state: Any, parts: Sequence[Any]) -> Any:
    """The state with an object at each step of the way, for a new object is shown path
    by path.
    """
    if not parts or isinstance(state, list):
        return state
    key, *rest = parts
    inner = state.get(key)
    return {**state, key: with_objects({} if inner is None else inner, rest)}


def is_there(state: Any, keys: list[str]) -> bool:
    for key in keys:
        if isinstance(state, list):
            if int(key) >= len(state):
                return False
            state = state[int(key)]
        elif key in state:
            state = state[key]
        else:
            return False
    return True


def test_the_diff_applied_to_the_parent_state_gives_the_state_at_100_random_checkpoints(
    people: People, browse: Browse
) -> None:
    run = finished(long_graph(max(15, STEPS // 2)))
    seqs = random.Random(run.head_seq).sample(
        range(1, run.head_seq + 1), min(STEPS, run.head_seq)
    )
    window = browse(people.steward)
    window.open("/runs/")
    for seq in seqs:
        fetch = "url => fetch(url, {headers: {'X-Fragment': '1'}}).then(answer => answer.text())"
        html = window.page.evaluate(fetch, f"/runs/{run.id}/?at={seq}")
        row = Checkpoint.objects.get(run=run, seq=seq)
        assert row.parent is not None
        state = timeline.state_at(row.parent)
        now = timeline.state_at(row.id)
        changes = list(parts_of(html))
        # From the end of lists, so that what is removed does not move the rest.
        for partition, path, _, after in [
            *(change for change in changes if change[3] is not None),
            *reversed([change for change in changes if change[3] is None]),
        ]:
            state[partition] = applied(state[partition], path, after)
        for partition in ("scratch", "artifacts"):
            assert state[partition] == now[partition], (seq, partition)


def test_stop_only_where_path_changes_visits_exactly_the_checkpoints_that_change_it(
    people: People, browse: Browse
) -> None:
    run = finished(long_graph(12))
    states = [
        timeline.state_at(timeline.get_checkpoint(f"{run.key}:at-{seq}").id)
        for seq in range(run.head_seq + 1)
    ]
    amounts = [state["scratch"]["case"].get("amount") for state in states]
    wanted = [seq for seq in range(1, len(amounts)) if amounts[seq] != amounts[seq - 1]]
    window = browse(people.steward)
    window.open(f"/runs/{run.id}/?at=0&path=scratch.case.amount")
    page = window.page
    visited = []
    while page.locator("[data-step=next-change]").count():
        page.keyboard.press("]")
        page.wait_for_selector(
            f"[data-test=watched] [aria-current]:text-is('{wanted[len(visited)]}')"
        )
        visited.append(int(page.input_value("input[name=at]")))
    assert visited == wanted
    back = []
    while page.locator("[data-step=prev-change]").count() and len(back) < len(wanted):
        here = page.input_value("input[name=at]")
        page.keyboard.press("[")
        page.wait_for_selector(f".transport input[name=at]:not([value='{here}'])")
        back.append(int(page.input_value("input[name=at]")))
    assert [seq for seq in back if seq] == wanted[-2::-1]
    assert window.complaints == []


def test_an_altered_checkpoint_shows_tampered_with_the_first_bad_one_and_no_resume(
    people: People, browse: Browse
) -> None:
    run = paid("altered", people)
    bad = timeline.get_checkpoint(f"{run.key}:at-2")
    tamper(bad, superstep=7)
    window = browse(people.starter)
    window.open(f"/runs/{run.id}/?at=2")
    page = window.page
    marked = page.locator(".cplist li:has([data-test=tampered])")
    assert [text.split()[0] for text in marked.all_inner_texts()] == ["2"]
    assert "tampered" in page.inner_text("section:has(#cp) header")
    refusal = page.inner_text("[data-test=refused]")
    assert "is not what was written" in refusal
    assert "checkpoints_" not in refusal, "no name of a table"
    for way in ("Fork from 2", "Replay from 2", "Rewind to 2", "Resume"):
        assert page.locator(f"text={way}").count() == 0
    page.click("[data-test=no-way-on] a")
    assert "cannot go on from this checkpoint here" in page.inner_text("h1")
    page.click("[data-test=ways] a >> nth=0")
    assert "Go on from checkpoint 1" in page.inner_text("h1")


def test_stepping_by_key_keeps_focus_on_the_checkpoint_shown_and_says_its_number(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/?at=4212")
    page = window.page
    for list_, key, seq in (
        (".tape", "ArrowRight", "4213"),
        (".cplist", "ArrowDown", "4212"),
    ):
        page.focus(f"{list_} [aria-current]")
        page.keyboard.press(key)
        page.wait_for_selector(f"input[name=at][value='{seq}']")
        focus = page.evaluate("document.activeElement.id")
        assert focus == page.get_attribute(f"{list_} [aria-current]", "id")
        assert focus.endswith(f"-{seq}")
        assert f"{int(seq):,} of 10,000" in page.inner_text("#announce")


def test_two_steps_in_a_row_end_on_the_second_whichever_answer_comes_first(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    page = window.page
    window.open(f"/runs/{paid('hasty', people).id}/?at=1")
    calls: list[Any] = []
    page.route("**tab=events", lambda route: calls.append(route))
    page.click(".subtabs a:has-text('Events')")
    page.click(".subtabs a:has-text('State')")
    page.wait_for_url("**tab=state")
    with page.expect_response("**tab=events") as late:
        calls[0].continue_()
    late.value.finished()
    page.click(".subtabs a:has-text('Node results')")
    page.wait_for_url("**tab=results")
    assert len(calls) == 1, "the step that was overtaken is not taken again"
    assert window.complaints == []


def test_shift_and_an_arrow_leap_10_checkpoints_and_the_page_keys_100(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/?at=4212")
    page = window.page
    page.focus(".tape [aria-current]")
    for key, seq in (
        ("Shift+ArrowRight", "4222"),
        ("Shift+ArrowLeft", "4212"),
        ("PageDown", "4312"),
        ("PageUp", "4212"),
        ("End", "10000"),
        ("Home", "0"),
        ("PageUp", "0"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(f"input[name=at][value='{seq}']")
    assert page.evaluate("document.activeElement.closest('.tape') !== null")


def test_letters_of_the_run_page_go_on_open_tabs_and_take_a_number(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/?at=4212")
    page = window.page
    page.keyboard.press("2")
    page.wait_for_selector("[data-test=state]")
    page.keyboard.press("o")
    assert page.evaluate("document.activeElement.name") == "at"
    page.focus("#main")
    page.keyboard.press("f")
    page.wait_for_url("**/go-on/**")


def test_tape_and_list_are_listboxes_with_one_stop_for_tab_each(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/?at=4212")
    page = window.page
    for list_ in (".tape", ".cplist"):
        options = page.locator(
            f"{list_}[role=listbox] [role=option]:not([aria-disabled])"
        )
        stops = page.locator(f"{list_} [role=option][tabindex='0']")
        assert options.count() > 30
        assert stops.count() == 1
        assert stops.get_attribute("aria-selected") == "true"
        assert options.first.get_attribute("aria-setsize") == "10001"


def test_a_long_run_page_ends_where_its_content_ends(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/?at=100")
    end = window.page.evaluate(
        "document.querySelector('#trio').getBoundingClientRect().bottom + scrollY"
    )
    height = window.page.evaluate("document.documentElement.scrollHeight")
    assert height - end <= 80


def test_the_newest_checkpoint_reads_now_and_an_older_one_viewing(
    long: Run, people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open(f"/runs/{long.id}/")
    assert window.page.inner_text(".tape [aria-current] .flag") == "Now"
    window.page.keyboard.press("ArrowLeft")
    window.page.wait_for_selector(".tape [aria-current] .flag:text-is('Viewing 9,999')")
