"""How many runs are due, and since when: the same as a claim would find."""

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
    made = []
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
        made.append((status, fingerprint, due_at))
    Run.objects.bulk_create(runs)
    return made


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
