"""A removal that meets a fork, a rewind, a resume or a worker: whoever comes first is
served, nobody loses a row that somebody goes on from, and everything verifies. Each
trial has a graph of its own, so that it removes of one run only.
"""

import random
from typing import Any

import pytest

from checkpoints import retention
from checkpoints.models import Checkpoint, Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import CountersignError, UnknownThing
from orchestrator.jobs import kinds
from tests.races.meeting import TRIALS, meet, whole, work
from tests.support import cast, run_actions
from tests.support.histories import policy
from tests.support.large_states import large
from tests.support.paid_claims import claim
from tests.support.small_graphs import advanced, started

pytestmark = pytest.mark.django_db(transaction=True)
NODES = "abcdef"
EACH = TRIALS if TRIALS >= 100 else max(3, TRIALS // 4)
"""Trials of each race here, for each runs a graph and a job: few in short, all of them
in `make sweep`.
"""


def removal(graph: str, keep: int) -> Any:
    """The act of removing all but the newest checkpoints of a graph."""
    job = retention.prune(policy(graph, keep_last=keep), by=None)
    return lambda: kinds.advance(job.id)


def removed(met: list[Any]) -> None:
    assert met[0].status == "done"
    assert met[0].progress["place"]["skipped"] == 0
    assert met[0].error == ""


def test_a_fork_that_meets_a_removal_is_made_whole_or_is_told_that_its_point_is_gone() -> (
    None
):
    chance = random.Random(7)
    forked = set()
    for n in range(EACH):
        graph = large(f"forked_while_pruned_{n}", NODES, snapshot=1000)
        run = advanced(graph)
        point = Checkpoint.objects.get(run=run, seq=3)
        # The slower the machine, the later a fork must come to meet what is gone
        # already.
        apart = 0.03 * 2 ** (n % 5)
        met = meet(
            chance,
            removal(graph.name, 1),
            lambda at=point: runs.fork(at.id),
            apart=apart,
        )
        removed(met)
        assert isinstance(met[1], Run | UnknownThing), met
        forked.add(isinstance(met[1], Run))
        assert Checkpoint.objects.filter(id=point.id).exists() == isinstance(
            met[1], Run
        )
        if isinstance(met[1], Run):
            assert runs.advance(met[1].id).status == "completed"
            assert verify_run(met[1].id) == []
        whole(run)
    assert TRIALS < 100 or forked == {True, False}


def test_a_rewind_that_meets_a_removal_begins_at_a_point_that_stays_or_not_at_all(
    people: cast.People,
) -> None:
    chance = random.Random(7)
    rita = run_actions.reviewer(people.reviewer)
    for n in range(EACH):
        graph = claim(f"rewound_while_pruned_{n}")
        run = advanced(graph)
        met = meet(
            chance,
            removal(graph.name, 1),
            lambda run=run: runs.rewind(run.id, f"{run.key}:at-0", by=people.starter),
            apart=0.03,
        )
        removed(met)
        assert isinstance(met[1], Run | UnknownThing), met
        run = runs.advance(run.id)
        assert run.status == "paused"
        assert run.line == (2 if isinstance(met[1], Run) else 1)
        run_actions.sign_open(run, rita, "approve")
        assert runs.advance(run.id).status == "completed"
        whole(run)


def test_a_worker_that_meets_a_removal_loses_no_superstep(configure: Any) -> None:
    chance = random.Random(7)
    configure(SLICE_SECONDS=1e-9)
    for n in range(EACH):
        graph = large(f"worked_while_pruned_{n}", NODES, snapshot=1000)
        run = started(graph)
        for _ in range(3):
            work(run)
        met = meet(
            chance,
            removal(graph.name, 1),
            lambda run=run: work(run),
            lambda run=run: work(run),
            apart=0.02,
        )
        removed(met)
        run = runs.advance(run.id)
        assert run.status == "completed"
        assert run.superstep == len(NODES)
        assert run_actions.state(run)["notes"] == list(NODES[1:])
        whole(run)


def test_a_resume_that_meets_a_removal_goes_on_from_what_stays() -> None:
    chance = random.Random(7)
    for n in range(EACH):
        graph = large(f"resumed_while_pruned_{n}", NODES, snapshot=1000)
        run = advanced(graph)
        fork = runs.fork(Checkpoint.objects.get(run=run, seq=2).id, start=False)
        met = meet(
            chance,
            removal(graph.name, 1),
            lambda resumed=fork: runs.resume(resumed.id),
            apart=0.02,
        )
        removed(met)
        assert not isinstance(met[1], CountersignError)
        assert runs.advance(fork.id).status == "completed"
        for each_run in (run, fork):
            whole(each_run)
