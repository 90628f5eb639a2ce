"""A removal is aborted at every statement and every commit, and goes on: what goes,
what stays and what the audit log says are what they are uncrashed.
"""

import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from checkpoints import bundle, retention, timeline
from checkpoints.models import AuditLine, Checkpoint, Job, Run, RunEvent
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.crash.abort import Points
from tests.crash.scenarios import LONG_AGO
from tests.support.histories import faults, loaded, policy, seqs
from tests.support.large_states import large
from tests.support.small_graphs import advanced

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
STEP = int(os.environ.get("COUNTERSIGN_SWEEP_STEP", "39"))
"""Every n-th moment is tried; 1 tries all of them (`make sweep`)."""
_number = itertools.count()


def history() -> tuple[str, list[Run]]:
    """Runs of a graph of its own: one with a fork and a pin, of which two stretches go;
    one that ended long ago.
    """
    graph = large(f"crashed_{next(_number)}", "abcde", snapshot=1000)
    first = advanced(graph)
    last = advanced(graph)
    fork = runs.advance(runs.fork(Checkpoint.objects.get(run=first, seq=2).id).id)
    retention.pin(Checkpoint.objects.get(run=fork, seq=1).id, by=None)
    return graph.name, [first, last, fork]


def removed(graph: str, trouble: Points, *, archive: bool = False) -> dict[str, Any]:
    """The removal of what a policy does not keep, by one worker after the other."""
    rule = policy(
        graph, keep_last=1, remove_runs_after_days={"completed": 0}, archive=archive
    )
    job = retention.prune(rule, by=None)
    while Job.objects.get(id=job.id).status in ("queued", "running"):
        with trouble.life():
            kinds.advance(job.id)
        Job.objects.filter(id=job.id, status="running").update(lease_until=LONG_AGO)
        Job.objects.filter(id=job.id, status="queued").update(due_at=LONG_AGO)
    job.refresh_from_db()
    assert job.status == "done"
    assert job.error == ""
    place: dict[str, Any] = job.progress["place"]
    return place


def prunings(graph: str) -> list[Any]:
    lines = AuditLine.objects.filter(kind="history_pruned", graph=graph)
    return [
        [line.facts[name] for name in ("checkpoints", "runs", "skipped")]
        for line in lines
    ]


def test_a_removal_that_is_aborted_anywhere_comes_to_the_same_end() -> None:
    points = Points()
    graph, _ = history()
    wanted = removed(graph, points)
    assert wanted["rows"] == 12
    assert wanted["runs"] == 1
    assert prunings(graph) == [[12, 1, 0]]
    tried = 0
    for at in itertools.count(STEP // 2, STEP):
        crash = Points(at)
        graph, (first, last, fork) = history()
        before = loaded(first, last, fork)
        place = removed(graph, crash)
        if not crash.fired:
            break
        tried += 1
        assert seqs(first) == [2, 5]
        assert seqs(fork) == [1, fork.head_seq]
        assert Run.objects.filter(id=last.id).exists() is False
        now = loaded(first, last, fork)
        assert {one: before[one] for one in now} == now, crash.fired
        assert place["rows"] == wanted["rows"], crash.fired
        assert prunings(graph) == [[12, 1, 0]], crash.fired
        assert faults(first, fork) == [], crash.fired
    print(f"removal: {points.seen} moments, {tried} tried")
    assert tried * STEP > 0.7 * points.seen > 20


def bundles_named(graph: str) -> set[str]:
    """Return what the log of each run, and the audit log of one that is gone, name of
    the archive.
    """
    lines = RunEvent.objects.filter(run__graph=graph, type="history_removed")
    gone = AuditLine.objects.filter(kind="run_removed", graph=graph)
    return {timeline.payload_of(line)["bundle"] for line in lines} | {
        line.facts["bundle"] for line in gone
    }


def test_a_removal_that_is_aborted_around_its_archive_leaves_a_sound_bundle_of_all_that_went(
    tmp_path: Path, configure: Any
) -> None:
    configure(ARCHIVE_FOLDER=str(tmp_path), BUNDLE_KEY="07" * 32)
    points = Points()
    graph, _ = history()
    removed(graph, points, archive=True)
    # On a busy machine a run goes in two slices, with a bundle for each.
    assert len({name[:36] for name in bundles_named(graph)}) == 3
    tried = 0
    step = max(1, STEP * points.seen // 400)
    for at in itertools.count(step // 2, step):
        crash = Points(at)
        graph, (first, last, fork) = history()
        removed(graph, crash, archive=True)
        if not crash.fired:
            break
        tried += 1
        assert seqs(first) == [2, 5]
        assert seqs(fork) == [1, fork.head_seq]
        assert Run.objects.filter(id=last.id).exists() is False
        named = bundles_named(graph)
        assert {name[:36] for name in named} == {
            str(run.id) for run in (first, last, fork)
        }, crash.fired
        for name in named:
            assert bundle.verify(tmp_path / name, bundle.public_key()).ok, crash.fired
        assert faults(first, fork) == [], crash.fired
    print(f"removal with an archive: {points.seen} moments, {tried} tried")
    assert tried * step > 0.7 * points.seen > 20
