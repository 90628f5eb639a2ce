"""What a page says and does while its connection is lost, for one second, for five, and for longer."""

import json
from collections.abc import Callable
from typing import Any

from checkpoints.models import Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import claims
from tests.support.cast import People

Browse = Callable[..., Page]
Worker = Callable[[str], None]
GOING_AWAY = 1012
SEEN = """() => {
  const live = document.querySelector('[data-live]');
  window.seen = [];
  new MutationObserver(() => window.seen.push(live.textContent.trim()))
    .observe(live, { childList: true, subtree: true, characterData: true, attributes: true });
}"""


class Wire:
    """The sockets of a page: they can be cut, and are refused until they are joined again."""

    def __init__(self, page: Any) -> None:
        self.is_cut = False
        self.open: list[Any] = []
        self.lines: list[dict[str, Any]] = []
        page.route_web_socket("**/ws/**", self._connect)

    def cut(self, *, refuse: bool) -> None:
        self.is_cut = refuse
        for socket in self.open:
            socket.close(code=GOING_AWAY)
        self.open.clear()

    def _connect(self, socket: Any) -> None:
        if self.is_cut:
            socket.close(code=GOING_AWAY)
            return
        server = socket.connect_to_server()
        server.on_message(lambda text: self._pass_on(socket, text))
        self.open.append(socket)

    def _pass_on(self, socket: Any, text: str) -> None:
        # The server's side of a socket that was cut may go on for a while; the page hears nothing of it.
        if socket not in self.open:
            return
        if "/ws/runs/" in socket.url:
            self.lines.append(json.loads(text))
        socket.send(text)


def test_a_socket_that_drops_shows_nothing_then_reconnecting_then_a_banner_and_every_missed_event_arrives_once(
    people: People, browse: Browse
) -> None:
    run: Run = runs.start("page_claim", {"claim_id": "CLM-9", "amount": "1"}, key="CLM-9", by=people.starter)
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
