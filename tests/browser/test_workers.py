"""What every page says of workers, and what ticks, in a real browser."""

from collections.abc import Callable
from typing import Any

from checkpoints.models import Run, Worker
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator import runs
from tests.browser.conftest import Page
from tests.support.cast import People
from tests.support.rows import a_worker

Browse = Callable[..., Page]


def queued(people: People) -> Run:
    return runs.start(
        "page_claim",
        {"claim_id": "CLM-1", "amount": "1"},
        key="CLM-1",
        by=people.starter,
    )


def test_an_open_page_says_that_the_worker_is_gone_and_that_one_is_back(
    people: People, browse: Browse
) -> None:
    a_worker()
    run = queued(people)
    operator = browse(people.starter)
    operator.open(f"/runs/{run.id}/")
    strip: Any = operator.page.locator("#no-worker")
    assert strip.is_hidden()
    Worker.objects.update(draining=True)
    operator.page.wait_for_selector("#no-worker:not([hidden])")
    assert strip.inner_text().startswith("No worker has been heard from since ")
    assert "manage.py worker" in strip.inner_text()
    a_worker()
    operator.page.wait_for_selector("#no-worker[hidden]", state="attached")
    assert operator.complaints == []


def test_ages_tick_without_a_reload(people: People, browse: Browse) -> None:
    run = queued(people)
    Run.objects.filter(id=run.id).update(status="running", started_at=run.created_at)
    operator = browse(people.starter)
    operator.open("/runs/")
    age = operator.page.inner_text("[data-tick=lasted]")
    operator.page.wait_for_function(
        "was => document.querySelector('[data-tick=lasted]').textContent !== was",
        arg=age,
    )
    assert operator.complaints == []


def test_what_a_node_reports_is_shown_while_it_runs(
    people: People, browse: Browse
) -> None:
    run = queued(people)
    Run.objects.filter(id=run.id).update(status="running", started_at=run.created_at)
    operator = browse(people.starter)
    operator.open(f"/runs/{run.id}/")
    operator.page.wait_for_selector(".live:not([hidden])")
    statement = {
        "task": "read:1:0",
        "done": 1200,
        "total": 5000,
        "note": "rows checked",
    }
    Run.objects.filter(id=run.id).update(progress=pack_json(statement))
    operator.page.wait_for_selector("#run-head :text('1,200 of 5,000 rows checked')")
    assert operator.complaints == []
