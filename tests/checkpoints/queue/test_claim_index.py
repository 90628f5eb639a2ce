"""What a worker asks of the queue costs what is in the queue, not what ever was."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.db.rows import new_row
from checkpoints.models import Job, Run
from checkpoints.queue import due_counts, jobs, leases
from checkpoints.queue.due_runs import Claimable
from tests.support.read_costs import cost_of
from tests.support.read_growth import forget_statistics

pytestmark = pytest.mark.django_db(transaction=True)
OURS = Claimable(frozenset({"f"}), frozenset({"g"}), frozenset({"left to others"}))
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def many_jobs() -> None:
    """Two thousand jobs that are done, and ten that wait."""
    states = ["done"] * 2000 + ["queued"] * 10
    made = [
        new_row(Job, kind="sweep", status=status, due_at=AT, created_at=AT)
        for status in states
    ]
    Job.objects.bulk_create(made, batch_size=500)
    _analyze()


def _analyze() -> None:
    with connection.cursor() as cursor:
        # What earlier tests left in the table's pages would count in the planner's
        # choice.
        cursor.execute(
            "VACUUM FULL ANALYZE" if connection.vendor == "postgresql" else "ANALYZE"
        )


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
        cursor.execute(
            f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{text}",
            params,
        )
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def _some_runs(count: int, **columns: Any) -> None:
    shared = {"graph": "g", "version": "1", "fingerprint": "f", "created_at": AT}
    rows = []
    for _ in range(count):
        row = new_row(Run, **{**shared, "status": "queued", **columns})
        row.key = str(row.id)
        rows.append(row)
    Run.objects.bulk_create(rows, batch_size=500)


def _of_others(count: int) -> None:
    """Make `count` runs for each reason why this process may not take a run now."""
    later = timezone.now() + timedelta(days=1)
    _some_runs(count, status="completed")
    _some_runs(count, due_at=later)
    _some_runs(count, due_at=later, priority=9)
    _some_runs(count, status="waiting", due_at=later)
    _some_runs(count, graph="foreign", fingerprint="foreign")
    _some_runs(count, fingerprint="left to others")
    _analyze()


@pytest.mark.parametrize(
    "look",
    [
        lambda: leases.claim(worker=None, limit=2, only=OURS),
        lambda: leases.any_run_due(OURS),
    ],
)
@pytest.mark.parametrize("ready", [0, 1, 300])
def test_a_look_at_the_queue_costs_nothing_for_runs_that_it_does_not_find(
    look: Callable[[], Any], ready: int
) -> None:
    _some_runs(ready)
    _of_others(20)
    beside_few = _reads(look)
    _of_others(400)
    beside_many = _reads(look)
    for figure, value in beside_many.items():
        # A deeper index, and pages that hold other rows too.
        assert value <= 1.3 * beside_few[figure] + 40, (figure, beside_few, beside_many)


def _of_kinds(count: int) -> None:
    """Make runs of forty kinds that are due, but not for this process, and of two kinds
    for this process that are due later.
    """
    for number in range(20):
        for priority in (0, 5):
            graph = f"foreign {number:02}"
            _some_runs(count, graph=graph, fingerprint="foreign", priority=priority)
    later = timezone.now() + timedelta(days=1)
    _some_runs(count, due_at=later)
    _some_runs(count, fingerprint="f2", status="waiting", due_at=later)


LOOKS: dict[str, Callable[[], Any]] = {
    "claim": lambda: leases.claim(worker=None, limit=2, only=OURS),
    "begin": lambda: leases.begin_next(worker=None, only=OURS),
    "look": lambda: leases.any_run_due(OURS),
    "oldest": due_counts.oldest_due,
}


@pytest.mark.parametrize("ready", [0, 300])
@pytest.mark.parametrize("settle", [_analyze, forget_statistics])
def test_a_look_at_the_queue_costs_its_kinds_and_not_the_runs_of_each(
    ready: int, settle: Callable[[], None]
) -> None:
    # PostgreSQL would rather read a small table whole than look up a few of its rows.
    _some_runs(4_000, status="completed")
    _some_runs(ready)
    _of_kinds(3)
    settle()
    beside_few = {name: _reads(look) for name, look in LOOKS.items()}
    _of_kinds(30)
    settle()
    for name, look in LOOKS.items():
        for figure, value in _reads(look).items():
            before = beside_few[name][figure]
            # The index is a page deeper for each look.
            assert value <= 2.5 * before + 40, (name, figure, before, value)


def _reads(look: Callable[[], Any]) -> dict[str, int]:
    """Return what it reads, and nothing that it does stays."""
    with transaction.atomic():
        cost = cost_of(look)
        transaction.set_rollback(True)
    return cost.reads


@given(data=st.data())
@settings(max_examples=40)
def test_runs_are_claimed_in_the_order_of_priority_and_time(data: Any) -> None:
    with transaction.atomic():
        rows = data.draw(
            st.lists(_queued_runs(), max_size=12, unique_by=lambda row: row.created_at)
        )
        Run.objects.bulk_create(rows)
        limit = data.draw(st.integers(1, 13))
        claims = leases.claim(worker=None, limit=limit, only=OURS_ONLY)
        transaction.set_rollback(True)
    first = sorted(filter(_is_due, rows), key=_place)[:limit]
    assert {claim.id for claim in claims} == {row.id for row in first}


OURS_ONLY = Claimable(
    frozenset({"f", "f2"}), frozenset({"g"}), frozenset({"left to others"})
)
MOMENTS = [None, AT, AT + timedelta(days=1), datetime(2100, 1, 1, tzinfo=UTC)]
KINDS = [("g", "f"), ("g2", "f2"), ("g", "old"), ("g", "left to others"), ("x", "x")]


@st.composite
def _queued_runs(draw: Any) -> Run:
    graph, fingerprint = draw(st.sampled_from(KINDS))
    row = new_row(
        Run,
        graph=graph,
        fingerprint=fingerprint,
        version="1",
        status=draw(st.sampled_from(["queued", "waiting", "running", "completed"])),
        priority=draw(st.integers(-1, 2)),
        due_at=draw(st.sampled_from(MOMENTS)),
        lease_until=draw(st.sampled_from(MOMENTS)),
        created_at=AT + timedelta(seconds=draw(st.integers(0, 10**6))),
    )
    row.key = str(row.id)
    return row


def _is_due(row: Run) -> bool:
    is_ours = row.fingerprint in ("f", "f2") or (
        row.graph == "g" and row.fingerprint != "left to others"
    )
    has_passed = row.due_at is not None and row.due_at < timezone.now()
    return (
        is_ours
        and {
            "queued": row.due_at is None or has_passed,
            "waiting": has_passed,
            "running": row.lease_until is not None and row.lease_until < timezone.now(),
            "completed": False,
        }[row.status]
    )


def _place(row: Run) -> Any:
    return (-row.priority, row.due_at is not None, row.due_at or AT, row.created_at)


@pytest.mark.usefixtures("many_jobs")
@pytest.mark.parametrize(
    "ask", [lambda: jobs.claim(worker=None, limit=2), jobs.any_due]
)
def test_a_look_for_jobs_reads_none_that_is_done(ask: Callable[[], Any]) -> None:
    text, params = _asked(ask)
    assert "IN ('queued', 'running')" in text.replace('"', "'")
    plan = _plan(text, params)
    assert "job_claimable" in plan or "job_due" in plan


def _some_jobs(count: int, **columns: Any) -> None:
    rows = [
        new_row(Job, kind="meet_deadline", created_at=AT, **columns)
        for _ in range(count)
    ]
    Job.objects.bulk_create(rows, batch_size=500)


@pytest.mark.parametrize(
    "look", [lambda: jobs.claim(worker=None, limit=2), jobs.any_due]
)
@pytest.mark.parametrize("ready", [0, 1, 300])
def test_a_look_for_jobs_costs_nothing_for_deadlines_that_are_far(
    look: Callable[[], Any], ready: int
) -> None:
    _some_jobs(ready, due_at=AT)
    later = timezone.now() + timedelta(days=1)
    _some_jobs(100, due_at=later)
    _analyze()
    beside_few = _reads(look)
    _some_jobs(4000, due_at=later)
    _analyze()
    beside_many = _reads(look)
    for figure, value in beside_many.items():
        assert value <= 1.3 * beside_few[figure] + 40, (figure, beside_few, beside_many)
