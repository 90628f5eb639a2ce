"""What a worker asks of the queue costs what is in the queue, not what ever was."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection

from checkpoints.db.rows import new_row
from checkpoints.models import Job, Run
from checkpoints.queue import jobs, leases
from checkpoints.queue.leases import Claimable

pytestmark = pytest.mark.django_db(transaction=True)
OURS = Claimable(frozenset({"f"}), frozenset({"g"}))
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def runs() -> None:
    """Two thousand runs that ended, and three hundred that wait for a worker."""
    names = [(f"ended-{n}", "completed") for n in range(2000)] + [(f"waits-{n}", "queued") for n in range(300)]
    shared = {"graph": "g", "version": "1", "fingerprint": "f", "created_at": AT}
    Run.objects.bulk_create([new_row(Run, key=key, status=status, **shared) for key, status in names], batch_size=500)
    _analyze()


@pytest.fixture
def many_jobs() -> None:
    """Two thousand jobs that are done, and ten that wait."""
    states = ["done"] * 2000 + ["queued"] * 10
    made = [new_row(Job, kind="sweep", status=status, due_at=AT, created_at=AT) for status in states]
    Job.objects.bulk_create(made, batch_size=500)
    _analyze()


def _analyze() -> None:
    with connection.cursor() as cursor:
        # What earlier tests left in the table's pages would count in the planner's choice.
        cursor.execute("VACUUM FULL ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def _asked(act: Callable[[], Any]) -> tuple[str, list[Any]]:
    """The last statement of `act`, and its parameters."""
    content: list[tuple[str, list[Any]]] = []

    def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        content.append((sql, list(params)))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(keep):
        act()
    return content[-1]


def _plan(text: str, params: list[Any]) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{text}", params)
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


@pytest.mark.parametrize(
    "ask", [lambda: leases.claim(worker=None, limit=2, only=OURS), lambda: leases.any_run_due(OURS)]
)
def test_the_statuses_of_a_look_at_the_queue_are_no_parameters(ask: Callable[[], Any]) -> None:
    """A plan for whatever a parameter may be cannot use an index over some statuses only."""
    text, params = _asked(ask)
    assert "IN ('queued', 'running', 'waiting')" in text
    assert not {"queued", "waiting"} & {str(value) for value in params}


@pytest.mark.usefixtures("runs")
def test_a_claim_reads_as_many_runs_as_it_takes() -> None:
    plan = _plan(*_asked(lambda: leases.claim(worker=None, limit=2, only=OURS)))
    assert "run_claimable" in plan
    # PostgreSQL names what it sorts by, SQLite where it does.
    assert "priority" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.usefixtures("runs")
def test_a_look_whether_something_is_due_reads_no_run_that_has_ended() -> None:
    plan = _plan(*_asked(lambda: leases.any_run_due(OURS)))
    assert "run_claimable" in plan or "run_by_status" in plan


@pytest.mark.usefixtures("many_jobs")
@pytest.mark.parametrize("ask", [lambda: jobs.claim(worker=None, limit=2), jobs.any_due])
def test_a_look_for_jobs_reads_none_that_is_done(ask: Callable[[], Any]) -> None:
    text, params = _asked(ask)
    assert "IN ('queued', 'running')" in text
    assert "job_claimable" in _plan(text, params)
