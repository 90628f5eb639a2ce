"""What retention reads of the runs of one graph costs no more because of the runs of
others: the dry run of a policy, and each slice of a removal.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals import reviews
from checkpoints.models import PendingWrite, RetentionPolicy, Run
from checkpoints.retention import dry_runs, prune_job
from checkpoints.retention.prune_job import LOOKED_AT, Pruned
from checkpoints.retention.rule import rule_of
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData, reference_graph
from orchestrator.management.run_copies import RunCopies, Template
from tests.support.read_costs import cost_of
from tests.support.read_growth import grown_reads

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(3600),
]
FEW = int(os.environ.get("COUNTERSIGN_SIZE", "400"))
MANY = 10 * FEW
SMALL = "small"
"""A graph with some runs of its own, whatever is added beside them."""
RUNS = 300
POLICIES: dict[str, dict[str, Any]] = {
    "number": {"keep_last": 1},
    "age": {"max_age_days": {"paused": 0, "failed": 0, "completed": 0}},
    "whole runs": {"remove_runs_after_days": {"completed": 0, "failed": 0}},
}


@pytest.fixture
def data() -> ReferenceData:
    """The reference data of few runs, beside those of the small graph: half of them
    wait, half have ended.
    """
    data = ReferenceData()
    registry.replace(reference_graph(SMALL))
    reviewer = User.objects.get(username=reference_data.REVIEWER)
    reviewer.groups.add(Group.objects.create(name=SMALL))
    waiting = runs.advance(runs.start(SMALL, {}).id)
    ended = runs.advance(runs.start(SMALL, {}).id)
    _approve(ended, reviewer)
    ended = runs.advance(ended.id)

    templates = [Template(waiting), Template(ended)]
    copies = RunCopies()
    for number in range(RUNS):
        age = timedelta(days=1, minutes=number // 2)
        copies.add(templates[number % 2], age, key=f"{SMALL}-{number}")
    copies.insert()
    list(data.grow(FEW))
    return data


def _approve(run: Run, reviewer: User) -> None:
    items = []
    for write in PendingWrite.objects.filter(run=run):
        item = {"write": str(write.write), "hash": write.hash, "verdict": "approve"}
        items.append(item)
    reviews.sign(run.id, items, by=reviewer)


def test_retention_of_a_graph_costs_no_more_beside_ten_times_as_many_runs(
    data: ReferenceData,
) -> None:
    reads: dict[str, Callable[[], Any]] = {}
    for name, fields in POLICIES.items():
        policy = RetentionPolicy(graph=SMALL, **fields)
        rule = rule_of(policy)
        looked_at = prune_job._next_runs(rule, Pruned())
        assert len(looked_at) == RUNS + 2
        reads[f"dry run, {name}"] = partial(dry_runs.dry_run, policy)
        reads[f"runs to prune, {name}"] = partial(
            prune_job._runs_to_prune, rule, looked_at
        )
        reads[f"next runs, {name}"] = partial(prune_job._next_runs, rule, Pruned())

    assert grown_reads(data, reads, many=MANY) == {}


def test_a_slice_of_a_removal_reads_the_runs_that_it_looks_at(
    data: ReferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = rule_of(RetentionPolicy(graph=SMALL, keep_last=1))
    assert RUNS < LOOKED_AT
    # PostgreSQL reads a small table whole.
    list(data.grow(MANY))
    monkeypatch.setattr(prune_job, "LOOKED_AT", 40)
    progress = Pruned()
    looked_at = []

    while slice_ := prune_job._next_runs(rule, progress):
        cost = cost_of(partial(prune_job._next_runs, rule, progress))
        assert cost.steps <= 40 * 60
        assert cost.rows <= 40 + 4
        looked_at += slice_
        progress.pass_run(slice_[-1])

    graph = Run.objects.filter(graph=SMALL)
    assert [run for run, _ in looked_at] == [
        run.id for run in graph.order_by("created_at", "id")
    ]
