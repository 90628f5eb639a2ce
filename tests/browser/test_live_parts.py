"""What a live page fetches: the parts that have changed, and no others."""

import re
from collections.abc import Callable
from typing import Any

from approvals import reviews
from checkpoints.models import Run
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support import claims, run_actions
from tests.support.cast import People

Browse = Callable[..., Page]
SENT = re.compile(r'id="([\w-]+)" data-digest=')
SPARED = re.compile(r'id="([\w-]+)" data-same')


class Fetched:
    """The answers that the scripts of a page fetch: which parts they hold, which they
    leave out, and their bytes.
    """

    def __init__(self, page: Any) -> None:
        self._responses: list[Any] = []
        page.on("response", self._note)

    def _note(self, response: Any) -> None:
        if "x-parts" in response.request.headers:
            self._responses.append(response)

    @property
    def bodies(self) -> list[str]:
        return [response.text() for response in self._responses]

    def sent(self) -> set[str]:
        return {part for body in self.bodies for part in SENT.findall(body)}

    def spared(self) -> set[str]:
        return set(SPARED.findall(self.bodies[-1]))

    def most_bytes(self) -> int:
        return max(len(body) for body in self.bodies)


def test_a_signature_exchanges_the_panel_of_signatures_and_the_slips_that_it_is_in(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.graph_of("two_needed", quorum=2)):
        run = claims.paused("CLM-2", people.starter, graph="two_needed")
        window = browse(people.reviewer)
        page = window.page
        window.open("/reviews/CLM-2/")
        page.wait_for_selector(".live:not([hidden])")
        whole = len(page.content())

        fetched = Fetched(page)
        other = claims.member(people.second_reviewer, "reviewer")
        run_actions.sign(run, other, [None, "approve", None])
        page.wait_for_selector("#signbox :text('1 of 3 signed')")
        assert {"signbox", "w2"} <= fetched.sent()
        assert {"w1", "w3", "next", "review-head"} <= fetched.spared()
        assert 5 * fetched.most_bytes() < 3 * whole

        # What this person has chosen stays on the screen.
        page.check("#w1 input[value=approve]", force=True)
        page.wait_for_load_state("networkidle")
        run_actions.sign(run, other, [None, None, "approve"])
        page.wait_for_selector("#signbox :text('Approved 2')")
        assert page.is_checked("#w1 input[value=approve]")


def test_a_superstep_exchanges_the_timeline_of_a_page_on_the_past(
    people: People, browse: Browse
) -> None:
    run = claims.paused("CLM-9", people.starter)
    window = browse(people.starter)
    page = window.page
    window.open("/runs/CLM-9/?at=1")
    page.wait_for_selector(".live:not([hidden])")
    whole = len(page.content())
    graph = page.inner_html("#graph")

    fetched = Fetched(page)
    claims.decide_all(run, by=people.reviewer)
    runs.advance(run.id)
    page.wait_for_selector("#run-head :text('Completed')")
    page.wait_for_load_state("networkidle")
    newest = Run.objects.get(id=run.id).head_seq
    assert {"run-head", "transport", f"cp-{newest}", f"li-{newest}"} <= fetched.sent()
    assert {"checkpoint", "detail", "graph", "cp-0", "li-0"} <= fetched.spared()
    assert page.inner_html("#graph") == graph
    # What was not sent stands at its place in the longer list.
    kept = page.locator("#cp-0")
    assert f"Checkpoint 0 of {newest}," in str(kept.get_attribute("aria-label"))
    options = page.locator(".cplist [role=option]")
    assert options.first.get_attribute("id") == f"li-{newest}"
    places = [option.get_attribute("aria-posinset") for option in options.all()]
    assert places == [str(place) for place in range(1, options.count() + 1)]
    assert page.get_attribute("#li-0", "aria-setsize") == str(newest + 1)
    assert 2 * fetched.most_bytes() < whole


def test_an_edit_of_another_renews_the_title_and_the_facts_that_are_signed(
    people: People, browse: Browse
) -> None:
    flow = claims.graph_of(
        "titled", quorum=2, title="Pay {proposal.payout.amount} for the claim?"
    )
    with claims.registered(flow):
        run = claims.paused("CLM-3", people.starter, graph="titled")
        window = browse(people.reviewer)
        page = window.page
        window.open("/reviews/CLM-3/")
        page.wait_for_selector(".live:not([hidden])")
        question_parts = page.locator('[id^="asked-"]')
        assert "9.75" not in question_parts.inner_text()

        other = claims.member(people.second_reviewer, "reviewer")
        payout = {"amount": "9.75", "account": "DE89370400440532013000"}
        run_actions.sign(run, other, [("edit", payout), None, None])
        page.wait_for_selector("#w1 :text('9.75')")
        assert "Pay 9.75 for the claim?" in question_parts.inner_text()


def test_what_is_typed_in_a_hand_over_outlasts_news(
    people: People, browse: Browse
) -> None:
    with claims.registered(claims.graph_of("taken", quorum=2)):
        run = claims.paused("CLM-4", people.starter, graph="taken")
        reviews.claim(run_actions.request(run).id, by=people.reviewer)
        window = browse(people.reviewer)
        page = window.page
        window.open("/reviews/CLM-4/")
        page.wait_for_selector(".live:not([hidden])")
        field = page.locator("#claims input[name=comment]")
        field.fill("Please look at the")

        other = claims.member(people.second_reviewer, "reviewer")
        run_actions.sign(run, other, [None, "approve", None])
        page.wait_for_selector("#signbox :text('1 of 3 signed')")
        assert field.input_value() == "Please look at the"
