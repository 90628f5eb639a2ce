"""Entries of the journal by its verbs: what is amended, listed, too late, and until when an attempt may act."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.event_log import Draft
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader as loading
from checkpoints.ledger.commit import Moved, Point, Turn
from checkpoints.models import LateResult, Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.queue.leases import Hold
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine import END, START, Task
from orchestrator.engine.errors import StaleLease, TamperedRow
from tests.contract.small import graph, held, started
from tests.forging import remove

pytestmark = pytest.mark.django_db(transaction=True)
SEND, OTHER = Task("send", 1), Task("other", 1)
DONE: dict[str, Any] = {"writes": []}


def _intent(task: Task = SEND, attempt: int = 1, *, timeout: float = 100.0) -> Intent:
    return Intent(task, attempt, "write", "0" * 64, timeout)


def _ending(task: Task = SEND, attempt: int = 1, outcome: str = "done") -> Ending:
    return Ending(task, attempt, outcome, DONE)


@pytest.fixture
def hold() -> Hold:
    """A run of two effects side by side, claimed and begun."""
    made = graph("journaled")
    for node in ("send", "other"):
        made.node(node, effect="write")(lambda state, ctx: None)
        made.edge(START, node)
        made.edge(node, END)
    return held(started(made))


def results(hold: Hold) -> list[tuple[str, int, str]]:
    rows = TaskResult.objects.filter(run=hold.id).order_by("id")
    return [(row.node, row.attempt, row.outcome) for row in rows]


def test_an_attempt_may_act_until_its_lease_and_its_time_are_both_over(hold: Hold, settings: Any) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "LEASE_SECONDS": 40}
    journal.begin(hold, [_intent(timeout=100.0)])
    row = TaskResult.objects.get(run=hold.id)
    assert row.over_at - row.intent_at == timedelta(seconds=140)


def test_the_next_attempt_closes_the_one_before_as_failed_and_that_ones_result_is_late(hold: Hold) -> None:
    journal.begin(hold, [_intent()])
    journal.begin(hold, [_intent(attempt=2)])
    assert results(hold) == [("send", 1, "failed"), ("send", 2, "open")]
    (late,) = journal.record(hold, [_ending()])
    assert late.attempt == 1
    assert results(hold) == [("send", 1, "failed"), ("send", 2, "open")]
    assert journal.entries(hold)[SEND].attempt == 2


def test_a_result_that_came_too_late_says_that_its_thread_is_over(hold: Hold) -> None:
    journal.begin(hold, [_intent()])
    journal.begin(hold, [_intent(attempt=2)])
    assert TaskResult.objects.get(run=hold.id, attempt=1).thread_ended_at is None
    journal.record(hold, [_ending()])
    assert LateResult.objects.filter(run=hold.id, attempt=1).count() == 1
    assert TaskResult.objects.get(run=hold.id, attempt=1).thread_ended_at is not None
    assert TaskResult.objects.get(run=hold.id, attempt=2).thread_ended_at is None


def test_an_entry_that_somebody_else_has_changed_since_it_was_read_is_not_amended(hold: Hold) -> None:
    journal.begin(hold, [_intent()])
    mine, other = (TaskResult.objects.get(run=hold.id) for _ in range(2))
    assert journal.amend(other, PLAIN, outcome=Outcome.UNKNOWN)
    assert not journal.amend(mine, PLAIN, outcome=Outcome.DONE)
    assert results(hold) == [("send", 1, "unknown")]
    journal.entries(hold)


@pytest.mark.parametrize("status", [Status.PAUSED, Status.UNKNOWN, Status.CANCELLED])
def test_nothing_is_recorded_for_a_run_that_was_stopped_under_its_holder(status: Status, hold: Hold) -> None:
    journal.begin(hold, [_intent()])
    Run.objects.filter(id=hold.id).update(status=status)
    with pytest.raises(StaleLease):
        journal.record(hold, [_ending()])
    assert results(hold) == [("send", 1, "open")]
    assert LateResult.objects.filter(run=hold.id).count() == 1


def test_what_a_person_settles_are_open_attempts_and_results_for_another_input(hold: Hold) -> None:
    journal.begin(hold, [_intent(), _intent(OTHER)])
    journal.record(hold, [_ending()])
    journal.mark_unknown(hold, [SEND, OTHER])
    assert results(hold) == [("send", 1, "unknown"), ("other", 1, "unknown")]
    assert {entry.outcome for entry in journal.entries(hold).values()} == {"unknown"}


def test_a_checkpoint_of_what_is_done_leaves_what_failed_to_the_next(hold: Hold) -> None:
    journal.begin(hold, [_intent(), _intent(OTHER)])
    journal.record(hold, [_ending(), _ending(OTHER, outcome="failed")])
    journal.list_done(hold, 7)
    assert dict(TaskResult.objects.filter(run=hold.id).values_list("node", "seq")) == {"send": 7, "other": None}
    assert list(journal.entries(hold)) == [OTHER]
    text, params = journal.listing(hold, 8).sql(connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(text, params)
    assert dict(TaskResult.objects.filter(run=hold.id).values_list("node", "seq")) == {"send": 7, "other": 8}


def test_results_are_listed_with_the_commit_of_their_superstep_or_not_at_all(hold: Hold) -> None:
    journal.begin(hold, [_intent()])
    journal.record(hold, [_ending()])
    head = loading.load(hold)

    def commit() -> None:
        point = Point("superstep", head.payload, 1)
        ledger.made(hold, head, point, Turn(), lines=[], also=journal.listing(hold, head.next_seq)).send()()

    Run.objects.filter(id=hold.id).update(wakes=hold.wakes + 1)
    with pytest.raises(Moved):
        commit()
    assert TaskResult.objects.get(run=hold.id).seq is None
    ledger.look_again(hold)
    commit()
    assert TaskResult.objects.get(run=hold.id).seq == 1


def test_of_two_attempts_that_began_each_has_its_row_or_nothing_is_done(hold: Hold) -> None:
    head = loading.load(hold)
    journal.begin(hold, [_intent()])
    journal.begin(hold, [_intent(attempt=2)])
    assert list(journal.in_hand(hold, head)) == [SEND]
    remove(TaskResult.objects.get(run=hold.id, attempt=2))
    with pytest.raises(TamperedRow, match="2 attempts of send:1:0 began, and 1 are there"):
        journal.in_hand(hold, head)


def test_an_intent_follows_a_log_that_moved_and_its_hold_says_so(hold: Hold) -> None:
    ledger.write_lines(Run.objects.get(id=hold.id), [Draft("warning")], at=timezone.now())
    hold.moved = False
    journal.begin(hold, [_intent()])
    assert hold.moved
    kinds = RunEvent.objects.filter(run=hold.id).order_by("seq").values_list("type", flat=True)
    assert list(kinds) == ["run_started", "warning", "effects_started"]


def test_what_a_waiting_superstep_has_begun_is_asked_for_though_no_line_came_since(hold: Hold) -> None:
    head = loading.load(hold)
    journal.begin(hold, [_intent()])
    waiting = replace(head, logged=hold.end.seq, payload=replace(head.payload, open={"superstep": 1}))
    assert list(journal.in_hand(hold, waiting)) == [SEND]
    remove(TaskResult.objects.get(run=hold.id))
    with pytest.raises(TamperedRow, match="1 attempts of send:1:0 began, and 0 are there"):
        journal.in_hand(hold, waiting)
