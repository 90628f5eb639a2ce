"""A deployment, worker by worker: two real ones with old and new code, side by side,
then the new one alone.
"""

import signal
from typing import Any

import pytest
from django.db import connections

from checkpoints.core.status import Status
from checkpoints.models import Run, RunEvent
from checkpoints.verification import verify_run
from orchestrator import discovery, runs
from tests.graphs_app.graphs import rolled_out
from tests.support import cast, run_actions
from tests.support.clusters import Cluster, ended, send, status
from tests.support.processes import until
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


def begun(version: str, number: int) -> list[Run]:
    """Runs that begin with this version."""
    deployed(rolled_out(version))
    return [runs.start("rolled_out", {}) for _ in range(number)]


def asked(*waiting: Run) -> list[Run]:
    """Wait until workers have brought these runs to their gate, and return them."""
    until(
        lambda: {status(run) for run in waiting} == {Status.PAUSED},
        seconds=20,
        what="runs to ask people",
    )
    return [runs.get(run.id) for run in waiting]


def signed(people: cast.People, *asked_now: Run) -> None:
    """People sign in one process what workers apply in others; then wait for the ends."""
    for run in asked_now:
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    ended(*asked_now)


def outcomes(*ended_runs: Run) -> list[tuple[str, str, list[str], int]]:
    """Return for each run what was proposed, the version that it ended on, with whose
    code, and how often its version changed.
    """
    return [_outcome(runs.get(run.id)) for run in ended_runs]


def _outcome(run: Run) -> Any:
    state = run_actions.state(run)
    changed = RunEvent.objects.filter(run=run.id, type="version_changed")
    assert verify_run(run.id) == []
    return state["letter"], run.version, state["notes"], changed.count()


def test_old_and_new_code_each_do_their_own_runs_and_the_new_code_takes_the_rest_once_it_is_alone(
    tmp_path: Any, people: cast.People
) -> None:
    deployed(rolled_out("1"))
    discovery.note_versions()  # it was there first
    workers = [
        Cluster(
            "worker",
            log=tmp_path / version,
            COUNTERSIGN_TEST_VERSION=version,
            COUNTERSIGN_WORKERS="1",
        )
        for version in ("1", "2")
    ]
    old = workers[0]
    try:
        for worker in workers:
            worker.ready()
        olds = asked(*begun("1", 4))
        news = asked(*begun("2", 2))
        signed(people, *olds[:2], *news)
        assert outcomes(*olds[:2]) == [("proposed by 1", "1", ["sent by 1"], 0)] * 2
        assert outcomes(*news) == [("proposed by 2", "2", ["sent by 2"], 0)] * 2
        send(old.main.pid, signal.SIGTERM)
        until(lambda: not old.alive(), seconds=20, what="the old worker to end")
        signed(people, *olds[2:])
        assert outcomes(*olds[2:]) == [("proposed by 1", "2", ["sent by 2"], 1)] * 2
    finally:
        for worker in workers:
            worker.kill_all()
        connections.close_all()
