"""Going through the past of a run and going on from it, as operators live it. Tests are
named after the promises.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, RunEvent
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import run_actions
from tests.support.cast import People
from tests.support.paid_claims import PAID, claim, paid, rows_of
from tests.support.small_graphs import advanced, registered

AGE = re.compile(r"\d+:\d\d:\d\d")
Browse = Callable[..., Page]
Worker = Callable[[str], None]


def point(run: Run, seq: int) -> Checkpoint:
    return timeline.get_checkpoint(f"{run.key}:at-{seq}")


def go_on(window: Page, run: Run, seq: int, how: str = "fork") -> Any:
    window.open(f"/checkpoints/{point(run, seq).id}/go-on/?how={how}")
    return window.page


def words_of_plan(page: Any) -> dict[str, str]:
    """Node -> its word, of what the page says that will run."""
    words = page.locator("#what li[data-node]").evaluate_all(
        "all => all.map(node => [node.dataset.node, node.querySelector('.act').textContent])"
    )
    return {node: word for node, word in words if word != "kept"}


def type_json(page: Any, state: dict[str, Any]) -> None:
    if page.get_attribute("#view-json", "aria-pressed") != "true":
        page.click("#view-json")
    page.click(".json-editor .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(json.dumps(state))


def made_by(page: Any) -> Run:
    """The run on whose page the browser is after going on."""
    page.click("#go")
    page.wait_for_url("**/runs/**")
    return Run.objects.get(id=page.url.split("/runs/")[1].split("/")[0])


def test_with_scripts_blocked_an_operator_can_fork(
    people: People, browse: Browse
) -> None:
    run = paid("blocked", people)
    window = browse(people.starter, java_script_enabled=False)
    page = go_on(window, run, 1)
    page.check("#allow-pay")
    page.click("#foot button:has-text('Check')")
    assert words_of_plan(page)["pay"] == "happens again"
    new_run = made_by(page)
    assert new_run.status == Status.QUEUED
    assert new_run.origin_checkpoint == point(run, 1).id


def test_with_scripts_blocked_an_operator_can_fork_with_a_patch_from_the_form(
    people: People, browse: Browse
) -> None:
    run = paid("blocked_patch", people)
    page = go_on(browse(people.starter, java_script_enabled=False), run, 1)
    page.click("#ch-letter summary")
    page.fill("[name=s-letter]", "dear")
    page.click("#foot button:has-text('Check')")
    assert page.inner_text("#lines .new").split() == ["+", "after:", "dear"]
    assert page.locator(".chan >> nth=0").get_attribute("id") == "ch-letter"
    assert run_actions.state(made_by(page))["letter"] == "dear"


def test_with_scripts_blocked_an_operator_can_start_a_run(
    people: People, browse: Browse
) -> None:
    registered(claim("begun"))
    window = browse(people.starter, java_script_enabled=False)
    window.open("/graphs/begun/start/")
    page = window.page
    page.fill("[name='i.folder']", "north")
    page.fill("#key", "mine")
    page.click("button:has-text('Start run')")
    page.wait_for_url("**/runs/**")
    assert Run.objects.get(key="mine").status == Status.QUEUED


def test_opening_a_copied_url_in_another_browser_shows_the_same_checkpoint_and_way(
    people: People, browse: Browse
) -> None:
    run = paid("copied", people)
    page = go_on(browse(people.starter), run, 2, "rewind")
    other = browse(people.steward)
    other.page.goto(page.url)
    assert other.page.inner_text("h1") == page.inner_text("h1")
    assert other.page.is_checked("input[name=how][value=rewind]")
    assert other.page.inner_text("#what") == page.inner_text("#what")


def test_opening_a_copied_url_in_another_browser_shows_the_same_tab_comparison_and_filter(
    people: People, browse: Browse
) -> None:
    run = paid("copied_views", people)
    other_run = runs.advance(runs.start("copied_views", {}, key="waits").id)
    window = browse(people.starter)
    other = browse(people.steward)
    page = window.page

    def same(selector: str) -> str:
        """Return what stands there in both browsers once the other has opened the
        address of the first.
        """
        other.page.goto(page.url)
        # The age of a run that still goes on is that of the moment at which a page was
        # opened.
        text = AGE.sub("", page.locator(selector).first.inner_text())
        assert AGE.sub("", other.page.locator(selector).first.inner_text()) == text
        return text

    window.open(f"/runs/{run.id}/?at=2")
    page.click(".subtabs a:has-text('State')")
    page.wait_for_url("**tab=state**")
    page.wait_for_selector(".subtabs [aria-current]:has-text('State')")
    assert same(".subtabs [aria-current]").startswith("State")
    assert same(".tape [aria-current] .flag") == "Viewing 2"
    assert "first" in same("section[aria-label^='Detail of checkpoint']")

    window.open(f"/compare/?a={run.id}&b={other_run.id}")
    page.click("nav.subtabs a:has-text('Path')")
    page.wait_for_selector(".subtabs [aria-current]:has-text('Path')")
    page.click("[role=switch]")
    page.wait_for_selector("[role=switch][aria-checked=false]")
    assert same(".subtabs [aria-current]") == "Path"
    assert other.page.get_attribute("[role=switch]", "aria-checked") == "false"
    assert same(".sums tbody")

    window.open("/runs/")
    page.fill("main input[name=q]", "waits")
    page.click("main button:has-text('Apply')")
    page.wait_for_url("**q=waits**")
    assert "1 of 1 run" in same(".tfoot")
    assert other.page.input_value("main input[name=q]") == "waits"


def test_away_from_the_head_a_banner_shows_actions_carry_the_number_and_l_returns(
    people: People, browse: Browse
) -> None:
    run = advanced(claim("banner"))
    window = browse(people.starter)
    window.open(f"/runs/{run.id}/?at=1")
    page = window.page
    assert "You are looking at the past" in page.inner_text("#past")
    for action in ("Fork from 1", "Replay from 1", "Rewind to 1"):
        assert page.is_visible(f"text={action}")
    page.keyboard.press("l")
    page.wait_for_selector("text=Fork from 2")
    assert page.inner_text("#past") == ""
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    runs.advance(run.id)
    page.wait_for_selector("text=Fork from 4")
    assert window.complaints == []


def test_new_checkpoints_while_looking_at_the_past_do_not_move_the_page(
    people: People, browse: Browse
) -> None:
    run = advanced(claim("unmoved"))
    window = browse(people.starter)
    window.open(f"/runs/{run.id}/?at=1")
    assert "of 2" in window.page.inner_text(".transport")
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    runs.advance(run.id)
    window.page.wait_for_selector(".transport :text('of 4')")
    assert window.page.inner_text(".tape [aria-current] .flag") == "Viewing 1"
    assert window.page.is_visible("text=Fork from 1")


def test_after_a_rewind_both_lines_are_on_the_tape_and_the_superseded_one_is_readable(
    people: People, browse: Browse
) -> None:
    run = advanced(claim("lines"))
    runs.advance(
        runs.rewind(
            run.id, point(run, 1).id, by=people.starter, reason="wrong photos"
        ).id
    )
    window = browse(people.starter)
    window.open(f"/runs/{run.id}/")
    page = window.page
    page.click(".tape.thin a[aria-label*='Checkpoint 2']")
    page.wait_for_selector("#past :text('It is superseded')")
    page.click(".subtabs a:has-text('Pending writes')")
    page.wait_for_selector("#trio .tag:has-text('withdrawn')")
    page.keyboard.press("l")
    page.wait_for_selector("text=Fork from 4")
    assert window.complaints == []


def test_the_checkpoint_after_a_signing_is_named_settlement_and_shows_what_the_signatures_changed(
    people: People, browse: Browse
) -> None:
    run = paid("settlement", people)
    window = browse(people.starter)
    window.open(f"/runs/{run.id}/?at=3")
    page = window.page
    assert page.inner_text(".tape [aria-current] .nm") == "settlement"
    changed = page.locator(
        "[data-test=changed] tr.chg, [data-test=changed] tr.new"
    ).all_inner_texts()
    scratch = [" ".join(line.split()) for line in changed if "total" in line]
    assert len(scratch) == 1
    assert scratch[0].startswith("~ changed: total 0 10") or "total 0 10" in scratch[0]
    assert not [line for line in changed if "notes" in line or "letter" in line]


@pytest.mark.parametrize("how", ["fork", "rewind"])
def test_the_plan_shown_is_the_plan_run(
    how: str, people: People, browse: Browse
) -> None:
    run = paid(f"plan_{how}", people)
    page = go_on(browse(run_actions.reviewer(people.starter)), run, 1, how)
    words = words_of_plan(page)
    assert words == {"ask": "asks people", "pay": "stops before", "refuse": "runs"}
    page.fill("#reason", "again")
    new_run = runs.advance(made_by(page).id)
    began = new_run.event_seq - 1
    assert new_run.status == Status.PAUSED
    assert new_run.at_node == "ask"
    run_actions.sign_open(
        new_run, people.starter, "approve"
    ) if how == "fork" else _approve(new_run, people)
    advanced_run = runs.advance(new_run.id)
    assert advanced_run.status == Status.PAUSED
    assert advanced_run.at_node == "pay"
    assert len(PAID) == 1
    named = {
        e.node
        for e in RunEvent.objects.filter(run=advanced_run, seq__gt=began)
        if e.node
    }
    assert named <= {*words}


def _approve(run: Run, people: People) -> None:
    row = next(row for row in run_actions.pending(run) if row.line == run.line)
    reviews.sign(
        run.id,
        [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}],
        by=people.starter,
    )


def test_a_replay_does_what_its_plan_shows_and_nothing_outside(
    people: People, browse: Browse
) -> None:
    run = paid("plan_replay", people)
    page = go_on(browse(people.starter), run, 0, "replay")
    words = words_of_plan(page)
    assert words == {
        "first": "runs",
        "ask": "reused",
        "pay": "reused",
        "refuse": "runs",
    }
    new_run = runs.advance(made_by(page).id)
    assert new_run.status == Status.COMPLETED
    assert len(PAID) == 1
    assert {e.node for e in RunEvent.objects.filter(run=new_run) if e.node} <= {*words}
    reused = {task.split(":")[0] for task in runs.replay_report(new_run.id)["reused"]}
    assert reused == {node for node, word in words.items() if word == "reused"}


def test_nothing_that_already_happened_happens_again_without_its_tick(
    people: People, browse: Browse
) -> None:
    run = paid("ticks", people)
    window = browse(people.starter)
    page = go_on(window, run, 3)
    assert page.locator("#again input:checked").count() == 0
    new_run = runs.advance(made_by(page).id)
    assert new_run.status == Status.PAUSED
    assert len(PAID) == 1
    page.reload()
    assert "Stopped before pay" in page.inner_text("#problem")
    page.check("input[name=allow-pay]")
    page.click("text=Go on with what is ticked")
    page.wait_for_selector("#run-head :text('Queued')")
    assert runs.advance(new_run.id).status == Status.COMPLETED
    assert len(PAID) == 2


def test_the_plan_follows_what_is_ticked_and_typed(
    people: People, browse: Browse
) -> None:
    run = paid("follows", people)
    window = browse(people.starter)
    page = go_on(window, run, 3)
    assert words_of_plan(page)["pay"] == "stops before"
    page.check("#allow-pay")
    page.wait_for_selector("#what .act:has-text('happens again')")
    page.click("#ch-total summary")
    page.fill("[name=s-total]", "9999")
    page.wait_for_selector("#problems :text('needs the same signatures')")
    assert page.inner_text("#go") == "Fork and ask for signatures"
    assert page.input_value("[name=s-total]") == "9999"
    assert page.is_checked("#allow-pay")
    assert window.complaints == []


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no_scripts"])
def test_changing_the_view_carries_over_what_was_typed(
    scripts: bool, people: People, browse: Browse
) -> None:
    run = paid("carried", people)
    page = go_on(browse(people.starter, java_script_enabled=scripts), run, 1)
    page.click("#ch-letter summary")
    page.fill("[name=s-letter]", "by form")
    page.click("#view-json")
    page.wait_for_selector("#view-json[aria-pressed=true]")
    assert json.loads(page.input_value("#json"))["scratch"]["letter"] == "by form"
    page.click("#view-ops")
    page.wait_for_selector("#view-ops[aria-pressed=true]")
    operation = {"op": "replace", "path": "/scratch/letter", "value": "by form"}
    assert json.loads(page.input_value("#ops")) == [operation]
    page.fill(
        "#ops",
        json.dumps(
            [
                operation,
                {"op": "add", "path": "/scratch/notes/-", "value": "by operation"},
            ]
        ),
    )
    page.click("#view-form")
    page.wait_for_selector("#view-form[aria-pressed=true]")
    assert page.input_value("[name=s-letter]") == "by form"
    assert page.input_value("[name=s-notes]") == "first\nby operation"
    new_run = made_by(page)
    state = run_actions.state(new_run)
    assert state["letter"] == "by form"
    assert state["notes"] == ["first", "by operation"]


def test_what_cannot_be_read_keeps_its_view(people: People, browse: Browse) -> None:
    page = go_on(browse(people.starter), paid("unread", people), 1)
    page.click("#ch-total summary")
    page.fill("[name=s-total]", "many")
    page.click("#view-json")
    page.wait_for_selector("[data-test=stays]")
    assert page.get_attribute("#view-form", "aria-pressed") == "true"
    assert page.input_value("[name=s-total]") == "many"


def test_what_was_typed_comes_back_after_a_look_at_a_replay(
    people: People, browse: Browse
) -> None:
    page = go_on(browse(people.starter), paid("looked", people), 1)
    page.click("#ch-letter summary")
    page.fill("[name=s-letter]", "dear")
    page.click("label:has(input[name=how][value=replay])")
    page.wait_for_selector("text=A replay changes nothing")
    page.click("label:has(input[name=how][value=fork])")
    page.wait_for_selector("#ch-letter.changed")
    assert page.input_value("[name=s-letter]") == "dear"


def test_the_way_that_is_chosen_is_in_the_address_on_the_tape_and_in_the_numbers_of_the_steps(
    people: People, browse: Browse
) -> None:
    page = go_on(browse(people.starter), paid("chosen", people), 1, "rewind")
    for how, name, steps in (
        ("replay", "Replay", ["1", "2"]),
        ("fork", "Fork", ["1", "2", "3"]),
    ):
        page.click(f"label:has(input[name=how][value={how}])")
        page.wait_for_selector(f".tape .flag:has-text('{name} here')")
        assert f"?how={how}&" in page.url
        assert page.locator(".stepno").all_inner_texts() == steps


def test_each_channel_is_one_line_until_it_is_opened(
    people: People, browse: Browse
) -> None:
    page = go_on(browse(people.starter), paid("lines_of_form", people), 1)
    assert page.locator(".chan").count() == 3
    assert not page.is_visible("[name=s-notes]")
    assert page.inner_text("#ch-notes .now") == "1 item: first"
    page.click("#ch-notes summary")
    assert page.is_visible("[name=s-notes]")


def test_a_patch_to_input_or_diagnostics_is_impossible_in_the_form_and_refused_with_a_path_in_json(
    people: People, browse: Browse
) -> None:
    run = paid("locked", people)
    window = browse(people.starter)
    page = go_on(window, run, 1)
    assert (
        page.locator(
            "[name^='s-input'], [name^='s-diagnostics'], [name='s-folder']"
        ).count()
        == 0
    )
    assert "input The input is frozen" in " ".join(page.inner_text(".locks").split())
    for part in ("input", "diagnostics"):
        type_json(page, {part: {"folder": "x"}})
        page.wait_for_selector(f"#problems b:text-is('{part}')")
        assert page.get_attribute("#go", "aria-disabled") == "true"
    page.click("#go", force=True)
    assert Run.objects.count() == 1


def test_the_original_runs_rows_are_the_same_bytes_before_and_after_a_fork(
    people: People, browse: Browse
) -> None:
    run = paid("bytes", people)
    before = rows_of(run)
    page = go_on(browse(people.starter), run, 1)
    type_json(page, {"scratch": {"letter": "dear", "notes": ["first"], "total": 0}})
    new_run = runs.advance(made_by(page).id)
    assert run_actions.state(new_run)["letter"] == "dear"
    assert rows_of(run) == before


def test_rewinding_with_open_reviews_needs_the_dialog_names_them_and_they_read_withdrawn_afterwards(
    people: People, browse: Browse
) -> None:
    run = advanced(claim("dialog"))
    reviewer = browse(run_actions.reviewer(people.reviewer))
    reviewer.open(f"/reviews/{run.id}/")
    page = go_on(browse(people.starter), run, 1, "rewind")
    page.fill("#reason", "wrong photos")
    page.wait_for_selector("#go:has-text('Rewind to 1 and withdraw 1 review')")
    page.click("#go")
    page.wait_for_selector("[data-test=dialog]")
    assert "1 open review is withdrawn" in page.inner_text("[data-test=dialog]")
    assert "ask" in page.inner_text("[data-test=dialog] strong")
    assert page.evaluate("document.activeElement.textContent") == "Keep everything"
    assert Run.objects.get(id=run.id).line == 1
    page.click("button:has-text('Rewind to 1')")
    page.wait_for_url("**/runs/**")
    assert Run.objects.get(id=run.id).line == 2
    reviewer.page.wait_for_selector("text=This was withdrawn")


def test_a_patch_to_a_signed_channel_says_so_first_and_the_new_run_stops_at_that_review(
    people: People, browse: Browse
) -> None:
    run = paid("signed_patch", people)
    page = go_on(browse(people.starter), run, 3)
    type_json(page, {"scratch": {"letter": "", "notes": ["first"], "total": 9999}})
    page.wait_for_selector("#problems :text('needs the same signatures')")
    assert words_of_plan(page)["the patch"] == "asks people"
    new_run = runs.advance(made_by(page).id)
    assert new_run.status == Status.PAUSED
    assert run_actions.state(new_run)["total"] == 10
    assert ApprovalRequest.objects.get(run=new_run).node == "$patch"
    reviewer = browse(people.reviewer)
    reviewer.open(f"/reviews/{new_run.id}/")
    assert reviewer.page.inner_text("h1") == "A patch sets total"
    assert reviewer.page.inner_text("#w1-change ins") == "9999"
    assert reviewer.page.inner_text("#w1-change del") == "10"


def test_reloading_after_going_on_and_going_back_and_again_makes_one_fork(
    people: People, browse: Browse
) -> None:
    run = paid("once", people)
    page = go_on(browse(people.starter), run, 1)
    new_run = made_by(page)
    page.reload()
    page.go_back()
    assert made_by(page).id == new_run.id
    assert Run.objects.exclude(id=run.id).count() == 1


def unstored(route: Any) -> None:
    """Answer as to a browser that neither keeps a page nor what stood in its form."""
    answer = route.fetch(max_redirects=0)
    text = answer.text().replace(
        '<form id="go-on"', '<form id="go-on" autocomplete="off"'
    )
    route.fulfill(
        response=answer,
        body=text,
        headers={**answer.headers, "cache-control": "no-store"},
    )


@pytest.mark.parametrize("scripts", [True, False])
def test_going_back_to_a_page_that_was_not_stored_and_pressing_again_makes_one_fork(
    scripts: bool, people: People, browse: Browse
) -> None:
    run = paid("unstored", people)
    window = browse(people.starter, java_script_enabled=scripts)
    window.page.route("**/go-on/**", unstored)
    page = go_on(window, run, 1)
    new_run = made_by(page)
    page.go_back()
    assert made_by(page).id == new_run.id
    assert "This run already exists" in page.inner_text("main")
    assert made_by(go_on(window, run, 1)).id != new_run.id


def test_an_invalid_patch_names_path_rule_and_value_and_the_suggested_fix_makes_it_valid(
    people: People, browse: Browse
) -> None:
    run = paid("mended", people)
    page = go_on(browse(people.starter), run, 1)
    type_json(page, {"scratch": {"letter": 7, "notes": ["first"], "total": 0}})
    page.wait_for_selector("#problems :text('scratch.letter')")
    words = " ".join(page.inner_text("#problems .probs li >> nth=0").split())
    assert re.fullmatch(r'scratch\.letter .+\. You wrote 7\. Use "7"', words), words
    assert page.inner_text("#go") == "Fix 1 problem to fork"
    page.click("""button:has-text('Use "7"')""")
    page.wait_for_selector("#go:has-text('Fork and run')")
    assert json.loads(page.input_value("#json"))["scratch"] == {
        "letter": "7",
        "notes": ["first"],
        "total": 0,
    }
    new_run = made_by(page)
    assert run_actions.state(new_run)["letter"] == "7"


def test_skipped_branches_are_dotted_pending_edges_dashed_and_the_text_says_both(
    people: People, browse: Browse
) -> None:
    run = paid("drawn", people)
    window = browse(people.starter)
    window.open(f"/runs/{run.id}/?at=3")
    page = window.page

    def style(selector: str, name: str) -> str:
        return str(
            page.eval_on_selector(
                selector, f"element => getComputedStyle(element)['{name}']"
            )
        )

    assert style(".g .n.off rect", "stroke-dasharray") != "none"
    assert "line-through" in style(".g .n.off text", "text-decoration-line")
    assert style(".g .edge.next", "stroke-dasharray") != "none"
    graph_label = str(page.get_attribute("svg.g", "aria-label"))
    assert "Next: pay." in graph_label
    assert "Skipped: refuse." in graph_label
