"""How many runs are due, and since when: the same as a claim would find."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.db import counts
from checkpoints.db.rows import new_row
from checkpoints.models import Run
from checkpoints.queue import due_counts
from checkpoints.queue.due_counts import DueQueue
from tests.support.read_costs import cost_of
from tests.support.read_growth import forget_statistics

pytestmark = pytest.mark.django_db(transaction=True)
AGES = st.none() | st.integers(-3, 3)
"""Hours since a run is due: none, later, or so long ago."""
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["queued", "waiting", "running", "paused"]),
        st.sampled_from(["f", "g", ""]),
        st.integers(-1, 1),
        AGES,
    ),
    max_size=30,
)


def _insert(rows: list[Any]) -> list[tuple[str, str, datetime | None]]:
    """Insert runs of these columns. Returns status, fingerprint and due time of each."""
    now = timezone.now() - timedelta(minutes=1)
    Run.objects.all().delete()
    runs = []
    collected = []
    for number, (status, fingerprint, priority, age) in enumerate(rows):
        due_at = None if age is None else now - timedelta(hours=age)
        run = new_row(
            Run,
            key=f"run {number}",
            graph="graph",
            version="1",
            fingerprint=fingerprint,
            status=status,
            priority=priority,
            due_at=due_at,
            created_at=now,
        )
        runs.append(run)
        collected.append((status, fingerprint, due_at))
    Run.objects.bulk_create(runs)
    return collected


@given(rows=ROWS)
def test_the_numbers_are_those_of_all_rows(rows: list[Any]) -> None:
    made = _insert(rows)
    now = timezone.now()
    queued = []
    moments = {"queued": [], "waiting": []}
    for status, fingerprint, due_at in made:
        is_due = due_at is None or due_at <= now
        if status == "queued" and is_due:
            queued.append(fingerprint)
        if status in moments and due_at is not None and is_due:
            moments[status].append(due_at)

    assert due_counts.count_queued() == len(queued)
    assert due_counts.oldest_queued() == min(moments["queued"], default=None)
    either = moments["queued"] + moments["waiting"]
    assert due_counts.oldest_due() == min(either, default=None)

    versions = {}
    for version in due_counts.queued_versions(without=["g"], most=50):
        versions[version.fingerprint] = version.runs
    expected = {}
    for fingerprint in set(queued) - {"g"}:
        expected[fingerprint] = queued.count(fingerprint)
    assert versions == expected


def test_a_queue_is_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST_COUNTED", 5)
    _insert([("queued", "f", 0, 1)] * 9 + [("queued", "g", 0, None)] * 9)
    assert due_counts.count_queued() == 6
    every = due_counts.queued_versions(without=[], most=50)
    assert [version.runs for version in every] == [6, 6]
    assert counts.in_words(due_counts.count_queued()) == "5+"


def test_so_many_versions_are_listed_as_are_asked_for() -> None:
    _insert([("queued", "f", 0, 1), ("queued", "g", 0, 1)])
    assert len(due_counts.queued_versions(without=[], most=1)) == 1


def _insert_graphs(ages: dict[str, list[int]], status: str = "queued") -> None:
    """Insert runs of these graphs that are due for so many hours."""
    now = timezone.now() - timedelta(minutes=1)
    runs = []
    for graph, hours in ages.items():
        for number, age in enumerate(hours):
            run = new_row(
                Run,
                key=f"{graph} {number}",
                graph=graph,
                version="1",
                fingerprint="f",
                status=status,
                due_at=now - timedelta(hours=age),
                created_at=now,
            )
            runs.append(run)
    Run.objects.bulk_create(runs, batch_size=500)


def _queue(*, most: int = 50, most_kinds: int = 50, most_of_kind: int = 50) -> DueQueue:
    return due_counts.due_by_graph(
        most=most, most_kinds=most_kinds, most_of_kind=most_of_kind
    )


def test_graphs_are_listed_by_the_age_of_their_oldest_run_and_without_far_off_ones() -> (
    None
):
    _insert_graphs({"a": [-5], "b": [1], "c": [3, -1], "d": [2, 0]})
    queue = _queue(most=2)
    assert [due.graph for due in queue.graphs] == ["c", "d"]
    assert [due.runs for due in queue.graphs] == [1, 2]
    assert queue.is_cut is True
    assert _queue(most=3).is_cut is False


def test_a_queue_without_a_due_run_has_no_graph() -> None:
    assert _queue() == DueQueue([], is_cut=False)
    _insert_graphs({"a": [-5]})
    assert _queue() == DueQueue([], is_cut=False)


def test_a_queue_is_read_up_to_so_many_kinds_and_runs_of_each() -> None:
    _insert_graphs({f"graph {number:03}": [1] * 8 for number in range(5)})
    queue = _queue(most_kinds=4, most_of_kind=2)
    assert {due.runs for due in queue.graphs} == {3}
    assert queue.is_cut is True
    assert _queue(most_kinds=5).is_cut is False


def test_kinds_beyond_the_limit_are_not_walked() -> None:
    # PostgreSQL would rather read a small table whole than look up a few of its rows.
    _insert_graphs({"ended": [1] * 4_000}, status="completed")
    _insert_graphs({f"graph {number:03}": [1] for number in range(100)})
    forget_statistics()
    before = cost_of(lambda: _queue(most_kinds=20)).reads
    _insert_graphs({f"later {number:03}": [1] for number in range(1_000)})
    forget_statistics()
    after = cost_of(lambda: _queue(most_kinds=20)).reads
    for figure, value in after.items():
        # A deeper index and other pages; a walk of all kinds would be ten times as much.
        assert value <= before[figure] * 3 + 30, figure


@pytest.mark.parametrize("oldest", [due_counts.oldest_due, due_counts.oldest_queued])
def test_the_age_of_the_queue_is_read_without_a_walk_of_its_kinds(
    oldest: Callable[[], Any],
) -> None:
    _insert_graphs({"ended": [1] * 4_000}, status="completed")
    _insert_graphs({f"graph {number:04}": [1, -1] for number in range(1_000)})
    _insert_graphs({"waits": [2] * 1_000}, status="waiting")
    forget_statistics()
    for figure, value in cost_of(oldest).reads.items():
        assert value <= 100, figure
