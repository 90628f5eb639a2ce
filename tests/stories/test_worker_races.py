"""Two clusters and one run: only one of them may save anything, whatever the other
believes.
"""

import signal
import time

import pytest

from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from tests.support.clusters import begun, cluster, ended, send, slow
from tests.support.processes import until
from tests.support.run_contents import everything

pytestmark = pytest.mark.django_db(transaction=True)
ENOUGH = 40


def test_a_cluster_frozen_past_its_lease_can_save_nothing_when_it_goes_on(tmp_path):
    with cluster(tmp_path) as frozen:
        begun(run := slow(1.5))
        for pid in frozen.alive():
            send(pid, signal.SIGSTOP)
        with cluster(tmp_path):
            ended(run)
        saved = everything(run)
        for pid in frozen.alive():
            send(pid, signal.SIGCONT)
        time.sleep(2.5)
        assert everything(run) == saved
        ended(slow())


def test_two_clusters_work_on_many_runs_and_none_is_worked_on_twice(tmp_path):
    with cluster(tmp_path), cluster(tmp_path):
        all_runs = [runs.start("loop_every", {}) for _ in range(ENOUGH)]
        ended(*all_runs, seconds=60)
    assert {_outcome(run) for run in all_runs} == {_outcome(all_runs[0])}
    assert _outcome(all_runs[0])[:2] == (6, 6)


def test_clusters_killed_as_a_whole_lose_no_run_and_double_none(tmp_path):
    all_runs = [runs.start("loop_every", {}) for _ in range(ENOUGH)]
    for life in range(3):
        with cluster(tmp_path) as started:
            ids = [run.id for run in all_runs]
            goal = ENOUGH * (life + 1) // 5
            until(
                lambda ids=ids, goal=goal: (
                    Run.objects.filter(id__in=ids, status="completed").count() >= goal
                )
            )
            send(started.main.pid, signal.SIGKILL)
            until(lambda: not started.alive())  # noqa: B023
    with cluster(tmp_path):
        ended(*all_runs, seconds=60)
    assert {_outcome(run)[:2] for run in all_runs} == {(6, 6)}


def _outcome(run):
    """Supersteps, the sum that six of them give, and how many lines the log has, which
    are numbered without gaps.
    """
    row = Run.objects.get(id=run.id)
    numbers = list(timeline.events(run.id).values_list("seq", flat=True))
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return row.superstep, timeline.state_at(row.head)["scratch"]["total"], len(numbers)
