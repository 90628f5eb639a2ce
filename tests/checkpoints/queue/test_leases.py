"""Who may write to a run now: each statement of a worker who lost his lease while
another works on changes nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Ending
from checkpoints.ledger import commit as ledger
from checkpoints.ledger import head_loader
from checkpoints.ledger.commit import ConcurrentUpdate, NewCheckpoint, RunUpdate
from checkpoints.models import (
    AuditLine,
    Checkpoint,
    LateResult,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.queue import leases, notify
from checkpoints.queue.due_runs import Claimable
from checkpoints.queue.leases import Lease
from orchestrator import runs
from orchestrator.engine import END, START, Task
from orchestrator.engine.errors import StaleLease
from tests.support.forging import rewrite
from tests.support.small_graphs import expire_lease, graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)
SEND = Task("send", 1)


def _run() -> Run:
    """A queued run of one node with an effect."""
    flow = graph("leased")

    @flow.node(effect="write")
    def send(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "sent"}

    flow.edge(START, "send")
    flow.edge("send", END)
    return started(flow)


def _intent(attempt: int = 1) -> Intent:
    return Intent(SEND, attempt, "write", "0" * 64, 1.0)


@pytest.fixture
def lost() -> Lease:
    """A hold with an open intent, whose run another worker has begun since; the log has
    not moved.
    """
    run = _run()
    lease = held(run)
    journal.write_intents(lease, [_intent()])
    expire_lease(run)
    held(run)
    return lease


def _commit(lease: Lease) -> None:
    head = head_loader.load_head(lease)
    ledger.commit_superstep(
        lease, head, NewCheckpoint("superstep", head.payload, 1), RunUpdate(), events=[]
    )


def _work() -> dict[str, Any]:
    AuditLine.objects.create(kind="work_of_the_node", at=timezone.now())
    return {"writes": []}


ACTS: dict[str, Callable[[Lease], Any]] = {
    "commit a superstep": _commit,
    "stop": lambda lease: ledger.stop_run(
        lease, RunUpdate(Status.FAILED), events=[NewEvent("run_failed")]
    ),
    "append": lambda lease: ledger.append_events(lease, [NewEvent("warning")]),
    "look again": ledger.refresh_lease,
    "write an intent": lambda lease: journal.write_intents(lease, [_intent(2)]),
    "record a result": lambda lease: journal.write_results(
        lease, [Ending(SEND, 1, "done", {"writes": []})]
    ),
    "do atomic work": lambda lease: journal.run_atomically(lease, SEND, 1, _work),
}


def _rows(run: Any) -> list[Any]:
    results = TaskResult.objects.filter(run=run).order_by("id")
    return [
        Run.objects.values(
            "status", "epoch", "event_seq", "head", "lease_until", "leased_by", "wakes"
        ).get(id=run),
        Checkpoint.objects.filter(run=run).count(),
        RunEvent.objects.filter(run=run).count(),
        list(results.values_list("attempt", "outcome", "output")),
        AuditLine.objects.count(),
    ]


@pytest.mark.parametrize("act", ACTS)
def test_who_lost_his_lease_to_a_worker_that_is_at_work_changes_nothing(
    act: str, lost: Lease
) -> None:
    before = _rows(lost.id)
    with pytest.raises(StaleLease):
        ACTS[act](lost)
    assert _rows(lost.id) == before
    assert LateResult.objects.count() == (1 if act == "record a result" else 0), (
        "evidence, where there is some"
    )


def test_who_lost_his_lease_neither_lengthens_nor_ends_that_of_the_other(
    lost: Lease,
) -> None:
    before = _rows(lost.id)
    assert not leases.heartbeat(lost.id, lost.epoch, progress=b"\x01{}")
    assert not leases.give_back(lost.id, lost.epoch)
    assert _rows(lost.id) == before


def test_a_claim_begins_once_and_a_second_begin_undoes_nothing() -> None:
    claim = leases.claim_one(_run().id)
    assert claim is not None
    first = leases.begin_lease(claim.id, claim.epoch)
    assert first is not None
    assert first.epoch == claim.epoch + 1
    assert leases.begin_lease(claim.id, claim.epoch) is None


def test_atomic_work_of_an_attempt_that_was_closed_meanwhile_is_undone() -> None:
    lease = held(_run())
    journal.write_intents(lease, [_intent()])
    rewrite(TaskResult.objects.get(), outcome="failed")
    with pytest.raises(StaleLease):
        journal.run_atomically(lease, SEND, 1, _work)
    assert not AuditLine.objects.exists()
    assert TaskResult.objects.get().outcome == "failed"


def test_the_next_attempt_closes_the_one_before_and_its_result_is_evidence_only() -> (
    None
):
    lease = held(_run())
    journal.write_intents(lease, [_intent()])
    journal.write_intents(lease, [_intent(2)])
    late = Ending(SEND, 1, "done", {"writes": ["late"]})
    assert journal.write_results(lease, [late]) == [late]
    first = TaskResult.objects.get(attempt=1)
    assert first.outcome == "failed"
    assert bytes(first.output) == b""
    assert LateResult.objects.get().attempt == 1
    assert journal.write_results(lease, [replace(late, attempt=2)]) == []


def test_a_result_is_recorded_once() -> None:
    lease = held(_run())
    journal.write_intents(lease, [_intent()])
    first, second = (
        Ending(SEND, 1, "done", {"writes": [n]}) for n in ("first", "second")
    )
    assert journal.write_results(lease, [first]) == []
    assert journal.write_results(lease, [second]) == [second]
    assert journal.entries(lease)[SEND].output == {"writes": ["first"]}


_SOON = timedelta(seconds=20)
_AGO = timedelta(seconds=-20)


@pytest.mark.parametrize(
    ("status", "due", "lease", "wanted"),
    [
        (Status.QUEUED, None, None, True),
        (Status.QUEUED, _AGO, None, True),
        (Status.QUEUED, _SOON, None, False),
        (Status.WAITING, _AGO, None, True),
        (Status.WAITING, _SOON, None, False),
        (Status.WAITING, None, None, False),
        (Status.RUNNING, None, _AGO, True),
        (Status.RUNNING, None, _SOON, False),
        *(
            (status, _AGO, _AGO, False)
            for status in Status
            if status not in ("queued", "waiting", "running")
        ),
    ],
)
def test_a_run_is_claimed_when_it_wants_a_worker_and_not_before(
    status: str, due: timedelta | None, lease: timedelta | None, wanted: bool
) -> None:
    run = _run()
    now = timezone.now()
    Run.objects.filter(id=run.id).update(
        status=status,
        due_at=now + due if due else None,
        lease_until=now + lease if lease else None,
    )
    only = Claimable(frozenset({run.fingerprint}), frozenset())
    assert leases.any_run_due(only) is wanted
    assert [lease.id for lease in leases.claim(worker=None, limit=5, only=only)] == (
        [run.id] if wanted else []
    )
    run.refresh_from_db()
    assert run.epoch == (1 if wanted else 0)


def test_a_run_of_a_graph_that_this_process_does_not_have_is_left_to_others() -> None:
    _run()
    assert (
        leases.claim(
            worker=None,
            limit=5,
            only=Claimable(frozenset({"f" * 64}), frozenset({"other"})),
        )
        == []
    )


@pytest.mark.parametrize("status", list(Status))
def test_a_wake_queues_a_run_that_rests_and_moves_no_other(status: str) -> None:
    run = _run()
    Run.objects.filter(id=run.id).update(status=status, due_at=None, epoch=7)
    notify.wake(run.id)
    run.refresh_from_db()
    rested = status in (Status.PAUSED, Status.WAITING)
    assert run.status == (Status.QUEUED if rested else status)
    assert (run.due_at is not None) is rested
    assert run.wakes == 1
    assert run.epoch == 7


@pytest.mark.parametrize(
    "rest", [RunUpdate(Status.PAUSED), RunUpdate(Status.WAITING, due_in=3600.0)]
)
@pytest.mark.parametrize("woken", [False, True])
def test_a_worker_cannot_let_a_run_rest_after_a_wake_that_he_has_not_seen(
    rest: RunUpdate, woken: bool
) -> None:
    run = _run()
    lease = held(run)
    if woken:
        notify.wake(run.id)
        with pytest.raises(ConcurrentUpdate):
            ledger.stop_run(lease, rest, events=[])
        ledger.refresh_lease(lease)
    ledger.stop_run(lease, rest, events=[])
    run.refresh_from_db()
    assert run.status == rest.status
    assert run.lease_until is None
    assert run.leased_by is None
    assert leases.claim_one(run.id) is None


def test_progress_sets_the_count_of_claims_back() -> None:
    run = _run()
    held(run)
    expire_lease(run)
    lease = held(run)
    assert lease.claims == 2
    _commit(lease)
    run.refresh_from_db()
    assert run.claims_since_progress == 0


def test_a_run_that_gets_no_further_with_an_effect_under_way_is_unknown_not_failed() -> (
    None
):
    run = _run()
    journal.write_intents(held(run), [_intent()])
    for _ in range(5):
        expire_lease(run)
        held(run)
    expire_lease(run)
    run = runs.advance(run.id)
    assert run.status == Status.UNKNOWN
    assert run.error_code == "poison"
    assert TaskResult.objects.get().outcome == "unknown"
