"""Where a path was set and by whom: the very path, not merely its channel; through
lines and origins.
"""

from typing import Any

import pytest

from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import Interval
from orchestrator.engine.errors import InvalidValue, UnknownThing
from tests.support import forks, naive_history
from tests.support.cast import People
from tests.support.long_runs import finished, head_of, long_graph

pytestmark = pytest.mark.django_db(transaction=True)


POLICIES: list[Any] = ["every_node", "none", Interval(3)]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("snapshot", ["bytes", 1, 4])
def test_blame_and_history_are_what_comparing_every_two_neighbours_gives(
    snapshot: Any, policy: Any
) -> None:
    run = finished(long_graph(snapshot=snapshot, checkpoints=policy))
    states = naive_history.states_of(run)
    for path, seqs in naive_history.changed_at(states).items():
        history = timeline.history(run.id, path)
        assert [step.checkpoint.seq for step in history] == seqs, path
        assert timeline.blame(head_of(run).id, path).checkpoint.seq == seqs[-1], path
    middle = naive_history.rows_of(run)[len(states) // 2]
    for path, seqs in naive_history.changed_at(
        [state for state in states if state[0] <= middle.seq]
    ).items():
        assert timeline.blame(middle.id, path).checkpoint.seq == seqs[-1], path


def test_a_nested_path_is_blamed_on_what_changed_it_and_not_on_what_set_its_channel_again() -> (
    None
):
    run = finished(long_graph())
    blamed = timeline.blame(head_of(run).id, "case.by")
    assert blamed.checkpoint.seq == 1
    assert blamed.node == "count"
    assert blamed.person == ""
    assert timeline.blame(head_of(run).id, "case.lines[0].sum") == timeline.blame(
        head_of(run).id, "scratch.case.lines"
    )
    assert timeline.blame(head_of(run).id, "artifacts.letter").node == "write"
    assert (
        timeline.blame(head_of(run).id, "diagnostics.nodes.count.runs").checkpoint.seq
        == 23
    )


def test_what_was_removed_is_blamed_on_what_removed_it() -> None:
    run = finished(long_graph())
    [*_, last] = timeline.history(run.id, "case.lines[1]")
    assert last.kind == "removed"
    assert last.before == {"sum": 11}
    assert last.after is None
    assert (
        timeline.blame(head_of(run).id, "case.lines[1].sum").checkpoint.seq
        == last.checkpoint.seq
        == 23
    )


def test_a_default_is_blamed_on_the_first_checkpoint_and_on_nobody(
    people: People,
) -> None:
    run = finished(long_graph(1))
    blamed = timeline.blame(head_of(run).id, "letter")
    assert blamed.checkpoint.seq == 0
    assert blamed.node == ""
    assert blamed.person == ""


def test_the_input_is_blamed_on_who_started_the_run(people: People) -> None:
    graph = long_graph(1)
    run = runs.advance(
        runs.start(graph.name, {"claim_id": "CLM-9"}, by=people.starter).id
    )
    blamed = timeline.blame(head_of(run).id, "input.claim_id")
    assert blamed.checkpoint.seq == 0
    assert blamed.node == ""
    assert blamed.person == people.starter.username
    assert timeline.history(run.id, "input.claim_id") == []
    for nothing in (
        "input.nothing",
        "claim_id",
        "case.nothing",
        "nothing",
        "scratch.letter",
    ):
        with pytest.raises(UnknownThing):
            timeline.blame(head_of(run).id, nothing)
        assert timeline.history(run.id, nothing) == []


@pytest.mark.parametrize("path", ["", "scratch", "a b", "x[", None, 3])
def test_what_is_no_path_is_refused_by_name(path: Any) -> None:
    run = finished(long_graph(1))
    for ask in (
        lambda: timeline.blame(head_of(run).id, path),
        lambda: timeline.history(run.id, path),
    ):
        with pytest.raises(InvalidValue, match="path"):
            ask()


def test_neighbours_are_sought_among_runs_and_nothing_else() -> None:
    point = head_of(finished(long_graph()))
    with pytest.raises(InvalidValue, match="among is a query of runs"):
        timeline.neighbours(point, "n", among="x")  # type: ignore[arg-type]


def test_history_is_oldest_first_and_goes_back_in_windows() -> None:
    run = finished(long_graph())
    newest = timeline.history(run.id, "n", limit=5)
    assert [one.after for one in newest] == [8, 9, 10, 11, 12]
    older = timeline.history(run.id, "n", limit=5, before=newest[0].checkpoint.seq)
    assert [(one.before, one.after) for one in older] == [
        (n - 1, n) for n in range(3, 8)
    ]
    assert [one.node for one in older] == ["count"] * 5
    for limit in (0, 201, "x", True):
        with pytest.raises(InvalidValue):
            timeline.history(run.id, "n", limit=limit)  # type: ignore[arg-type]


def test_the_steps_of_a_path_are_exactly_the_checkpoints_in_which_it_differs_from_its_parent() -> (
    None
):
    run = finished(long_graph())
    changed = naive_history.changed_at(naive_history.states_of(run))
    for path in (
        "scratch.case.amount",
        "scratch.table.k1",
        "artifacts.letter",
        "scratch.notes[2]",
    ):
        for row in timeline.list_checkpoints(run.id):
            before = [seq for seq in changed[path] if seq < row.seq]
            after = [seq for seq in changed[path] if seq > row.seq]
            neighbours = timeline.neighbours(row, path)
            assert neighbours == (
                before[-1] if before else None,
                after[0] if after else None,
            ), (path, row.seq)


def test_a_fork_is_blamed_on_who_patched_it_and_else_on_what_set_it_in_its_origin(
    people: People,
) -> None:
    origin = finished(long_graph())
    fork = forks.forked(
        origin, 9, {"scratch": {"case": {"amount": 77}}}, by=people.starter
    )
    first = timeline.list_checkpoints(fork.id)[0]
    patched = timeline.blame(first.id, "case.amount")
    assert patched.checkpoint.run_id == fork.id
    assert patched.checkpoint.seq == 0
    assert patched.node == ""
    assert patched.person == people.starter.username
    inherited = timeline.blame(first.id, "case.by")
    assert inherited.checkpoint.run_id == origin.id
    assert inherited.checkpoint.seq == 1
    assert inherited.node == "count"
    assert timeline.blame(first.id, "input.claim_id").checkpoint.run_id == origin.id
    [change] = timeline.history(fork.id, "case.amount")
    assert change.kind == "changed"
    assert change.before == 1
    assert change.after == 77
    assert timeline.history(fork.id, "case.by") == []


def test_a_fork_of_a_fork_leads_back_through_both(people: People) -> None:
    origin = finished(long_graph())
    middle = runs.advance(
        forks.forked(origin, 9, {"scratch": {"n": 50}}, by=people.starter).id
    )
    last = forks.forked(middle, 0, by=people.reviewer)
    at = timeline.list_checkpoints(last.id)[0].id
    assert timeline.blame(at, "n").checkpoint.run_id == middle.id
    assert timeline.blame(at, "case.by").checkpoint.run_id == origin.id


def test_a_run_that_one_may_not_see_is_not_named(people: People) -> None:
    origin = finished(long_graph())
    fork = forks.forked(origin, 9, by=people.starter)
    at = timeline.list_checkpoints(fork.id)[0].id
    mine = Run.objects.exclude(id=origin.id)
    for path in ("case.by", "input.claim_id"):
        assert timeline.blame(at, path).checkpoint.run_id == origin.id
        assert timeline.blame(at, path, among=mine).checkpoint.run_id == fork.id
    assert [
        step.checkpoint.seq for step in timeline.history(fork.id, "case.by", among=mine)
    ] == [0]
