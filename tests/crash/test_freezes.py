"""A process is frozen inside each kind of transaction: others go on soon, and it
commits nothing when it wakes up.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import MemoryRecord, Run, TaskResult
from orchestrator import runs
from tests.crash import freezes, graphs
from tests.support import cast, run_actions
from tests.support.clusters import begun, cluster
from tests.support.processes import ROOT, environment, until
from tests.support.run_contents import everything

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "postgresql",
        reason="on SQLite nobody can take a lock away from a frozen process",
    ),
]
LEASE = 2.0
SOON = LEASE + 4.0
"""Seconds: the lease, and a few."""
AT_WORK = (Status.QUEUED, Status.RUNNING, Status.WAITING)

WORKERS = {
    "claim": "c_linear",
    "begin": "c_linear",
    "heartbeat": "c_reporting",
    "intents": "c_effects",
    "result": "c_effects",
    "atomic result": "c_atomic",
    "memory record": "c_memory",
    "superstep": "c_remembering",
    "pause": "c_gate",
    "failure": "c_failure",
    "settlement": "c_gate",
}
"""Kinds of transactions of a worker, and a graph whose run has one."""
ALONE = freezes.ALONE
PEOPLE = {
    "signing": ("c_gate", "sign"),
    "settle": ("c_unknown", "settle"),
    "cancel": ("c_gate", "cancel"),
}
"""Kinds of transactions of people, the graph whose run rests before, and the act."""


@pytest.fixture(autouse=True)
def short_lease(settings: Any, people: cast.People) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "LEASE_SECONDS": LEASE}
    run_actions.reviewer(people.reviewer)
    graphs.fresh()


@contextmanager
def frozen(
    kind: str, verb: str, run: Run, folder: Path
) -> Iterator["subprocess.Popen[str]"]:
    """A process that does this, frozen inside such a transaction; killed at the end
    where it is still there.
    """
    mark = folder / "frozen"
    words = [
        sys.executable,
        "-m",
        "tests.crash.freezes",
        kind,
        str(mark),
        verb,
        str(run.id),
    ]
    env = environment(COUNTERSIGN_LEASE_SECONDS=str(LEASE))
    process = subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        until(
            lambda: mark.exists() or process.poll() is not None,
            what=f"{verb} to freeze in {kind}",
        )
        assert mark.exists(), f"{verb} ended without a transaction of the kind {kind}"
        yield process
    finally:
        process.kill()
        process.wait()


def _is_locked(run: Run) -> bool:
    try:
        with transaction.atomic():
            Run.objects.select_for_update(nowait=True).get(id=run.id)
    except DatabaseError:
        return True
    return False


def _contents(run: Run) -> Any:
    """All that may not change any more. When the thread of an attempt ended is
    evidence, comes late, and is sealed.
    """
    late = {"thread_ended_at", "seal", "seal_key"}
    rows = [
        list(model.objects.filter(run=run.id).order_by("pk").values())
        for model in (TaskResult, MemoryRecord)
    ]
    results = [
        {name: value for name, value in row.items() if name not in late}
        for row in rows[0]
    ]
    return (
        everything(run),
        results,
        rows[1],
        list(Decision.objects.filter(run=run.id).values()),
    )


def _wakes_up_in_vain(process: "subprocess.Popen[str]", run: Run) -> str:
    """Return what the frozen process says at its end, having changed nothing."""
    saved = _contents(run)
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=30)
    assert _contents(run) == saved
    return str(said)


def _at_rest(run: Run) -> bool:
    with suppress(OperationalError):
        return runs.advance(run.id).status not in AT_WORK
    return False


@pytest.mark.parametrize("kind", WORKERS)
def test_a_worker_frozen_in_a_transaction_is_taken_over_and_commits_nothing_on_waking(
    kind: str, tmp_path: Path
) -> None:
    run = runs.start(WORKERS[kind], {"folder": str(tmp_path)})
    if kind == "settlement":
        runs.advance(run.id)
        run_actions.sign_open(
            run, run_actions.User.objects.get(username="rita"), "approve"
        )
    with frozen(kind, "advance", run, tmp_path) as process:
        since = time.monotonic()
        assert kind in {*ALONE, "memory record", "atomic result"} or _is_locked(run), (
            "it was not frozen with the lock"
        )
        until(
            lambda: _at_rest(run),
            seconds=SOON,
            what=f"the run to be taken over after a freeze in {kind}",
        )
        took = time.monotonic() - since
        _wakes_up_in_vain(process, run)
    print(f"frozen in {kind}: at rest after {took:.1f} s")
    assert took < SOON


@pytest.mark.parametrize("kind", PEOPLE)
def test_a_person_whose_web_process_is_frozen_inside_an_act_keeps_nobody_waiting_for_long(
    kind: str, tmp_path: Path
) -> None:
    graph, verb = PEOPLE[kind]
    run = run_actions.start(graph, tmp_path)
    assert run.status in (Status.PAUSED, Status.UNKNOWN)
    with frozen(kind, verb, run, tmp_path) as process:
        since = time.monotonic()
        assert _is_locked(run)
        until(
            lambda: _acted(lambda: freezes.VERBS[verb](str(run.id))),
            seconds=SOON,
            what="somebody else's act",
        )
        took = time.monotonic() - since
        said = _wakes_up_in_vain(process, run)
        assert process.returncode == freezes.REFUSED, said
    assert took < SOON
    assert runs.advance(run.id).status in (Status.COMPLETED, Status.CANCELLED)


def _acted(act: Callable[[], None]) -> bool:
    try:
        act()
    except OperationalError:
        return False
    return True


def test_a_cluster_whose_worker_is_frozen_inside_a_transaction_goes_on_with_its_run(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "frozen"
    env = {
        "COUNTERSIGN_FREEZE": "result",
        "COUNTERSIGN_FREEZE_MARK": str(mark),
        "COUNTERSIGN_WORKERS": "2",
    }
    with cluster(tmp_path, COUNTERSIGN_LEASE_SECONDS=str(LEASE), **env):
        run = runs.start("c_effects", {"folder": str(tmp_path)})
        begun(run)
        until(mark.exists, what="a worker to freeze")
        since = time.monotonic()
        assert _is_locked(run)
        resting = Run.objects.filter(id=run.id).exclude(status__in=AT_WORK)
        until(resting.exists, seconds=SOON, what="the run to be taken over")
        print(
            f"a cluster's worker, frozen: at rest after {time.monotonic() - since:.1f} s"
        )
        saved = _contents(run)
        os.kill(int(mark.read_text()), signal.SIGCONT)
        time.sleep(1.0)
        assert _contents(run) == saved
