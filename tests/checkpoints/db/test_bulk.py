"""Many rows in one statement: each gets values of its own, of every kind, and none that
was changed meanwhile.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints.db import bulk
from checkpoints.models import TaskResult
from checkpoints.models.task_result import Outcome
from tests.support.cast import People
from tests.support.rows import START, a_run

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = ("outcome", "output", "result_at", "took_ms", "settled_by", "seal_key")


def _results(number: int) -> list[TaskResult]:
    shared: dict[str, Any] = {
        "run": a_run(),
        "line": 1,
        "node": "n",
        "visit": 1,
        "attempt": 1,
        "epoch": 1,
    }
    shared |= {"superstep": 1, "intent_at": START, "over_at": START}
    return TaskResult.objects.bulk_create(
        [TaskResult(index=n, **shared) for n in range(number)]
    )


def _ended(rows: list[TaskResult], by: Any) -> None:
    for n, row in enumerate(rows):
        row.outcome, row.output, row.took_ms, row.seal_key = (
            Outcome.DONE,
            bytes([0, n % 256]),
            n,
            f"ü%s{n}",
        )
        row.result_at, row.settled_by = (
            (START + timedelta(microseconds=n), by) if n else (None, None)
        )


def _values(rows: Any) -> list[tuple[Any, ...]]:
    return [
        (
            str(r.outcome),
            bytes(r.output),
            r.result_at,
            r.took_ms,
            r.settled_by_id,
            r.seal_key,
            r.index,
        )
        for r in rows
    ]


@pytest.mark.parametrize("number", [1, 3, 600])
def test_each_row_is_written_with_its_own_values_some_hundred_in_a_statement(
    number: int, people: People
) -> None:
    rows = _results(number)
    _ended(rows, people.steward)
    with CaptureQueriesContext(connection) as seen:
        written = bulk.update_each(rows, NAMES, was="outcome", before=["open"] * number)
    assert len(seen) == (2 if number > 500 else 1)
    assert written == {row.pk for row in rows}
    assert _values(TaskResult.objects.order_by("index")) == _values(rows)


def test_a_row_that_is_not_as_it_was_is_left_alone_and_not_named(
    people: People,
) -> None:
    rows = _results(3)
    TaskResult.objects.filter(pk=rows[1].pk).update(outcome=Outcome.UNKNOWN)
    _ended(rows, people.steward)
    assert bulk.update_each(rows, NAMES, was="outcome", before=["open"] * 3) == {
        rows[0].pk,
        rows[2].pk,
    }
    assert list(
        TaskResult.objects.order_by("index").values_list("outcome", "took_ms")
    ) == [
        ("done", 0),
        ("unknown", 0),
        ("done", 2),
    ]


def test_no_rows_are_no_statement() -> None:
    with CaptureQueriesContext(connection) as seen:
        assert bulk.update_each([], NAMES, was="outcome", before=[]) == set()
    assert len(seen) == 0
