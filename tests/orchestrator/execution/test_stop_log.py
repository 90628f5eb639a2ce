"""A run that stops and wants a person leaves a line in the log of its worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from checkpoints.core import work_sums
from checkpoints.core.status import STOPPED, Status
from checkpoints.core.work_sums import WorkSums
from checkpoints.ledger import locked_run
from checkpoints.models import Checkpoint
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import TamperedRow
from tests.graphs_app import graphs
from tests.support.forging import tamper
from tests.support.run_actions import start
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _mended() -> Iterator[None]:
    yield
    graphs.BROKEN.clear()


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """Return what the process logged under this name."""
    return [
        record.msg
        for record in caplog.records
        if isinstance(record.msg, dict) and record.msg["event"] == event
    ]


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> WorkSums:
    """The sums of this process, as if somebody scraped them."""
    sums = WorkSums(1)
    monkeypatch.setattr(work_sums, "installed", sums)
    return sums


def test_each_stop_is_counted_once_by_its_status(
    tmp_path: Path, sums: WorkSums
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    assert sums.totals()["runs_failed"] == 1

    tamper(Checkpoint.objects.get(id=run.head), line=7)
    runs.resume(run.id)
    runs.advance(run.id)
    assert sums.totals()["runs_tampered"] == 1
    # It is marked already.
    locked_run.mark_tampered(run.id, TamperedRow("another hash", row="checkpoint"))
    assert sums.totals()["runs_tampered"] == 1
    assert sums.totals()["runs_failed"] == 1


def test_a_run_that_ends_is_counted_as_no_stop(tmp_path: Path, sums: WorkSums) -> None:
    run = start("flaky", tmp_path)
    assert run.status == "completed"
    totals = sums.totals()
    for status in STOPPED:
        assert totals[f"runs_{status}"] == 0


def test_a_tampered_run_that_anybody_marks_is_counted(
    tmp_path: Path, sums: WorkSums
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    locked_run.mark_tampered(run.id, TamperedRow("another hash", row="checkpoint"))
    assert sums.totals()["runs_tampered"] == 1


def test_a_failed_run_leaves_one_line_that_names_run_graph_code_and_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    (line,) = lines(caplog, "run_failed")
    assert line["run"] == str(run.id)
    assert line["graph"] == "flaky"
    assert line["key"] == run.key
    assert line["code"] == "node_failed"
    assert line["node"] == "fragile"
    assert line["level"] == "error"


def test_the_line_repeats_no_message_which_may_hold_values(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graphs.BROKEN.add("fragile")
    start("flaky", tmp_path)
    (line,) = lines(caplog, "run_failed")
    assert "is broken" not in str(line)


def test_a_run_with_an_unknown_outcome_leaves_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = graph("cut_off")

    @flow.node("pay", effect="external")
    def pay(state: Any, ctx: Any) -> None:
        raise ConnectionError("cut off")

    flow.edge(START, "pay")
    flow.edge("pay", END)
    advanced(flow)
    assert [line["code"] for line in lines(caplog, "run_unknown")] == [
        "outcome_unknown"
    ]


def test_a_run_that_ends_at_a_limit_leaves_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flow = graph("endless", max_supersteps=2)
    flow.node("again")(lambda state, ctx: None)
    flow.edge(START, "again")
    flow.branch("again", lambda state: "more", {"more": "again", "done": END})
    advanced(flow)
    assert len(lines(caplog, "run_failed")) == 1


def test_a_run_that_a_worker_finds_tampered_leaves_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    tamper(Checkpoint.objects.get(id=run.head), line=7)
    runs.resume(run.id)
    runs.advance(run.id)
    assert [line["run"] for line in lines(caplog, "run_tampered")] == [str(run.id)]


def test_a_run_that_anybody_else_finds_tampered_leaves_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    graphs.BROKEN.add("fragile")
    run = start("flaky", tmp_path)
    for _ in range(2):
        locked_run.mark_tampered(run.id, TamperedRow("another hash", row="checkpoint"))
    assert [line["run"] for line in lines(caplog, "run_tampered")] == [str(run.id)]


def test_a_run_that_completes_leaves_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert start("flaky", tmp_path).status == Status.COMPLETED
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert errors == []


def test_a_run_that_ends_leaves_one_line_that_says_how_and_after_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    flow = graph("ended")
    flow.node("first")(lambda state, ctx: {"notes": ["a-value-of-the-run"]})
    flow.edge(START, "first")
    flow.edge("first", END)
    run = advanced(flow)
    (line,) = lines(caplog, "run_ended")
    assert line["run"] == str(run.id)
    assert line["graph"] == "ended"
    assert line["status"] == "completed"
    assert line["supersteps"] == 1
    assert 0 <= line["seconds"] < 60
    assert "a-value-of-the-run" not in str(line)


def test_a_run_that_is_cancelled_leaves_the_same_line_once_that_is_committed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run = start("gated", tmp_path)
    assert lines(caplog, "run_ended") == []
    with transaction.atomic():
        runs.cancel(run.id, reason="not wanted")
        assert lines(caplog, "run_ended") == []
    (line,) = lines(caplog, "run_ended")
    assert line["run"] == str(run.id)
    assert line["status"] == "cancelled"
