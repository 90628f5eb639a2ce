"""Entries of the journal by its verbs: what is amended, listed, too late, and until
when an attempt may act.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader, locked_run
from checkpoints.ledger.commit import ConcurrentUpdate, NewCheckpoint, RunUpdate
from checkpoints.models import Checkpoint, LateResult, Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.queue.leases import Lease
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator import runs
from orchestrator.engine import END, START, Task
from orchestrator.engine.errors import StaleLease, TamperedRow
from tests.support import cast
from tests.support.forging import remove
from tests.support.histories import policy, pruned
from tests.support.small_graphs import graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)
SEND = Task("send", 1)
OTHER = Task("other", 1)
DONE: dict[str, Any] = {"writes": []}


def _intent(task: Task = SEND, attempt: int = 1, *, timeout: float = 100.0) -> Intent:
    return Intent(task, attempt, "write", "0" * 64, timeout)


def _ending(task: Task = SEND, attempt: int = 1, outcome: str = "done") -> Ending:
    return Ending(task, attempt, outcome, DONE)


@pytest.fixture
def lease() -> Lease:
    """A run of two effects side by side, claimed and begun."""
    flow = graph("journaled")
    for node in ("send", "other"):
        flow.node(node, effect="write")(lambda state, ctx: None)
        flow.edge(START, node)
        flow.edge(node, END)
    return held(started(flow))


def results(lease: Lease) -> list[tuple[str, int, str]]:
    rows = TaskResult.objects.filter(run=lease.id).order_by("id")
    return [(row.node, row.attempt, row.outcome) for row in rows]


def test_an_attempt_may_act_until_its_lease_and_its_time_are_both_over(
    lease: Lease, configure: Any
) -> None:
    configure(LEASE_SECONDS=40)
    journal.write_intents(lease, [_intent(timeout=100.0)])
    row = TaskResult.objects.get(run=lease.id)
    assert row.over_at - row.intent_at == timedelta(seconds=140)


def test_the_next_attempt_closes_the_one_before_as_failed_and_that_ones_result_is_late(
    lease: Lease,
) -> None:
    journal.write_intents(lease, [_intent()])
    journal.write_intents(lease, [_intent(attempt=2)])
    assert results(lease) == [("send", 1, "failed"), ("send", 2, "open")]
    (late,) = journal.write_results(lease, [_ending()])
    assert late.attempt == 1
    assert results(lease) == [("send", 1, "failed"), ("send", 2, "open")]
    assert journal.entries(lease)[SEND].attempt == 2


def test_a_result_that_came_too_late_says_that_its_thread_is_over(lease: Lease) -> None:
    journal.write_intents(lease, [_intent()])
    journal.write_intents(lease, [_intent(attempt=2)])
    assert TaskResult.objects.get(run=lease.id, attempt=1).thread_ended_at is None
    journal.write_results(lease, [_ending()])
    assert LateResult.objects.filter(run=lease.id, attempt=1).count() == 1
    assert TaskResult.objects.get(run=lease.id, attempt=1).thread_ended_at is not None
    assert TaskResult.objects.get(run=lease.id, attempt=2).thread_ended_at is None


def test_an_entry_that_somebody_else_has_changed_since_it_was_read_is_not_amended(
    lease: Lease,
) -> None:
    journal.write_intents(lease, [_intent()])
    mine, other = (TaskResult.objects.get(run=lease.id) for _ in range(2))
    assert journal.amend_result(other, PLAIN, outcome=Outcome.UNKNOWN)
    assert not journal.amend_result(mine, PLAIN, outcome=Outcome.DONE)
    assert results(lease) == [("send", 1, "unknown")]
    journal.entries(lease)


@pytest.mark.parametrize("status", [Status.PAUSED, Status.UNKNOWN, Status.CANCELLED])
def test_nothing_is_recorded_for_a_run_that_was_stopped_under_its_holder(
    status: Status, lease: Lease
) -> None:
    journal.write_intents(lease, [_intent()])
    Run.objects.filter(id=lease.id).update(status=status)
    with pytest.raises(StaleLease):
        journal.write_results(lease, [_ending()])
    assert results(lease) == [("send", 1, "open")]
    assert LateResult.objects.filter(run=lease.id).count() == 1


def test_what_a_person_settles_are_open_attempts_and_results_for_another_input(
    lease: Lease,
) -> None:
    journal.write_intents(lease, [_intent(), _intent(OTHER)])
    journal.write_results(lease, [_ending()])
    journal.mark_tasks_unknown(lease, [SEND, OTHER])
    assert results(lease) == [("send", 1, "unknown"), ("other", 1, "unknown")]
    assert {entry.outcome for entry in journal.entries(lease).values()} == {"unknown"}


def test_a_checkpoint_of_what_is_done_leaves_what_failed_to_the_next(
    lease: Lease,
) -> None:
    journal.write_intents(lease, [_intent(), _intent(OTHER)])
    journal.write_results(lease, [_ending(), _ending(OTHER, outcome="failed")])
    journal.list_done_results(lease, 7)
    assert dict(TaskResult.objects.filter(run=lease.id).values_list("node", "seq")) == {
        "send": 7,
        "other": None,
    }
    assert list(journal.entries(lease)) == [OTHER]
    text, params = journal.list_update(lease, 8).sql(connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(text, params)
    assert dict(TaskResult.objects.filter(run=lease.id).values_list("node", "seq")) == {
        "send": 7,
        "other": 8,
    }


def test_a_checkpoint_of_what_is_done_leaves_the_results_of_other_tasks(
    lease: Lease,
) -> None:
    journal.write_intents(lease, [_intent(), _intent(OTHER)])
    journal.write_results(lease, [_ending(), _ending(OTHER)])
    journal.list_done_results(lease, 7, apart_from=[SEND])
    assert list(journal.entries(lease)) == [SEND]


def test_results_are_listed_with_the_commit_of_their_superstep_or_not_at_all(
    lease: Lease,
) -> None:
    journal.write_intents(lease, [_intent()])
    journal.write_results(lease, [_ending()])
    head = head_loader.load_head(lease)

    def commit() -> None:
        point = NewCheckpoint("superstep", head.payload, 1)
        ledger.prepare_commit(
            lease,
            head,
            point,
            RunUpdate(),
            events=[],
            also=journal.list_update(lease, head.next_seq),
        ).send()()

    Run.objects.filter(id=lease.id).update(wakes=lease.wakes + 1)
    with pytest.raises(ConcurrentUpdate):
        commit()
    assert TaskResult.objects.get(run=lease.id).seq is None
    ledger.refresh_lease(lease)
    commit()
    assert TaskResult.objects.get(run=lease.id).seq == 1


def test_each_of_two_begun_attempts_has_its_row_or_nothing_is_done(
    lease: Lease,
) -> None:
    head = head_loader.load_head(lease)
    journal.write_intents(lease, [_intent()])
    journal.write_intents(lease, [_intent(attempt=2)])
    assert list(journal.entries_for_takeover(lease, head)) == [SEND]
    remove(TaskResult.objects.get(run=lease.id, attempt=2))
    with pytest.raises(
        TamperedRow, match="2 attempts of send:1:0 began, and 1 are there"
    ):
        journal.entries_for_takeover(lease, head)


def test_an_intent_follows_a_log_that_moved_and_its_hold_says_so(lease: Lease) -> None:
    locked_run.append_locked(
        Run.objects.get(id=lease.id), [NewEvent("warning")], at=timezone.now()
    )
    lease.moved = False
    journal.write_intents(lease, [_intent()])
    assert lease.moved
    kinds = (
        RunEvent.objects.filter(run=lease.id)
        .order_by("seq")
        .values_list("type", flat=True)
    )
    assert list(kinds) == ["run_started", "warning", "effects_started"]


def test_what_a_waiting_superstep_has_begun_is_asked_for_though_no_line_came_since(
    lease: Lease,
) -> None:
    head = head_loader.load_head(lease)
    journal.write_intents(lease, [_intent()])
    waiting = replace(
        head, logged=lease.end.seq, payload=replace(head.payload, open={"superstep": 1})
    )
    assert list(journal.entries_for_takeover(lease, waiting)) == [SEND]
    remove(TaskResult.objects.get(run=lease.id))
    with pytest.raises(
        TamperedRow, match="1 attempts of send:1:0 began, and 0 are there"
    ):
        journal.entries_for_takeover(lease, waiting)


@pytest.mark.parametrize("rewound", [False, True])
@pytest.mark.parametrize("keep_last", [None, 1])
def test_an_attempt_without_a_row_is_found_whatever_was_removed_of_the_timeline(
    people: cast.People, keep_last: int | None, rewound: bool
) -> None:
    acted: list[str] = []
    fails = [True]

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        acted.append(ctx.idempotency_key)
        if fails:
            raise RuntimeError("no")
        return {"notes": ["paid"]}

    flow = graph("pruned_attempts")
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    flow.node("pay", effect="external", idempotent=True)(pay)
    for source, target in ((START, "first"), ("first", "pay"), ("pay", END)):
        flow.edge(source, target)
    run = runs.advance(started(flow).id)
    if rewound:
        run = runs.advance(
            runs.rewind(
                run.id, f"{run.key}:at-0", allow_effects=["pay"], by=people.starter
            ).id
        )
    assert run.status == Status.FAILED
    before = len(acted)
    if keep_last is not None:
        pruned(policy("pruned_attempts", keep_last=keep_last))
        assert not Checkpoint.objects.filter(
            run=run.id, line=run.line, committed=True
        ).exists()
    row = TaskResult.objects.get(run=run.id, line=run.line)
    remove(row)
    fails.clear()
    runs.resume(run.id, by=people.starter)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert len(acted) == before
    row.save(force_insert=True)
    runs.resume(run.id, by=people.starter)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert len(acted) == before + 1


def test_the_database_looks_for_no_run_when_results_are_inserted() -> None:
    """PostgreSQL would execute a query for each."""
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(
            cursor, TaskResult._meta.db_table
        )
    checked = [
        constraint["columns"]
        for constraint in constraints.values()
        if constraint["foreign_key"]
    ]
    assert checked == [["settled_by_id"]]


def test_no_attempt_is_recorded_for_a_removed_run(lease: Lease) -> None:
    journal.write_intents(lease, [_intent()])
    for model in (TaskResult, RunEvent, Checkpoint):
        model.objects.filter(run=lease.id)._raw_delete(connection.alias)
    Run.objects.filter(id=lease.id)._raw_delete(connection.alias)
    with pytest.raises(StaleLease):
        journal.write_intents(lease, [_intent(OTHER)])
    assert not TaskResult.objects.filter(run=lease.id).exists()
