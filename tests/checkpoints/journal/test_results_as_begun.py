"""Results that the process which wrote the intents records: in one statement, and only
where each row still is, in all its fields, what was sealed.
"""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from checkpoints.db import bulk
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.models import LateResult, Run, TaskResult
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from orchestrator.engine import END, START, Send, Task
from orchestrator.engine.errors import StaleLease, TamperedRow, WrongKey
from tests.support.forging import tamper
from tests.support.small_graphs import graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def lease() -> Lease:
    flow = graph("recorded")
    flow.node("split", sends=["leaf"])(
        lambda state, ctx: [Send("leaf", n) for n in range(3)]
    )
    flow.node("leaf", effect="external")(lambda state, ctx: {})
    flow.edge(START, "split")
    flow.edge("leaf", END)
    return held(started(flow))


def _leaf(n: int) -> Task:
    return Task("leaf", 1, n)


def _begun(lease: Lease, leaves: int = 3) -> list[Ending]:
    """Endings of leaves that have begun, with their intents."""
    intents = [
        Intent(_leaf(n), 1, "external", f"{n:064}", 1.0 + n) for n in range(leaves)
    ]
    rows = journal.write_intents(lease, intents)
    return [
        Ending(_leaf(n), 1, "done", {"writes": [n]}, took_ms=n, intent=rows[_leaf(n)])
        for n in range(leaves)
    ]


def _rows() -> list[TaskResult]:
    return list(TaskResult.objects.order_by("index"))


@pytest.mark.parametrize("leaves", [1, 3, 600])
def test_results_of_intents_of_this_process_are_written_without_a_look_at_their_rows(
    lease: Lease, leaves: int
) -> None:
    endings = _begun(lease, leaves)
    with CaptureQueriesContext(connection) as seen:
        assert journal.write_results(lease, endings) == []
    content = [
        word
        for query in seen
        for word in re.findall(r"^(?:\d+ times: )?(SELECT|UPDATE|INSERT)", query["sql"])
    ]
    # SQLite reads the text of many rows slower than that of a few, executed again.
    updates = -(-leaves // 50) if connection.vendor == "sqlite" else 1
    assert content == ["SELECT"] + ["UPDATE"] * updates, (
        "the run's row is locked, the results are written"
    )
    rows = _rows()
    sealed_rows.verify_rows(rows, lease.protection)
    entries = journal.entries(lease)
    assert [entries[_leaf(n)].output for n in range(leaves)] == [
        {"writes": [n]} for n in range(leaves)
    ]
    assert [(row.outcome, row.took_ms, row.seq) for row in rows] == [
        ("done", n, None) for n in range(leaves)
    ]
    assert all(row.thread_ended_at == row.result_at is not None for row in rows)


def test_what_begin_gives_is_what_is_in_the_table(lease: Lease) -> None:
    endings = _begun(lease)
    for row, ending in zip(_rows(), endings, strict=True):
        for field in TaskResult._meta.concrete_fields:
            if not field.primary_key:
                value = getattr(row, field.attname)
                returned = getattr(ending.intent, field.attname)
                assert value == returned, field.attname


CHANGED: dict[str, Any] = {
    "node": "other",
    "visit": 2,
    "index": 7,
    "attempt": 2,
    "effect": "write",
    "epoch": 99,
    "worker": uuid4(),
    "host": "elsewhere",
    "pid_space": "elsewhere",
    "pid": 1,
    "process_started": 1,
    "superstep": 9,
    "input_hash": "f" * 64,
    "intent_at": timezone.now() - timedelta(days=1),
    "over_at": timezone.now(),
    "outcome": "not_done",
    "output": b"\x01{}",
    "error": b"\x01{}",
    "result_at": timezone.now(),
    "took_ms": 5,
    "settled_reason": b'\x01"x"',
    "seal": b"0" * 32,
    "seal_key": "another",
}


def test_every_sealed_field_is_among_those_that_are_changed_here() -> None:
    sealed = {
        f.name
        for f in TaskResult._meta.concrete_fields
        if f.name not in TaskResult.UNSEALED
    }
    # The end of an attempt's thread is written with its ending, whatever stood there.
    assert sealed - {"id", "run", "line", "settled_by", "thread_ended_at"} == set(
        CHANGED
    )


@pytest.mark.parametrize("field", list(CHANGED))
def test_where_one_of_the_intents_was_changed_no_result_is_written_over_it(
    lease: Lease, field: str
) -> None:
    endings = _begun(lease)
    tamper(_rows()[1], **{field: CHANGED[field]})
    before = {row.pk: row.seal for row in _rows()}
    try:
        late = journal.write_results(lease, endings)
    except (TamperedRow, WrongKey):
        assert {row.outcome for row in _rows()} == {"open"}
        assert LateResult.objects.count() == 3
    else:
        # Moved away from its task, or no longer open: nothing that this process may
        # close.
        assert field in {"node", "visit", "index", "attempt", "outcome"}
        assert late == [endings[1]]
        assert [row.outcome for row in _rows()].count("done") == 2
        changed = next(row for row in _rows() if row.outcome != "done")
        assert changed.seal == before[changed.pk]
        assert LateResult.objects.count() == 1


def test_a_result_whose_attempt_was_closed_by_somebody_else_is_late_and_the_others_are_taken(
    lease: Lease,
) -> None:
    endings = _begun(lease)
    journal.mark_tasks_unknown(lease, [_leaf(1)])
    assert journal.write_results(lease, endings) == [endings[1]]
    assert [row.outcome for row in _rows()] == ["done", "unknown", "done"]
    sealed_rows.verify_rows(_rows(), lease.protection)


def test_the_first_of_two_results_of_one_attempt_is_taken(lease: Lease) -> None:
    (first,) = _begun(lease, 1)
    twice = Ending(first.task, 1, "done", {"writes": ["twice"]}, intent=first.intent)
    assert journal.write_results(lease, [first, twice]) == [twice]
    assert journal.entries(lease)[first.task].output == {"writes": [0]}


def test_without_the_lease_nothing_is_written(lease: Lease) -> None:
    endings = _begun(lease)
    Run.objects.filter(id=lease.id).update(epoch=lease.epoch + 1)
    with pytest.raises(StaleLease):
        journal.write_results(lease, endings)
    assert {row.outcome for row in _rows()} == {"open"}
    assert LateResult.objects.count() == 3


def test_no_rows_cost_no_statement(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        bulk.insert_all([], ("node",))
        assert bulk.update_all([], [], own=("node",), names=("seal",)) == 0
