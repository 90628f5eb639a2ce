"""Marks, looks and turns of the ledger: whom each touches, and what becomes of a wake
that comes while a run turns.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import locked_run
from checkpoints.ledger.commit import ConcurrentUpdate, RunUpdate
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.queue import notify
from checkpoints.queue.leases import Lease
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START
from orchestrator.engine.errors import StaleLease, TamperedRow
from orchestrator.execution import cancellation
from tests.support.forging import tamper
from tests.support.large_states import large, last
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import (
    advanced,
    expire_lease,
    graph,
    held,
    single_node,
    slice_of,
    started,
)

pytestmark = pytest.mark.django_db(transaction=True)

FOUND = {"code": "tampered_row", "message": "a row is not as it was sealed"}


def columns(run: Run) -> dict[str, Any]:
    return Run.objects.values().get(id=run.id)


# Tampered


def test_a_worker_whose_lease_was_taken_over_condemns_nothing() -> None:
    run = started(single_node("taken"))
    lease = held(run)
    expire_lease(run)
    held(run)
    before = columns(run)
    ledger.stop_as_tampered(lease, FOUND)
    assert columns(run) == before


def test_a_run_that_rests_meanwhile_is_not_condemned_by_whoever_had_it() -> None:
    run = started(single_node("rested"))
    lease = held(run)
    ledger.stop_run(lease, RunUpdate(Status.PAUSED), events=[])
    before = columns(run)
    ledger.stop_as_tampered(lease, FOUND)
    assert columns(run) == before


def test_its_holder_condemns_a_run_and_writes_no_line() -> None:
    run = started(single_node("condemned"))
    lease = held(run)
    events = RunEvent.objects.filter(run=run).count()
    ledger.stop_as_tampered(lease, FOUND)
    run.refresh_from_db()
    assert run.status == "tampered"
    assert run.error_code == "tampered_row"
    assert run.lease_until is None
    assert run.due_at is None
    assert RunEvent.objects.filter(run=run).count() == events


def test_a_run_that_nobody_holds_is_marked_and_due_no_more() -> None:
    run = started(single_node("marked"))
    assert locked_run.mark_tampered(run.id, TamperedRow("it was changed"))
    run.refresh_from_db()
    assert run.status == "tampered"
    assert run.error_code == "tampered_row"
    assert run.due_at is None


def test_a_run_is_marked_once_and_keeps_what_it_was_marked_for() -> None:
    run = started(single_node("marked"))
    assert locked_run.mark_tampered(run.id, TamperedRow("it was changed"))
    before = columns(run)
    assert not locked_run.mark_tampered(run.id, TamperedRow("another row was changed"))
    assert columns(run) == before
    assert not locked_run.mark_tampered(uuid4(), TamperedRow("it was changed"))


def test_a_run_that_is_held_is_left_to_its_holder() -> None:
    run = started(single_node("held"))
    held(run)
    before = columns(run)
    locked_run.mark_tampered(run.id, TamperedRow("it was changed"))
    assert columns(run) == before


def test_a_run_that_has_ended_stays_as_it_ended() -> None:
    run = advanced(single_node("ended"))
    before = columns(run)
    locked_run.mark_tampered(run.id, TamperedRow("it was changed"))
    assert columns(run) == before


# Looking again


def _moved(run: Run) -> Lease:
    """A hold whose run's log somebody else has lengthened."""
    lease = held(run)
    locked_run.append_locked(
        Run.objects.get(id=run.id), [NewEvent("warning")], at=timezone.now()
    )
    with pytest.raises(ConcurrentUpdate):
        ledger.append_events(lease, [NewEvent("warning")])
    return lease


def test_whoever_looks_again_goes_on_from_where_the_log_is_now() -> None:
    lease = _moved(started(single_node("looks")))
    ledger.refresh_lease(lease)
    ledger.append_events(lease, [NewEvent("warning")])
    assert [
        line.seq for line in RunEvent.objects.filter(run=lease.id).order_by("seq")
    ] == [1, 2, 3]


@pytest.mark.parametrize(
    "forged",
    [{"decisions": 1}, {"event_hash": "0" * 64}, {"head_hash": "0" * 64}],
    ids=str,
)
def test_whoever_looks_again_refuses_a_row_that_was_changed_by_hand(
    forged: dict[str, Any],
) -> None:
    lease = _moved(started(single_node("forged")))
    Run.objects.filter(id=lease.id).update(**forged)
    with pytest.raises(TamperedRow):
        ledger.refresh_lease(lease)


def test_who_lost_his_lease_while_the_log_moved_finds_that_out_by_looking() -> None:
    run = started(single_node("loses"))
    lease = _moved(run)
    expire_lease(run)
    held(run)
    with pytest.raises(StaleLease):
        ledger.refresh_lease(lease)


@pytest.mark.parametrize(
    "act",
    [
        lambda lease: ledger.append_events(lease, [NewEvent("warning")]),
        lambda lease: ledger.stop_run(lease, RunUpdate(Status.FAILED), events=[]),
    ],
)
def test_whose_run_was_stopped_under_him_has_lost_it(
    act: Callable[[Lease], None],
) -> None:
    run = started(single_node("stopped"))
    lease = held(run)
    Run.objects.filter(id=run.id).update(status=Status.PAUSED)
    before = columns(run)
    with pytest.raises(StaleLease):
        act(lease)
    assert columns(run) == before


# Turning


@pytest.mark.parametrize("status", [Status.PAUSED, Status.WAITING])
def test_a_run_that_was_woken_while_it_turned_to_rest_is_looked_at_before_it_rests(
    status: Status,
) -> None:
    run = started(single_node("woken"))
    lease = held(run)
    notify.wake(run.id)
    before = columns(run)
    with pytest.raises(ConcurrentUpdate):
        ledger.stop_run(lease, RunUpdate(status), events=[])
    assert columns(run) == before
    ledger.refresh_lease(lease)
    ledger.stop_run(lease, RunUpdate(status), events=[])
    run.refresh_from_db()
    assert run.status == status


def test_a_lease_is_refreshed_in_one_query() -> None:
    run = started(single_node("refreshed"))
    lease = held(run)
    notify.wake(run.id)
    with CaptureQueriesContext(connection) as sent:
        ledger.refresh_lease(lease)
    assert len(sent) == 1


def test_a_run_that_nobody_woke_rests_until_it_is_due() -> None:
    run = started(single_node("rests"))
    ledger.stop_run(held(run), RunUpdate(Status.WAITING, due_in=3600.0), events=[])
    run.refresh_from_db()
    assert run.status == Status.WAITING
    assert run.due_at is not None
    assert 3590 < (run.due_at - timezone.now()).total_seconds() <= 3600


def test_adding_lines_makes_the_lease_whole_again(configure: Any) -> None:
    configure(LEASE_SECONDS=60)
    run = started(single_node("lengthens"))
    lease = held(run)
    Run.objects.filter(id=run.id).update(
        lease_until=timezone.now() + timedelta(seconds=1)
    )
    ledger.append_events(lease, [NewEvent("warning")])
    run.refresh_from_db()
    assert run.lease_until is not None
    assert (run.lease_until - timezone.now()).total_seconds() > 50


def test_a_run_that_is_resumed_has_all_its_tries_again_and_was_woken() -> None:
    def fails(state: Any, ctx: Any) -> None:
        raise ValueError("broken")

    run = advanced(single_node("resumed", fails))
    Run.objects.filter(id=run.id).update(claims_since_progress=4)
    before = columns(run)
    run = runs.resume(run.id)
    assert run.status == Status.QUEUED
    assert run.claims_since_progress == 0
    assert run.error_code == ""
    assert run.wakes == before["wakes"] + 1
    assert verify_run(run.id) == []


# The last row stays


def test_the_last_row_of_a_cancelled_run_is_not_sealed_anew_where_it_was_changed(
    configure: Any,
) -> None:
    configure(SLICE_SECONDS=1e-9)
    run = slice_of(started(large("keeps", "abcd", checkpoints="none")))
    head = last(run)
    assert not head.kept
    tamper(head, nodes=[])
    with pytest.raises(TamperedRow):
        runs.cancel(run.id)
    assert not Checkpoint.objects.get(id=head.id).kept


# Under the lock, and without a key


@pytest.mark.parametrize(
    "forged", [{"decisions": 1}, {"event_hash": "0" * 64}, {"line": 2}], ids=str
)
def test_nobody_acts_on_a_run_whose_row_was_changed_by_hand(
    forged: dict[str, Any],
) -> None:
    run = started(single_node("locked"))
    Run.objects.filter(id=run.id).update(**forged)
    with transaction.atomic(), pytest.raises(TamperedRow):
        locked_run.lock_run(run.id)


def test_a_run_whose_key_is_gone_says_by_its_code_alone_why_it_stopped(
    settings: Any,
) -> None:
    settings_before = settings.COUNTERSIGN
    settings.COUNTERSIGN = {**settings_before, **ONE_KEY}
    flow = graph("keyless", encrypted=True)
    flow.node("work")(lambda state, ctx: None)
    flow.edge(START, "work")
    flow.edge("work", END)
    run = started(flow)
    lease = held(run)
    settings.COUNTERSIGN = settings_before
    ledger.stop_as_tampered(lease, FOUND)
    run.refresh_from_db()
    assert run.status == "tampered"
    assert run.error_code == "tampered_row"
    assert bytes(run.error) == b""


def test_a_cancel_that_was_asked_for_is_left_to_whoever_has_the_run_in_hand() -> None:
    run = started(single_node("in_hand"))
    held(run)
    runs.cancel(run.id)
    cancellation.conclude_cancel(run.id)
    run.refresh_from_db()
    assert run.status == Status.RUNNING
    assert run.cancel_at is not None
    expire_lease(run)
    cancellation.conclude_cancel(run.id)
    run.refresh_from_db()
    assert run.status == Status.CANCELLED
