"""COUNTERSIGN["DIRECT_STATEMENTS"]: without it the same commits go through Django's
cursors, and no driver is asked.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, RunEvent, TaskResult
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.crash.journey import journey
from tests.graphs_app.graphs import BROKEN
from tests.support import run_actions
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)
DRIVERS = str(Path("checkpoints", "db", "drivers"))
ROWS = (Checkpoint, RunEvent, TaskResult)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield the functions of the drivers that this thread calls in the block, in order."""
    called: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and DRIVERS in frame.f_code.co_filename:
            called.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)


def turn(configure: Any, switch: bool) -> None:
    configure(DIRECT_STATEMENTS=switch)


def _signed(folder: Path, rita: User) -> Run:
    run = run_actions.start("gated", folder)
    run_actions.sign(
        run,
        run_actions.reviewer(rita),
        [("edit", {"amount": "9"}), "reject", "approve", "approve"],
    )
    return runs.advance(run.id)


def _resumed(folder: Path, rita: User) -> Run:
    BROKEN.add("fragile")
    try:
        run = run_actions.start("flaky", folder)
    finally:
        BROKEN.clear()
    return runs.advance(runs.resume(run.id).id)


STORIES = {
    "a loop": lambda folder, rita: run_actions.start("loop_every", folder),
    "effects": lambda folder, rita: run_actions.start("effects", folder),
    "a signature": _signed,
    "a failure that is resumed": _resumed,
}


@pytest.mark.parametrize("story", STORIES)
def test_turned_off_the_same_is_committed_through_djangos_cursors(
    story: str, configure: Any, tmp_path: Path, people: People
) -> None:
    journeys = []
    counts = []
    for switch in (True, False):
        turn(configure, switch)
        with watched() as called:
            run = STORIES[story](tmp_path, people.reviewer)
        assert bool(called) is switch, called
        assert run.status == Status.COMPLETED
        assert verify_run(run.id) == []
        journeys.append(journey(run))
        counts.append(
            [
                run_actions.log(run),
                run_actions.sources(run),
                *(model.objects.filter(run=run).count() for model in ROWS),
            ]
        )
    assert journeys[0] == journeys[1]
    assert counts[0] == counts[1]


@pytest.mark.skipif(
    connection.vendor != "sqlite",
    reason="only the driver of SQLite says what it is told",
)
def test_turned_off_the_same_transactions_reach_sqlite(
    configure: Any, tmp_path: Path
) -> None:
    transactions = []
    for switch in (True, False):
        turn(configure, switch)
        run_actions.start(
            "loop_every", tmp_path
        )  # what is read once a process was read
        messages: list[str] = []
        connection.ensure_connection()
        connection.connection.set_trace_callback(messages.append)
        try:
            run_actions.start("loop_every", tmp_path)
        finally:
            connection.connection.set_trace_callback(None)
        words = [text.split() for text in messages if not text.startswith("SELECT")]
        transactions.append(
            [" ".join(some[:1] if "SAVEPOINT" in some else some[:3]) for some in words]
        )
    assert transactions[0] == transactions[1]
    assert transactions[0].count("COMMIT") > 6


def test_it_is_on_where_nobody_says_otherwise(settings: Any, tmp_path: Path) -> None:
    settings.COUNTERSIGN = {}
    with watched() as called:
        run_actions.start("loop_every", tmp_path)
    assert "send" in called
