"""The table of what there is to keep: runs, checkpoints and bytes by graph and age, as
they are counted one by one.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints.models import Checkpoint, Run
from checkpoints.retention.stock import AGES, stock
from orchestrator import runs
from tests.support.histories import long_run

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAYS = (0, 6.999, 7, 7.001, 29.999, 30, 30.001, 89.999, 90, 90.001, 400)
"""How old the checkpoints are, by turns: on both sides of each border, and on it."""


@pytest.fixture
def _history() -> None:
    """Two graphs; one has a fork, and a run with two lines."""
    first = long_run("large", "abcdef")
    long_run("small", "ab")
    runs.fork(f"{first.key}:at-2")
    runs.rewind(first.id, f"{first.key}:at-3", reason="again")
    for n, row in enumerate(Checkpoint.objects.order_by("id")):
        at = NOW - timedelta(days=DAYS[n % len(DAYS)])
        Checkpoint.objects.filter(id=row.id).update(created_at=at, stored_size=1000 + n)


def _counted() -> list[dict[str, Any]]:
    """The same, row by row."""
    collected = []
    for graph in {run.graph for run in Run.objects.all()}:
        rows = [
            row
            for row in Checkpoint.objects.select_related("run")
            if row.run.graph == graph
        ]
        ages = [0] * (len(AGES) + 1)
        for row in rows:
            days = (NOW - row.created_at) / timedelta(days=1)
            ages[sum(days > age for age in AGES)] += row.stored_size
        line = {
            "graph": graph,
            "runs": len({row.run_id for row in rows}),
            "checkpoints": len(rows),
        }
        collected.append(
            {**line, "bytes": sum(row.stored_size for row in rows), "ages": ages}
        )
    return sorted(collected, key=lambda entry: -entry["bytes"])


@pytest.mark.usefixtures("_history")
def test_the_table_says_what_the_rows_say_the_largest_graph_first_with_one_query() -> (
    None
):
    with CaptureQueriesContext(connection) as queries:
        table = stock(now=NOW)
    assert len(queries) == 1
    assert table == _counted()
    assert [(one["graph"], one["runs"]) for one in table] == [
        ("large", 2),
        ("small", 1),
    ]
    assert [sum(one["ages"]) for one in table] == [one["bytes"] for one in table]
    assert all(table[0]["ages"])


def test_where_nothing_is_kept_the_table_is_empty() -> None:
    assert stock() == []
