"""The pages for everybody: no rule of axe broken, light and dark, wide and narrow, and
no sideways scrolling.
"""

import os
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from approvals import reviews
from approvals.models import Receipt
from checkpoints import timeline
from checkpoints.models import Run
from checkpoints.queue import jobs
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.browser.axe import sideways, violations
from tests.browser.conftest import Page
from tests.browser.scenes import forked_run, lost_run
from tests.support import claims, run_actions
from tests.support.cast import People
from tests.support.figures import noted

Browse = Callable[..., Page]
LOOKS = [
    ("light", 1440),
    ("dark", 768),
    ("light", 390),
    ("dark", 1440),
    ("light", 768),
    ("dark", 390),
]
if not os.environ.get("COUNTERSIGN_LOOKS"):
    LOOKS = LOOKS[
        :3
    ]  # each theme and each width once; `make sweep` has each theme at each width
WIDTHS = (1440, 1180, 985, 940, 820, 768, 761, 760, 390, 320)
"""Widths of windows: a desk, tablets, 150 % zoom, telephones, and the points at which
the layout changes.
"""


def paths(people: People) -> list[str]:
    run: Run = claims.paused("CLM-1", people.starter)
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-2", people.starter)
    return [
        f"/runs/{lost_run(people).id}/settle/",
        f"/receipts/{_signed(run, people).id}/",
        "/runs/",
        f"/runs/{run.id}/",
        f"/runs/{run.id}/?at=1&tab=state",
        f"/runs/{run.id}/?tab=writes",
        f"/runs/{failed.id}/",
        f"/runs/{failed.id}/cancel/",
        f"/runs/{failed.id}/export/",
        f"/runs/{run.id}/erase/",
        "/runs/-/import/",
        "/account/",
        "/notices/",
        "/audit/",
        f"/checkpoints/{timeline.get_checkpoint(f'{run.key}:at-1').id}/pin/",
        f"/runs/{_cancelled(people).id}/",
        *_travels(people),
        f"/runs/{run.id}/?path=scratch.notes",
        f"/compare/?a={run.id}&b={forked_run(run, people).id}",
        f"/compare/?a={run.id}",
        "/reviews/",
        f"/reviews/{run.id}/",
        *_with_notes(run),
        "/graphs/",
        "/graphs/page_claim/",
        "/graphs/page_claim/start/",
        _with_jobs("/workers/"),
        "/nothing/here/",
    ]


def _travels(people: People) -> list[str]:
    """A run that went back, from where it could go on in three ways; and a patch of it
    that waits for people.
    """
    run = claims.paused("CLM-5", people.starter)
    older = f"{run.key}:at-1"
    claims.member(people.starter, "reviewer")
    runs.advance(
        runs.rewind(run.id, older, by=people.starter, reason="wrong photos").id
    )
    patched = runs.fork(
        older,
        patch={"scratch": {"letter": "Dear Marta"}},
        by=people.starter,
        reason="a typing error",
    )
    at = timeline.get_checkpoint(older).id
    ways = [
        f"/checkpoints/{at}/go-on/?how={how}" for how in ("fork", "replay", "rewind")
    ]
    asking = f"/checkpoints/{timeline.get_checkpoint(f'{run.key}:at-2').id}/go-on/"
    return [
        *ways,
        asking,
        f"/runs/{run.id}/?at=2&tab=writes",
        f"/reviews/{runs.advance(patched.id).id}/",
    ]


def _with_notes(run: Run) -> list[str]:
    """The sums of figures, with some and with none, and a list of runs that is narrowed
    by metadata.
    """
    noted(run, {"tokens": 1_234_567, "cost": Decimal("0.25")})
    return [
        "/figures/",
        "/figures/?by=run",
        "/figures/?to=2000-01-01",
        "/runs/?metadata.team=claims",
    ]


def _cancelled(people: People) -> Run:
    """A run that somebody cancelled, with a long reason."""
    return runs.cancel(
        claims.paused("CLM-4", people.starter).id,
        by=people.starter,
        reason="not wanted any more " * 20,
    )


def _with_jobs(path: str) -> str:
    """The page, when a job is half done and another has failed once."""
    begun = jobs.add_job("rotate_keys")
    lease = jobs.begin_job(begun, jobs.claim_one(begun) or 0)
    assert lease is not None
    jobs.report(lease, jobs.Step(1250, 5000, "checkpoints of claim_payout"))
    kinds.advance(jobs.add_job("brew_coffee"))
    return path


def _signed(run: Run, people: People) -> Receipt:
    """One write of the run, approved by the person who looks; the others stay open."""
    claims.member(people.starter, "reviewer")
    first = run_actions.pending(run)[0]
    decision = {"write": str(first.write), "hash": first.hash, "verdict": "approve"}
    return reviews.sign(run.id, [decision], by=people.starter)


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_every_page_passes_axe_in_light_and_dark_at_1440_768_and_390_px(
    theme: str, width: int, people: People, browse: Browse
) -> None:
    pytest.importorskip(
        "axe_playwright_python", reason="the extra e2e is not installed"
    )
    for role in ("reviewer", "auditor"):
        claims.member(people.starter, role)
    window = browse(
        claims.member(people.starter, "steward"),
        color_scheme=theme,
        viewport={"width": width, "height": 900},
    )
    collected = {}
    for path in paths(people):
        window.open(path)
        wrong = violations(window.page) + sideways(window.page, width)
        if wrong:
            collected[path] = wrong
    assert collected == {}
    assert [c for c in window.complaints if "404" not in c] == []


def test_the_door_breaks_no_rule(
    people: People, browse: Browse, chromium: Any, site: str
) -> None:
    pytest.importorskip(
        "axe_playwright_python", reason="the extra e2e is not installed"
    )
    page = chromium.new_page()
    page.goto(f"{site}/login/")
    assert violations(page) == []
    page.close()


def test_the_first_tab_shows_skip_to_content_and_it_works(
    people: People, browse: Browse
) -> None:
    window = browse(people.starter)
    window.open("/runs/")
    window.page.keyboard.press("Tab")
    assert (
        window.page.evaluate("document.activeElement.textContent") == "Skip to content"
    )
    window.page.keyboard.press("Enter")
    assert window.page.evaluate("document.activeElement.id") == "main"


def test_no_page_scrolls_sideways_at_any_width(people: People, browse: Browse) -> None:
    for role in ("reviewer", "auditor"):
        claims.member(people.starter, role)
    window = browse(claims.member(people.starter, "steward"))
    wide = []
    for path in paths(people):
        window.open(path)
        for width in WIDTHS:
            window.page.set_viewport_size({"width": width, "height": 900})
            wide += [(path, width) for _ in sideways(window.page, width)]
    assert wide == []
