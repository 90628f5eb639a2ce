"""What was forked from a run is found by an index, however many lines there are."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from checkpoints import lines
from checkpoints.db.rows import new_row
from checkpoints.models import Run, RunLine

pytestmark = pytest.mark.django_db(transaction=True)
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def origins() -> list[Run]:
    """A thousand runs, each forked from the one before it, and rewound once."""
    shared = {"graph": "g", "version": "1", "fingerprint": "f", "created_at": AT}
    made = Run.objects.bulk_create(
        [new_row(Run, key=f"run-{n}", **shared) for n in range(1000)], batch_size=500
    )
    at: dict[str, Any] = {
        "parent_line": 1,
        "departure": UUID(int=1),
        "departure_seq": 1,
        "at": AT,
    }
    rows = [
        new_row(RunLine, run_id=b.id, number=1, travel="fork", departure_run=a.id, **at)
        for a, b in _pairs(made)
    ]
    rows += [
        new_row(
            RunLine, run_id=a.id, number=2, travel="rewind", departure_run=a.id, **at
        )
        for a in made
    ]
    RunLine.objects.bulk_create(rows, batch_size=500)
    with connection.cursor() as cursor:
        cursor.execute(
            "VACUUM FULL ANALYZE" if connection.vendor == "postgresql" else "ANALYZE"
        )
    return made


def _pairs(made: list[Run]) -> list[tuple[Run, Run]]:
    return list(zip(made, made[1:], strict=False))


def test_the_forks_of_a_run_are_its_own_and_no_rewind(origins: list[Run]) -> None:
    first, second, *_, last = origins
    assert list(lines.forks_of(first.id)) == [second.id]
    assert list(lines.forks_of(last.id)) == []


def test_a_list_of_forks_reads_an_index_and_not_the_table(origins: list[Run]) -> None:
    forks = Run.objects.filter(id__in=lines.forks_of(origins[5].id)).order_by(
        "-created_at", "-id"
    )[:51]
    plan = forks.explain()
    assert "run_line_departure_run" in plan
    assert "Seq Scan" not in plan
    assert "SCAN checkpoints_run" not in plan
