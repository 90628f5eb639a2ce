"""What the page of a review says was on the screen, in a real browser."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import Decision, Sighting
from checkpoints.models import Run
from tests.browser.axe import violations
from tests.browser.conftest import LONGEST_WAIT, Page
from tests.support import run_actions
from tests.support.cast import People
from tests.support.confirmed_graphs import gated
from tests.support.run_actions import pending
from tests.support.small_graphs import advanced

Browse = Callable[..., Page]


@pytest.fixture
def rita(people: People) -> User:
    return run_actions.reviewer(people.reviewer)


def shown(rita: User, browse: Browse, run: Run) -> Page:
    """The page of a run's review, in a window that has no room for many slips."""
    window = browse(rita, viewport={"width": 1280, "height": 600})
    window.open(f"/reviews/{run.id}/")
    return window


def sightings_once(window: Page, **columns: Any) -> list[Sighting]:
    """The sightings of which one is as these columns say, once it is there."""
    for _ in range(LONGEST_WAIT // 100):
        if Sighting.objects.filter(**columns).exists():
            return list(Sighting.objects.all())
        window.page.wait_for_timeout(100)
    raise AssertionError(f"nothing of {columns} among {Sighting.objects.count()}")


def test_a_slip_is_told_when_it_comes_onto_the_screen_and_what_is_unfolded(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(many=8))
    rows = pending(run)
    window = shown(rita, browse, run)
    first = sightings_once(window, write=rows[0].write)
    assert len(first) < len(rows)
    window.page.locator(".slip").last.scroll_into_view_if_needed()
    sightings_once(window, write=rows[-1].write)
    assert window.complaints == []


def test_what_is_folded_is_opened_by_unfolding_it_or_the_raw_json(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(many=2, shows=["payout"]))
    window = shown(rita, browse, run)
    rows = pending(run)
    assert sightings_once(window, write=rows[0].write)[0].opened_at is None
    window.page.click("#w1-j summary")
    sightings_once(window, write=rows[0].write, opened_at__isnull=False)
    window.page.click("#w2-b summary")
    sightings_once(window, write=rows[1].write, opened_at__isnull=False)


def test_who_signs_too_soon_reads_why_and_signs_when_the_time_is_up(
    rita: User, browse: Browse
) -> None:
    run = advanced(gated(considered=timedelta(seconds=6)))
    page = shown(rita, browse, run).page
    page.check(".trip input[value=approve]", force=True)
    page.click("#sign")
    page.wait_for_selector("#early:not([hidden])")
    assert "look at each write before you decide it" in page.inner_text("#early")
    assert page.get_attribute("#sign", "aria-disabled") == "true"
    assert violations(page) == []
    assert not Decision.objects.exists()
    page.wait_for_selector("#early", state="hidden")
    assert page.is_checked(".trip input[value=approve]")
    page.click("#sign")
    page.wait_for_url("**/receipts/**")
    assert Decision.objects.count() == 1
