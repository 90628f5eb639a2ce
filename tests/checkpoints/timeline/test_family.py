"""Where a run comes from and what came of it, in few queries, without what one may not
see.
"""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from checkpoints.timeline import Lineage
from orchestrator.engine.errors import UnknownThing
from tests.support import forks
from tests.support.forging import tamper
from tests.support.rows import a_checkpoint, a_run, missing

pytestmark = pytest.mark.django_db


def origin(steps: int = 4) -> Run:
    run = a_run()
    for seq in range(steps):
        a_checkpoint(run, seq)
    return run


def left_from(above: Run, seq: int, *, travel: str = "fork") -> Run:
    """A run whose first checkpoint is a copy of another's."""
    departed = Checkpoint.objects.get(run=above, seq=seq)
    run = a_run(origin_checkpoint=departed.id)
    a_checkpoint(run, 0, source=travel, parent=departed.id)
    forks.began(run, 1, departed, travel=travel)
    return run


def walked(lineage: Lineage) -> list[Any]:
    return [
        (depth, control.run.key, control.how, control.seq)
        for depth, control in lineage.walk()
    ]


def test_the_tree_is_the_same_from_wherever_it_is_asked_for() -> None:
    first = origin()
    fork = left_from(first, 2)
    replay = left_from(first, 1, travel="replay")
    inner = left_from(fork, 0)
    child = a_run(parent_run=fork.id, parent_task="call:1:0")
    wanted = [
        (0, first.key, "", None),
        (1, fork.key, "fork", 2),
        (2, inner.key, "fork", 0),
        (2, child.key, "child", None),
        (1, replay.key, "replay", 1),
    ]
    for run in (first, fork, replay, inner, child):
        tree = timeline.lineage(run.id)
        assert walked(tree) == wanted
        assert not tree.cut
        assert tree.path[-1] == run.id
    assert timeline.lineage(inner.id).path == (first.id, fork.id, inner.id)
    assert [
        control.task
        for _, control in timeline.lineage(child.id).walk()
        if control.how == "child"
    ] == ["call:1:0"]


def test_a_run_that_stands_alone_is_a_tree_of_one() -> None:
    run = origin()
    tree = timeline.lineage(str(run.id))
    assert walked(tree) == [(0, run.key, "", None)]
    assert tree.path == (run.id,)
    assert tree.cut is False


def test_a_rewind_is_no_relative() -> None:
    run = origin()
    forks.began(run, 2, Checkpoint.objects.get(run=run, seq=1))
    assert len(walked(timeline.lineage(run.id))) == 1


def test_what_one_may_not_see_is_left_out_with_what_hangs_on_it() -> None:
    first = origin()
    hidden = left_from(first, 1)
    seen = left_from(first, 2)
    inner = left_from(hidden, 0)
    mine = Run.objects.exclude(id=hidden.id)
    assert walked(timeline.lineage(first.id, among=mine)) == [
        (0, first.key, "", None),
        (1, seen.key, "fork", 2),
    ]
    assert walked(timeline.lineage(inner.id, among=mine)) == [(0, inner.key, "", None)]
    for nothing in (hidden.id, missing(), "x"):
        with pytest.raises(UnknownThing):
            timeline.lineage(nothing, among=mine)


def test_many_runs_cost_no_further_query_and_a_large_tree_is_cut_but_for_the_way_to_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = []
    first = origin()
    for many in (2, 20):
        for _ in range(many):
            left_from(first, 1)
        with CaptureQueriesContext(connection) as queries:
            timeline.lineage(first.id)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 6
    last = left_from(left_from(first, 2), 0)
    monkeypatch.setattr("checkpoints.timeline.family.MOST", 10)
    tree = timeline.lineage(last.id)
    assert tree.cut
    assert len(walked(tree)) <= 10
    assert last.id in {control.run.id for _, control in tree.walk()}


def test_a_line_that_was_altered_is_shown_with_its_fault() -> None:
    first = origin()
    fork = left_from(first, 1)
    tamper(fork.lines.get(), departure_seq=3)
    faults = [control.fault for _, control in timeline.lineage(first.id).walk()]
    assert faults[0] is None
    assert faults[1] is not None
    assert faults[1].tampered
