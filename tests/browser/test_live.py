"""What a page says and does while its connection is lost, for one second, for five, and
for longer.
"""

from collections.abc import Callable

from checkpoints.models import Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.browser.wire import Wire
from tests.support import claims
from tests.support.cast import People

Browse = Callable[..., Page]
Worker = Callable[[str], None]
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
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(10_000)
    page.wait_for_function("document.querySelector('#no-live time').textContent !== ''")
    assert [url for url in asked if url.endswith("/runs/CLM-9/")]

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
