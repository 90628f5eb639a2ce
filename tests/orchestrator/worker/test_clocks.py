"""Clocks of hosts that disagree by an hour: only the database's counts, for leases, due
times and next attempts.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from django.db import connection

from checkpoints.models import Run, TaskResult
from orchestrator import runs
from tests.support.clusters import begun, cluster, ended, slow, status
from tests.support.processes import ROOT, environment, until
from tests.support.run_contents import everything

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "postgresql",
        reason="SQLite lives on one host, whose clock all its processes share",
    ),
]
AHEAD = {"COUNTERSIGN_TEST_CLOCK": "3600"}
BEHIND = {"COUNTERSIGN_TEST_CLOCK": "-3600"}


def started_by_a_host(clock, *words):
    """A run that a process with another clock starts."""
    command = [sys.executable, "manage.py", "start_run", "loop_every", "--json", *words]
    facts = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(**clock),
        capture_output=True,
        check=True,
        text=True,
    )
    return Run.objects.get(id=json.loads(facts.stdout)["id"])


@pytest.fixture
def skewed(tmp_path):
    """Two clusters of one worker each, two hours apart."""
    with ExitStack() as stack:
        for clock in (AHEAD, BEHIND):
            stack.enter_context(cluster(tmp_path, COUNTERSIGN_WORKERS="1", **clock))
        yield


def test_the_clocks_of_the_test_are_really_apart():
    code = (
        "from django.utils import timezone; import time; print(time.time(),"
        " timezone.now().timestamp())"
    )
    code = f"import django; django.setup(); {code}"
    content = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment(**clock),
            capture_output=True,
            check=True,
            text=True,
        )
        for clock in (AHEAD, BEHIND)
    ]
    (ahead, also_ahead), (behind, also_behind) = (
        map(float, process.stdout.split()) for process in content
    )
    assert 7100 < ahead - behind < 7300
    assert 7100 < also_ahead - also_behind < 7300


def test_runs_started_and_worked_on_under_clocks_an_hour_off_end_as_always(skewed):
    begun_by = [started_by_a_host(clock) for clock in (AHEAD, BEHIND)] + [
        runs.start("loop_every", {}) for _ in range(20)
    ]
    ended(*begun_by, seconds=30)
    for run in begun_by:
        row = Run.objects.get(id=run.id)
        assert row.superstep == 6
        assert row.epoch % 2 == 0, "each claim was begun by the one who made it"


def test_a_lease_is_neither_ended_early_nor_kept_late_by_a_clock(skewed):
    held = slow(5.0)
    begun(held)
    epoch = Run.objects.get(id=held.id).epoch
    time.sleep(3.0)  # past the lease of 2 s: only its heartbeat keeps it
    assert Run.objects.get(id=held.id).epoch == epoch
    assert status(held) == "running"
    ended(held)
    saved = everything(held)
    time.sleep(2.5)
    assert everything(held) == saved


def test_a_run_that_is_due_later_begins_neither_before_nor_an_hour_after(skewed):
    begun_at = time.monotonic()
    run = started_by_a_host(AHEAD, "--in", "3")
    other = started_by_a_host(BEHIND, "--in", "3")
    while time.monotonic() - begun_at < 2.5:
        assert {status(run), status(other)} == {"queued"}
        time.sleep(0.1)
    ended(run, other, seconds=15)


def test_the_next_attempt_after_a_long_pause_comes_when_it_is_due_on_either_host(
    skewed,
):
    both = [runs.start("patient", {"number": str(n)}) for n in range(4)]
    ids = [run.id for run in both]
    until(
        lambda: Run.objects.filter(id__in=ids, status="waiting").count() == 4,
        what="all to wait",
    )
    ended(*both, seconds=20)


def test_when_an_attempt_is_over_is_said_by_the_databases_clock(skewed):
    run = runs.start("effects", {"folder": ""})
    ended(run)
    for row in TaskResult.objects.filter(run=run):
        assert (
            abs((row.intent_at - Run.objects.get(id=run.id).started_at).total_seconds())
            < 60
        )
