"""Kept texts: a later call has values of its own; and a fan-out's journal costs a
bounded number of statements.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import DataError, connection, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from checkpoints.core.ids import uuid7
from checkpoints.db import bulk, query_cache
from checkpoints.db.clock import db_in, kept_now
from checkpoints.db.statements import insert_row, update_returning
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import locked_run
from checkpoints.models import LateResult, Run, RunEvent, TaskResult
from checkpoints.queue import leases
from checkpoints.queue.due_runs import Claimable
from checkpoints.queue.leases import Lease
from orchestrator import runs
from orchestrator.engine import END, START, Send, Task
from orchestrator.execution import loop
from tests.support.small_graphs import graph, held, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)
LEAVES = 100


def _run(
    leaves: int = 3, *, called: list[tuple[int, int]] | None = None, **options: Any
) -> Run:
    """A queued run that fans out; its leaves say in `called` who they are and in which
    attempt.
    """
    flow = graph("fanned")

    @flow.node(sends=["leaf"])
    def split(state: Any, ctx: Any) -> list[Send]:
        return [Send("leaf", n) for n in range(leaves)]

    @flow.node(effect="external", **options)
    def leaf(state: Any, ctx: Any) -> dict[str, Any]:
        if called is not None:
            called.append((ctx.payload, ctx.attempt))
        return {}

    flow.edge(START, "split")
    flow.edge("leaf", END)
    return started(flow)


def _leaf(n: int) -> Task:
    return Task("leaf", 1, n)


def _intents(*tasks: Task) -> list[Intent]:
    return [Intent(task, 1, "external", "0" * 64, 1.0) for task in tasks]


def _worked(run: Run) -> tuple[int, int]:
    """Return how many statements a slice takes, and how many of them write intents."""
    claim = leases.claim_one(run.id)
    assert claim is not None
    with CaptureQueriesContext(connection) as seen:
        loop.run_slice(claim.id, claim.epoch)
    run.refresh_from_db()
    assert run.status == "completed"
    intents = f'INSERT INTO "{TaskResult._meta.db_table}"'
    return len(seen), sum(intents in query["sql"] for query in seen.captured_queries)


def test_a_fan_out_of_idempotent_tasks_writes_its_intents_in_one_statement() -> None:
    all_of_them, intents = _worked(_run(LEAVES, idempotent=True))
    assert intents == 1
    # A result that comes alone costs a transaction of its own; so this bound is that of
    # the worst grouping, and one statement more for each task would break it.
    assert all_of_them < 5 * LEAVES + 30
    results = TaskResult.objects.filter(node="leaf")
    assert set(results.values_list("outcome", "attempt")) == {("done", 1)}
    assert results.count() == LEAVES


def test_tasks_that_may_not_be_made_again_get_their_intents_as_they_begin() -> None:
    _, intents = _worked(_run(LEAVES))
    assert intents >= LEAVES / 32
    assert TaskResult.objects.filter(node="leaf", outcome="done").count() == LEAVES


def test_an_idempotent_task_with_an_early_intent_runs_after_its_worker_is_gone() -> (
    None
):
    called: list[tuple[int, int]] = []
    run = _run(LEAVES, idempotent=True, called=called)
    slice_of(run, draining=lambda: bool(called))
    assert run.status == "queued"
    assert 0 < len(called) < LEAVES
    assert TaskResult.objects.filter(
        node="leaf", outcome="open"
    ).count() == LEAVES - len(called)
    runs.advance(run.id)
    assert sorted(n for n, _ in called) == list(range(LEAVES)), "each once"
    assert {attempt for _, attempt in called} == {1, 2}
    assert TaskResult.objects.filter(node="leaf", outcome="done").count() == LEAVES


@pytest.mark.parametrize("tasks", [1, 3, 30])
def test_results_that_are_ready_together_are_written_in_as_many_statements_as_one_is(
    tasks: int,
) -> None:
    lease = held(_run(tasks))
    journal.write_intents(lease, _intents(*map(_leaf, range(tasks))))
    endings = [
        Ending(_leaf(n), 1, "done", {"writes": [n]}, took_ms=n) for n in range(tasks)
    ]
    with CaptureQueriesContext(connection) as seen:
        assert journal.write_results(lease, endings) == []
    content = [
        query["sql"]
        for query in seen
        if query["sql"].split()[0] in {"SELECT", "UPDATE", "INSERT"}
    ]
    assert len(content) == 3, content
    entries = journal.entries(lease)
    assert [entries[_leaf(n)].output for n in range(tasks)] == [
        {"writes": [n]} for n in range(tasks)
    ]
    assert [entries[_leaf(n)].took_ms for n in range(tasks)] == list(range(tasks))


def test_only_results_of_open_attempts_are_taken_and_the_others_are_evidence() -> None:
    lease = held(_run())
    journal.write_intents(lease, _intents(_leaf(0), _leaf(1)))
    known = Ending(_leaf(1), 1, "done", {"writes": ["first"]})
    assert journal.write_results(lease, [known]) == []
    late = [
        Ending(_leaf(1), 1, "done", {"writes": ["second"]}),
        Ending(_leaf(0), 2, "done", {"writes": []}),
    ]
    good = Ending(_leaf(0), 1, "done", {"writes": ["own"]})
    twice = Ending(_leaf(0), 1, "done", {"writes": ["twice"]})
    assert journal.write_results(lease, [late[0], good, late[1], twice]) == [
        *late,
        twice,
    ]
    entries = journal.entries(lease)
    assert [entries[_leaf(n)].output for n in (0, 1)] == [
        {"writes": ["own"]},
        {"writes": ["first"]},
    ]
    assert LateResult.objects.count() == 3


def test_tasks_are_marked_as_unknown_in_two_statements_however_many_they_are() -> None:
    lease = held(_run())
    journal.write_intents(lease, _intents(*map(_leaf, range(3))))
    with CaptureQueriesContext(connection) as seen:
        journal.mark_tasks_unknown(lease, [_leaf(0), _leaf(2)])
    assert len(seen) == 2
    assert [journal.entries(lease)[_leaf(n)].outcome for n in range(3)] == [
        "unknown",
        "open",
        "unknown",
    ]


def test_a_kept_text_takes_the_values_of_each_call() -> None:
    first = _run()
    second = _run()
    claims = [leases.claim_one(run.id) for run in (first, second)]
    assert [claim and claim.id for claim in claims] == [first.id, second.id]
    assert leases.claim_one(first.id) is None, "its lease holds"
    Run.objects.filter(id=first.id).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    again = leases.claim_one(first.id)
    assert again is not None, "and runs out, by the moment of this call"
    assert leases.claim_one(second.id) is None


def test_a_time_in_an_update_is_that_of_its_statement_and_as_long_as_it_says() -> None:
    run = _run()
    ends = []
    for seconds in (60.0, 60.0, 10.0):
        values = {"lease_until": db_in(seconds)}
        before = timezone.now()
        ((end,),) = update_returning(Run, {"id": run.id}, ["lease_until"], **values)
        assert (
            timedelta(seconds=seconds - 2)
            < end - before
            < timedelta(seconds=seconds + 2)
        )
        ends.append(end)
    assert ends[1] > ends[0] > ends[2]


def test_the_first_begin_of_a_run_says_when_it_was_started_and_no_later_one() -> None:
    run = _run()
    lease = held(run)
    run.refresh_from_db()
    began = run.started_at
    assert abs(began - timezone.now()) < timedelta(seconds=5)
    assert leases.give_back(lease.id, lease.epoch, counts=False)
    held(run)
    run.refresh_from_db()
    assert run.started_at == began
    assert run.claims_since_progress == 1


def test_a_process_that_can_do_nothing_finds_nothing() -> None:
    _run()
    nothing = Claimable(frozenset(), frozenset())
    assert not leases.any_run_due(nothing)
    assert leases.claim(worker=None, limit=5, only=nothing) == []


def test_a_query_that_can_have_no_row_has_none() -> None:
    assert not query_cache.exists(lambda: Run.objects.filter(pk__in=[]).values("id"))


class ProjectKey(str):
    """The key of a project's own accounts."""


def test_a_query_by_a_key_of_any_type_finds_its_rows() -> None:
    run = _run()
    run.due_at = db_in(-60)
    run.save()

    def due(key: str) -> Any:
        rows = Run.objects.filter(key=key, due_at__lt=kept_now()).order_by()
        return rows.values_list("id")

    assert query_cache.exists(due, run.key)
    assert query_cache.exists(due, ProjectKey(run.key))
    assert not query_cache.exists(due, ProjectKey("another"))


def _few_events(lease: Lease) -> None:
    ledger.append_events(lease, [NewEvent("x" * 41)])


def _many_events(lease: Lease) -> None:
    ledger.append_events(lease, [NewEvent("x" * 41) for _ in range(20)])


def _intents_of_one_host(lease: Lease) -> None:
    rows = [journal._intent_rows(lease, _intents(_leaf(n)))[0] for n in range(2)]
    for row in rows:
        row.host = "h" * 256
    bulk.insert_all(rows, ("index", "seal"))


def _intents_of_other_effects(lease: Lease) -> None:
    journal.write_intents(
        lease, [replace(one, effect="e" * 11) for one in _intents(_leaf(0), _leaf(1))]
    )


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no lengths")
@pytest.mark.parametrize(
    "write",
    [_few_events, _many_events, _intents_of_one_host, _intents_of_other_effects],
)
def test_a_text_that_is_too_long_is_refused_and_never_cut(write: Any) -> None:
    lease = held(_run(3))
    events = RunEvent.objects.count()
    with pytest.raises(DataError, match="too long"):
        write(lease)
    assert RunEvent.objects.count() == events
    assert TaskResult.objects.count() == 0


def test_a_row_whose_key_is_taken_is_not_inserted_and_breaks_no_transaction() -> None:
    run = _run()
    run.id = uuid7()
    with transaction.atomic():
        assert not insert_row(run, unless="key")
        run.key = "free"
        run.due_at = db_in(60)
        assert insert_row(run, unless="key")
    # What was an expression is the moment that the row has.
    assert run.due_at == Run.objects.get(key="free").due_at


def test_lists_of_a_kept_query_have_few_lengths() -> None:
    assert [len(query_cache.padded([*range(n)])) for n in range(6)] == [
        0,
        1,
        2,
        4,
        4,
        8,
    ]
    assert set(query_cache.padded([1, 2, 3])) == {1, 2, 3}


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it locks no rows")
def test_rows_are_not_locked_outside_a_transaction() -> None:
    run = _run()
    with pytest.raises(TransactionManagementError):
        locked_run.lock_run(run.id)
