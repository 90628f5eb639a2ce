"""What retention reads of the runs of one graph costs no more because of the runs of
others: the dry run of a policy, and each slice of a removal.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from approvals import reviews
from checkpoints.models import Checkpoint, PendingWrite, RetentionPolicy, Run
from checkpoints.models.checkpoint import Source
from checkpoints.retention import dry_runs, prune_job, stretches
from checkpoints.retention.prune_job import LOOKED_AT, Pruned
from checkpoints.retention.rule import rule_of
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData, reference_graph
from orchestrator.management.run_copies import RunCopies, Template
from tests.support.read_costs import cost_of
from tests.support.read_growth import MOST_GROWTH, SLACK, grown_reads
from tests.support.rows import a_checkpoint, a_run, many_checkpoints

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


def _grown_with_forks(
    grow: Callable[[int], Iterator[int]], count: int
) -> Iterator[int]:
    """Add reference data of which each run begins as a fork of another."""
    yield from grow(count)
    others = Checkpoint.objects.exclude(graph=SMALL)
    points = list(others.filter(seq=1).order_by("id").values_list("id", flat=True))
    forks = list(others.filter(seq=0).order_by("id"))
    for fork, point in zip(forks, reversed(points), strict=False):
        fork.source = Source.FORK
        fork.parent = point
    Checkpoint.objects.bulk_update(forks, ["source", "parent"], batch_size=500)


def test_what_goes_of_a_locked_run_is_read_without_the_runs_of_others(
    data: ReferenceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_forks = partial(_grown_with_forks, data.grow)
    monkeypatch.setattr(data, "grow", with_forks)
    list(data.grow(FEW))
    reads: dict[str, Callable[[], Any]] = {}
    for name, fields in POLICIES.items():
        rule = rule_of(RetentionPolicy(graph=SMALL, **fields))
        for status in ("paused", "completed"):
            run = Run.objects.filter(graph=SMALL, status=status)[0]
            act = partial(stretches._going, rule, run, archived=None)
            reads[f"what goes of a run that is {status}, {name}"] = act
    assert grown_reads(data, reads, many=MANY) == {}


OLD_ROWS = 10
FEW_KEPT = 200
MANY_KEPT = 2_000
MOST_OF_KEPT_ROW = {"rows": 1, "buffers": 2, "steps": 8}
"""No index has the ages of a run's checkpoints, so each row that stays is looked at."""


def _run_that_keeps(kept: int) -> Run:
    """A run of some old checkpoints and of so many new ones."""
    run = a_run(graph="long", status="completed")
    a_checkpoint(run, 0)
    many_checkpoints(run, OLD_ROWS + kept - 1, lambda seq: {}, ["step"])
    new = Checkpoint.objects.filter(run=run, seq__gte=OLD_ROWS)
    new.update(created_at=timezone.now())
    run.refresh_from_db()
    return run


def _costs_beside_kept(**policy: Any) -> list[dict[str, int]]:
    """Return what is read of a run that keeps few checkpoints, and of one that keeps
    many. `keep_last` is as many as it keeps.
    """
    costs: list[dict[str, int]] = []
    for kept in (FEW_KEPT, MANY_KEPT):
        run = _run_that_keeps(kept)
        if "keep_last" in policy:
            policy["keep_last"] = kept
        rule = rule_of(RetentionPolicy(graph="long", **policy))
        act = partial(stretches._going, rule, run, archived=None)
        assert len(act()) == OLD_ROWS
        costs.append(cost_of(act).reads)
    print(policy, costs)
    return costs


def test_what_goes_of_a_locked_run_by_its_number_is_read_without_what_stays() -> None:
    few, many = _costs_beside_kept(keep_last=0)
    for figure, read in many.items():
        assert read <= few[figure] * MOST_GROWTH + SLACK[figure], figure


def test_only_the_age_of_a_locked_run_is_read_for_what_it_keeps() -> None:
    few, many = _costs_beside_kept(max_age_days={"completed": 1})
    for figure, read in many.items():
        most = MOST_OF_KEPT_ROW[figure] * (MANY_KEPT - FEW_KEPT)
        assert read <= few[figure] + most + SLACK[figure], figure
