"""Stewards clean up and auditors read, as people do it. Tests are named after the
promises of the pages.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse

from checkpoints import retention, verification
from checkpoints.models import AuditLine, Checkpoint, Job, Run
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.browser.axe import sideways, violations
from tests.browser.conftest import Page
from tests.support import claims, forks
from tests.support.cast import People
from tests.support.histories import policy, pruned
from tests.support.large_states import large
from tests.support.small_graphs import started
from tests.support.versioned_graphs import Texts, deployed, paying

Browse = Callable[..., Page]
GRAPH = "page_claim"
RING = """() => [document.activeElement, document.activeElement.closest('.field')].some(element => {
    const style = element && getComputedStyle(element);
    return style && (style.outlineStyle !== 'none' || style.boxShadow !== 'none');
})"""


@pytest.fixture
def stella(people: People, browse: Browse) -> Page:
    """The steward's window."""
    people.steward.is_staff = True
    people.steward.save()
    return browse(people.steward)


def histories(people: People) -> Run:
    """A run that waits, was forked from and is pinned; its fork that waits; and one
    that is done.
    """
    waits = claims.paused("CLM-1", people.starter)
    runs.advance(forks.forked(waits, 1, by=people.starter).id)
    done = claims.paused("CLM-2", people.starter)
    claims.decide_all(done, by=claims.member(people.reviewer, "reviewer"))
    runs.advance(done.id)
    retention.pin(Checkpoint.objects.get(run=waits, seq=0).id, by=None)
    return waits


def number(page: Any, name: str) -> int:
    return int(
        page.locator(f"[data-test={name}]").inner_text().split(" ")[0].replace(",", "")
    )


def test_the_dry_runs_numbers_are_what_is_removed_and_closing_the_browser_stops_nothing(
    people: People, stella: Page, browse: Browse
) -> None:
    histories(people)
    page = stella.page
    stella.open(reverse("admin:clean_up_dry_run", args=[policy(GRAPH, keep_last=0).pk]))
    going = number(page, "count")
    there = Checkpoint.objects.count()
    kept = page.locator("[data-why]").evaluate_all(
        "all => all.map(element => element.dataset.why)"
    )
    assert {"waits", "head", "pinned", "forked_from"} <= {*kept}
    counts = page.locator("[data-why] td:nth-child(2)").all_inner_texts()
    assert sum(map(int, counts)) == there - going
    page.click("[data-test=go]")
    page.click("[data-test=remove]")
    assert not Job.objects.filter(kind="prune_runs").exists(), (
        "an empty field removes nothing"
    )
    page.fill("#id_typed", str(going))
    page.click("[data-test=remove]")
    page.wait_for_url("**/jobs/**")
    address = page.url.removeprefix(stella.site)
    job = Job.objects.get(kind="prune_runs")
    page.context.close()
    assert kinds.advance(job.id).status == "done"
    assert Checkpoint.objects.count() == there - going
    again = browse(people.steward)
    again.open(address)
    assert again.page.locator("[data-test=rows]").inner_text() == f"{going} of {going}"
    again.page.click("#content-main a:has-text('The audit log')")
    assert (
        f"removed {going} checkpoint"
        in again.page.locator("[data-test=line]").first.inner_text()
    )


def test_the_typed_number_must_match_and_where_the_count_moved_the_dry_run_is_offered_again(
    people: People, stella: Page
) -> None:
    histories(people)
    page = stella.page
    rule = policy(GRAPH, keep_last=1)
    stella.open(reverse("admin:clean_up_confirm", args=[rule.pk]))
    going = int(page.input_value("input[name=seen]"))
    page.focus("#id_typed")
    page.keyboard.type(str(going + 1))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Keep everything", (
        "the harmless one comes first"
    )
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.test") == "remove"
    page.keyboard.press("Enter")
    assert "This is not the number" in page.locator(".errorlist").inner_text()
    assert page.input_value("#id_typed") == str(going + 1)
    retention.hold(Run.objects.get(key="CLM-2").id, "a court asked", by=None)
    page.fill("#id_typed", str(going))
    page.click("[data-test=remove]")
    page.wait_for_url("**/dry-run/")
    assert "Nothing was removed." in page.locator(".messagelist").inner_text()
    assert page.locator("[data-why=held]").count() == 1
    assert not Job.objects.filter(kind="prune_runs").exists()


def test_the_page_of_a_removal_follows_it_and_keeps_the_focus(
    people: People, stella: Page
) -> None:
    histories(people)
    job = retention.prune(policy(GRAPH, keep_last=1), by=people.steward)
    stella.open(reverse("admin:clean_up_job", args=[job.id]))
    stella.page.focus("input[value=Pause]")
    Job.objects.filter(id=job.id).update(progress={"done": 1, "total": 3})
    stella.page.locator("[data-test=rows]", has_text="1 of 3").wait_for()
    assert stella.page.evaluate("document.activeElement.value") == "Pause"
    kinds.advance(job.id)
    stella.page.wait_for_selector("text=Done at")
    assert stella.complaints == []


def test_checkpoints_removed_by_retention_show_the_gap_and_the_nearest_kept_one(
    people: People, browse: Browse
) -> None:
    run = runs.advance(started(large("long", "abcdef", snapshot=1000)).id)
    pruned(policy("long", keep_last=2))
    window = browse(people.auditor)
    window.open(f"/runs/{run.id}/?at=0")
    page = window.page
    assert (
        "Checkpoints 0 to 4 were cleaned up."
        in page.locator("[data-test=cleaned-up]").inner_text()
    )
    assert "Checkpoint 5 of 6" in page.locator(".pastbar").inner_text()
    assert page.locator("[data-test=parent-gone]").is_visible()
    page.keyboard.press("Home")
    page.click("[data-test=cleaned-up] a")
    page.wait_for_url("**?at=5**")


def test_after_clean_up_every_decision_is_still_in_the_audit_log_and_the_chain_verifies(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter)
    claims.decide_all(run, by=claims.member(people.reviewer, "reviewer"))
    pruned(policy(GRAPH, keep_last=0))
    window = browse(people.auditor)
    window.open("/audit/?kind=signed")
    window.page.click("[data-test=line] td:nth-child(3) a")
    decisions = window.page.locator("[data-test=decision]")
    assert decisions.count() == 3
    text = decisions.nth(0).inner_text()
    # There was no value before, so the value that was approved is new.
    for said in (
        "Approved",
        "because",
        "12.50",
        "New",
        people.reviewer.username,
        "seal",
    ):
        assert said in text, (said, text)
    assert verification.verify_run(run.id) == []


def test_an_incompatible_run_lists_changes_by_weight_and_offers_only_ways_that_exist(
    people: People, browse: Browse
) -> None:
    run = started(paying("1"))
    Run.objects.filter(id=run.id).update(started_by=None)
    deployed(paying("2", Texts))
    assert runs.advance(run.id).status == "incompatible"
    window = browse(people.steward)
    window.open(f"/runs/{run.id}/")
    panel = window.page.locator(".problem")
    line = panel.locator("[data-test=breaking] li")
    assert "total" in line.inner_text()
    assert line.bounding_box()["height"] < 40, "on one line"
    assert panel.locator("[data-test=harmless]").is_hidden()
    panel.locator("summary", has_text="Harmless").click()
    assert panel.locator("[data-test=harmless] li").count() >= 1
    assert panel.locator("button", has_text="Resume").count() == 0


def test_values_are_erased_by_keyboard_and_what_keeps_them_comes_first(
    people: People, stella: Page
) -> None:
    histories(people)
    run = Run.objects.get(key="CLM-2")
    page = stella.page
    stella.open(f"/runs/{run.id}/erase/")
    page.focus("#paths")
    assert tabbed(page) == "reason"
    page.keyboard.type("a person asked")
    assert tabbed(page) == "confirm"
    page.keyboard.type("CLM-3")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    assert "Type CLM-2 to confirm" in page.locator("[role=alert]").inner_text()
    assert page.input_value("#reason") == "a person asked"
    page.focus("#reason")
    assert tabbed(page) == "confirm"
    page.keyboard.type("CLM-2")
    assert [tabbed(page), tabbed(page)] == ["Keep everything", "Erase for ever"]
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{run.id}/")
    assert (
        "Values of this run are being erased"
        in page.locator("[data-test=erased]").inner_text()
    )
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == "done"
    page.reload()
    assert (
        f"by {people.steward.get_full_name()}"
        in page.locator("[data-test=erased]").inner_text()
    )


def test_a_hold_is_released_by_keyboard_and_with_a_reason(
    people: People, stella: Page
) -> None:
    histories(people)
    hold = retention.hold(
        Run.objects.get(key="CLM-2").id, "a court asked", by=people.steward
    )
    page = stella.page
    stella.open(reverse("admin:checkpoints_legalhold_changelist"))
    page.focus("input[name=_selected_action]")
    page.keyboard.press("Space")
    page.select_option("select[name=action]", "release")
    page.focus("button[name=index]")
    page.keyboard.press("Enter")
    page.focus("#id_typed")
    page.keyboard.type("1")
    assert tabbed(page) == "reason"
    page.keyboard.press("Tab")
    assert tabbed(page, stay=True) == "Keep it"
    assert tabbed(page) == "Release 1 legal hold"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.name") == "reason", (
        "it is needed, and the keyboard is there"
    )
    page.keyboard.type("the court is done")
    assert [tabbed(page), tabbed(page)] == ["Keep it", "Release 1 legal hold"]
    page.keyboard.press("Enter")
    page.wait_for_selector(".messagelist")
    hold.refresh_from_db()
    assert hold.released_at is not None


def tabbed(page: Any, *, stay: bool = False) -> str:
    """The name of the field or the words of the control that the next Tab reaches;
    whoever looks sees where it is.
    """
    if not stay:
        page.keyboard.press("Tab")
    assert page.evaluate(RING), "nothing shows where the keyboard is"
    return str(
        page.evaluate(
            "document.activeElement.name ||"
            " document.activeElement.textContent.trim().replace(/\\s+/g, ' ')"
        )
    )


def test_a_thing_one_may_not_see_answers_404_and_a_control_one_may_not_use_is_a_sentence(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-1", people.starter)
    window = browse(people.nobody)
    ways = [
        f"/runs/{run.id}/",
        f"/runs/{run.id}/?tab=state",
        f"/runs/{run.id}/erase/",
        f"/reviews/{run.id}/",
    ]
    ways += [
        f"/api/v1/runs/{run.id}/",
        f"/api/v1/runs/{run.id}/stream/",
        f"/runs/{run.id}/export/",
        "/audit/1/",
    ]
    statuses = window.page.evaluate(
        "ways => Promise.all(ways.map(way => fetch(way).then(answer => answer.status)))",
        ways,
    )
    assert dict(zip(ways, statuses, strict=True)) == dict.fromkeys(ways, 404)
    closed = window.page.evaluate(
        "run => new Promise(done => { new WebSocket(`ws://${location.host}/ws/runs/${run}/`)"
        ".onclose = event => done(event.code) })",
        str(run.id),
    )
    assert closed == 4404
    looker = browse(people.auditor)
    for path, sentence in (
        ("erase", "You may look, but not erase."),
        ("cancel", "You may look, but not cancel."),
    ):
        looker.open(f"/runs/{run.id}/{path}/")
        assert sentence in looker.page.locator("#main").inner_text()
        assert looker.page.locator("#main button").count() == 0
    assert AuditLine.objects.filter(kind__startswith="refused").count() == 0, (
        "looking is no try"
    )


@pytest.mark.parametrize(
    ("theme", "width"), [("dark", 390), ("light", 390), ("dark", 768), ("light", 1440)]
)
def test_no_page_of_stewards_breaks_a_rule(
    theme: str, width: int, people: People, browse: Browse
) -> None:
    pytest.importorskip(
        "axe_playwright_python", reason="the extra e2e is not installed"
    )
    histories(people)
    rule = policy(GRAPH, keep_last=1, max_age_days={"failed": 90.0})
    retention.hold(Run.objects.get(key="CLM-1").id, "a court asked", by=people.steward)
    job = retention.prune(policy("other"), by=people.steward)
    people.steward.is_staff = True
    people.steward.save()
    window = browse(
        people.steward, color_scheme=theme, viewport={"width": width, "height": 900}
    )
    places = [reverse("admin:index"), reverse("admin:clean_up"), *admin_pages(rule)]
    places += [
        reverse(f"admin:clean_up_{name}", args=[rule.pk])
        for name in ("dry_run", "confirm")
    ]
    places += [
        reverse("admin:clean_up_job", args=[job.id]),
        f"/runs/{Run.objects.get(key='CLM-2').id}/erase/",
        "/audit/",
    ]
    collected = {}
    for place in places:
        window.open(place)
        if wrong := violations(window.page) + sideways(window.page, width):
            collected[place] = wrong
    assert collected == {}


def admin_pages(rule: Any) -> list[str]:
    """The lists, rows and pages of acts that a steward works with."""
    run = Run.objects.get(key="CLM-1")
    rows = {"run": run.id, "checkpoint": run.head, "retentionpolicy": rule.pk}
    places = [
        reverse(f"admin:checkpoints_{name}_changelist")
        for name in (*rows, "legalhold", "pin", "erasurerecord")
    ]
    places += [
        reverse(f"admin:checkpoints_{name}_change", args=[key])
        for name, key in rows.items()
    ]
    request = run.requests.first()
    assert request is not None
    places.append(reverse("admin:approvals_approvalrequest_change", args=[request.id]))
    places += [
        f"{reverse('admin:runs_act', args=[act])}?run={run.id}"
        for act in ("cancel", "hold", "review")
    ]
    return [*places, reverse("pin", args=[run.head])]
