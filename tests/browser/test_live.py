"""What a live page says and does: with much news at once, with news of what somebody is
editing, and while its connection is lost.
"""

from collections.abc import Callable
from typing import Any

from django.utils import timezone

from approvals.models import PersonNotice
from checkpoints.models import Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.browser.wire import Wire
from tests.support import claims, run_actions
from tests.support.cast import People

Browse = Callable[..., Page]
Worker = Callable[[str], None]
SPOKEN = """() => {
  const region = document.getElementById('announce');
  window.spoken = [];
  new MutationObserver(() => window.spoken.push(region.textContent))
    .observe(region, { childList: true, subtree: true, characterData: true });
}"""
SEEN = """() => {
  const live = document.querySelector('[data-live]');
  window.seen = [];
  new MutationObserver(() => window.seen.push(live.textContent.trim()))
    .observe(live, { childList: true, subtree: true, characterData: true, attributes: true });
}"""


def test_a_dropped_socket_shows_reconnecting_then_a_banner_and_each_missed_event_once(
    people: People, browse: Browse
) -> None:
    run: Run = runs.start(
        "page_claim",
        {"claim_id": "CLM-9", "amount": "1"},
        key="CLM-9",
        by=people.starter,
    )
    window = browse(people.starter)
    page = window.page
    wire = Wire(page)
    page.clock.install()
    window.open("/runs/CLM-9/")
    page.wait_for_selector(".live:not([hidden]) :text-is('Live')", state="attached")
    page.evaluate(SEEN)

    # For one second: nothing is shown.
    wire.cut(refuse=False)
    page.clock.run_for(1500)
    page.wait_for_function("window.seen.every((text) => text === 'Live')")
    assert not page.is_visible("#no-live")

    # For five seconds: the bar says so.
    wire.cut(refuse=True)
    page.clock.run_for(5000)
    page.wait_for_selector(".live.down :text-is('Reconnecting')")
    assert not page.is_visible("#no-live")

    # For forty seconds: a banner, and the page asks by itself.
    page.clock.run_for(30_000)
    page.wait_for_selector("#no-live:not([hidden])")
    calls: list[str] = []
    page.on("request", lambda request: calls.append(request.url))
    page.clock.run_for(10_000)
    page.wait_for_function("document.querySelector('#no-live time').textContent !== ''")
    assert [url for url in calls if url.endswith("/runs/CLM-9/")]

    # After the return every line of the log that was missed arrives, once and in order.
    claims.BROKEN.clear()
    runs.advance(run.id)
    first = int(page.get_attribute("[data-run]", "data-seq") or 0)
    wire.is_cut = False
    wire.lines.clear()
    page.clock.run_for(40_000)
    page.wait_for_selector(".live :text-is('Up to date again')", state="attached")
    page.wait_for_selector("#run-head :text('Needs review')")
    assert not page.is_visible("#no-live")
    numbers = [line["seq"] for line in wire.lines if "seq" in line]
    last = Run.objects.get(id=run.id).event_seq
    assert numbers == list(range(first + 1, last + 1))


def test_without_a_socket_the_bell_follows_the_page_of_notices(
    people: People, browse: Browse
) -> None:
    claims.paused("CLM-3", people.starter)
    window = browse(people.auditor)
    page = window.page
    wire = Wire(page)
    page.clock.install()
    window.open("/runs/")
    page.wait_for_selector(".live:not([hidden]) :text-is('Live')", state="attached")
    wire.cut(refuse=True)
    page.clock.run_for(35_000)
    page.wait_for_selector("#no-live:not([hidden])")
    assert not page.is_visible(".bell [data-notices]")

    PersonNotice.objects.create(
        user=people.auditor,
        notice=1,
        event="request.opened",
        run=Run.objects.values_list("id", flat=True)[0],
        at=timezone.now(),
    )
    page.clock.run_for(10_000)
    page.wait_for_selector(".bell [data-notices]:text-is('1')")
    assert page.get_attribute(".bell", "aria-label") == "Notices, 1 unread"


def test_a_slip_with_an_open_editor_is_not_replaced_by_a_live_update(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.graph_of("two_needed", quorum=2)):
        run = claims.paused("CLM-2", people.starter, graph="two_needed")
        window = browse(people.reviewer)
        page = window.page
        window.open("/reviews/CLM-2/")
        page.wait_for_selector(".live:not([hidden])")
        page.check("#w2 input[value=edit]", force=True)
        page.fill("#w2 .editor textarea", "My own letter")

        # Somebody else edits the same write, which waits for a second signature.
        other = claims.member(people.second_reviewer, "reviewer")
        run_actions.sign(run, other, [None, ("edit", "Another letter"), None])
        page.wait_for_selector("#w2 .changed :text('This changed')")
        assert page.input_value("#w2 .editor textarea") == "My own letter"
        page.click("#w2 [data-newer]")
        page.wait_for_selector("#w2 .edited :text('Another letter')")


def test_a_thousand_events_in_ten_seconds_cause_at_most_forty_requests(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-3", people.starter)
    window = browse(people.starter)
    page = window.page
    wire = Wire(page)
    page.clock.install()
    window.open("/runs/CLM-3/")
    page.wait_for_selector(".live:not([hidden]) :text-is('Live')", state="attached")
    fetched: list[str] = []

    def note(request: Any) -> None:
        if request.resource_type == "fetch":
            fetched.append(request.url)

    page.on("request", note)
    seq = run.event_seq
    for _ in range(100):
        for _ in range(10):
            seq += 1
            wire.send("/ws/runs/", {"seq": seq, "type": "node_started"})
        page.clock.run_for(100)
    page.clock.run_for(1000)
    page.wait_for_timeout(500)
    assert 1 <= len(fetched) <= 40


def test_news_is_spoken_at_most_once_in_five_seconds(
    people: People, browse: Browse
) -> None:
    window = browse(people.reviewer)
    page = window.page
    page.clock.install()
    window.open("/reviews/")
    page.wait_for_selector(".live:not([hidden])")
    page.evaluate(SPOKEN)
    claims.paused("CLM-0", people.starter)
    page.wait_for_selector("#inbox :text('Pay CLM-0?')")
    for number, text in enumerate(["1 new review.", "2 new reviews."], start=1):
        claims.paused(f"CLM-{number}", people.starter)
        page.wait_for_selector(f"#new-reviews:has-text('{text}')")
    assert page.evaluate("window.spoken") == ["A review waits for you."]
    page.clock.run_for(5000)
    # What came meanwhile is spoken together.
    assert page.evaluate("window.spoken") == [
        "A review waits for you.",
        "New reviews wait above the list.",
    ]
