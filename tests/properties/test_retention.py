"""Random histories (runs, forks of forks, older lines, holds, pins) under random
policies: whatever is removed, what stays loads byte for byte as before, and verifies;
decisions stay.
"""

import os
import random
from typing import Any

import pytest

from approvals.models import ApprovalRequest, Decision
from checkpoints import retention
from checkpoints.ledger import reader
from checkpoints.models import (
    Checkpoint,
    LegalHold,
    Pin,
    RetentionPolicy,
    Run,
    RunLine,
)
from checkpoints.retention import dry_runs
from checkpoints.retention.dry_runs import DryRun
from orchestrator import runs
from orchestrator.engine.values import canonical
from tests.support import cast, run_actions
from tests.support.histories import faults, policy, pruned
from tests.support.large_states import large
from tests.support.paid_claims import claim
from tests.support.small_graphs import registered

pytestmark = pytest.mark.django_db(transaction=True)
HISTORIES = max(3, int(os.environ.get("COUNTERSIGN_EXAMPLES", "9")) // 3)
ACTS = 6


def documents() -> dict[Any, bytes]:
    """The canonical bytes of the document at each checkpoint that is there."""
    ids = list(Checkpoint.objects.filter(kept=True).values_list("id", flat=True))
    return {id: canonical.encode(reader.document_at(id)) for id in ids}


def act(chance: random.Random, graph: str, people: cast.People) -> None:
    """One of the things that people and workers do."""
    rita = run_actions.reviewer(people.reviewer)
    runs_made = list(Run.objects.filter(graph=graph).order_by("id"))
    run = (
        chance.choice(runs_made)
        if runs_made
        else runs.advance(runs.start(graph, {}).id)
    )
    point = chance.choice(list(Checkpoint.objects.filter(run=run.id, kept=True)))
    what = chance.choice(
        ["start", "fork", "fork", "rewind", "sign", "hold", "pin", "pin", "prune"]
    )
    if what == "start":
        runs.advance(runs.start(graph, {}).id)
    elif what in ("fork", "rewind"):
        again = [str(node) for node in runs.plan(point.id, what).needs_yes]
        how: dict[str, Any] = {"allow_effects": again, "by": people.starter}
        went = (
            runs.fork(point.id, **how)
            if what == "fork"
            else runs.rewind(run.id, point.id, **how)
        )
        runs.advance(went.id)
    elif what == "sign" and run.status == "paused":
        run_actions.sign_open(run, rita, chance.choice(["approve", "reject"]))
        runs.advance(run.id)
    elif what == "hold":
        retention.hold(run.id, "stays", by=people.steward)
    elif what == "pin":
        retention.pin(point.id, by=people.steward)
    elif what == "prune":
        pruned(policy(graph, keep_last=chance.randrange(4)))


def must_stay() -> set[Any]:
    """Points that no policy removes."""
    held = LegalHold.objects.values("run")
    points = set(
        Run.objects.filter(requests__isnull=False).values_list("head", flat=True)
    )
    points |= set(Pin.objects.values_list("checkpoint", flat=True))
    undecided = ApprovalRequest.objects.filter(status__in=["open", "settled"])
    points |= set(undecided.values_list("prepared_from", flat=True))
    return points | set(
        Checkpoint.objects.filter(run__in=held).values_list("id", flat=True)
    )


def left_from() -> set[Any]:
    """Points from which a line of a run that is there left. A run that is removed as a
    whole takes its lines along.
    """
    return set(RunLine.objects.values_list("departure", flat=True))


def _counted_either_way(
    rule: RetentionPolicy, monkeypatch: pytest.MonkeyPatch
) -> DryRun:
    """Return the dry run of a policy, which is the same for a graph with few runs and
    for one with many.
    """
    counted = retention.dry_run(rule)
    with monkeypatch.context() as patch:
        patch.setattr(dry_runs, "FEW_RUNS", -1)
        as_of_many = retention.dry_run(rule, now=counted.now)
    assert as_of_many.counts == counted.counts
    assert as_of_many.bytes == counted.bytes
    assert as_of_many.reasons == counted.reasons
    # Of more examples than are shown any may be.
    if counted.counts["checkpoints"] <= dry_runs.EXAMPLES:
        assert _checkpoints(as_of_many) == _checkpoints(counted)
    return counted


def _checkpoints(counted: DryRun) -> set[str]:
    return {example["checkpoint"] for example in counted.examples}


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_whatever_is_removed_what_stays_loads_as_before_and_verifies(
    seed: int, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(
        seed if os.environ.get("COUNTERSIGN_SEED") != "random" else None
    )
    graph = f"history_{seed}"
    registered(
        claim(graph)
        if chance.random() < 0.7
        else large(graph, "abcdef", snapshot=chance.choice([3, 1000]))
    )
    for _ in range(ACTS):
        act(chance, graph, people)
    before = documents()
    decided = list(Decision.objects.order_by("id").values())
    stay = must_stay() & set(before)
    rule = policy(
        graph,
        keep_last=chance.choice([None, 0, 1, 2, 3]),
        max_age_days=chance.choice(
            [{}, {"completed": 0}, {"paused": 0, "completed": 0}]
        ),
        remove_runs_after_days=chance.choice([{}, {}, {"completed": 0, "rejected": 0}]),
    )
    counted = _counted_either_way(rule, monkeypatch)
    job = pruned(rule, by=people.steward)
    after = documents()
    assert {one: before[one] for one in after} == after
    assert stay | left_from() & set(before) <= set(after)
    assert (
        job.progress.get("done", 0)
        == counted.counts["checkpoints"]
        == len(before) - len(after)
    )
    assert list(Decision.objects.order_by("id").values()) == decided
    assert faults() == []
    for run in Run.objects.filter(status="paused"):
        run_actions.sign_open(run, people.reviewer, "approve")
        runs.advance(run.id)
    assert faults() == []
