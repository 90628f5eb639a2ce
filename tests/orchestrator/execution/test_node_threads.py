"""What one node leaves behind in its thread is not the next node's to find; what it
reports never costs the lease.
"""

import queue
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from checkpoints.core.status import Status
from checkpoints.ledger import head_loader
from checkpoints.models import LateResult
from checkpoints.queue import leases
from orchestrator.engine import END, START, Task, registry
from orchestrator.engine.step.plan import Start
from orchestrator.execution.attempt import Attempt, SuperstepContext
from orchestrator.execution.heartbeat import Heartbeat
from tests.support.processes import until
from tests.support.small_graphs import advanced, graph, held, single_node, started

pytestmark = pytest.mark.django_db(transaction=True)


def _leaves_a_transaction_open(state: Any, ctx: Any) -> None:
    transaction.atomic().__enter__()
    User.objects.create(username="left")


def _ends_autocommit(state: Any, ctx: Any) -> None:
    transaction.set_autocommit(False)
    User.objects.create(username="left")


@pytest.mark.parametrize("broken", [_leaves_a_transaction_open, _ends_autocommit])
def test_a_node_that_leaves_its_connection_in_a_transaction_does_not_break_the_nodes_after_it(
    broken: Any,
) -> None:
    seen: list[tuple[bool, bool]] = []

    def after(state: Any, ctx: Any) -> None:
        User.objects.create(username=f"user-{len(seen)}")
        seen.append((connection.get_autocommit(), connection.in_atomic_block))

    advanced(single_node("breaks", broken))
    for _ in range(2):
        assert advanced(single_node("after", after)).status == Status.COMPLETED
    assert seen == [(True, False), (True, False)]
    assert sorted(User.objects.values_list("username", flat=True)) == [
        "user-0",
        "user-1",
    ]


def test_a_late_result_is_kept_though_its_node_left_a_transaction_open() -> None:
    leaving = threading.Event()

    def late(state: Any, ctx: Any) -> None:
        _leaves_a_transaction_open(state, ctx)
        leaving.wait(10)

    flow = graph("late")
    flow.node("work", effect="external", timeout=0.3)(late)
    flow.edge(START, "work")
    flow.edge("work", END)
    assert advanced(flow).status == Status.UNKNOWN
    leaving.set()
    until(LateResult.objects.exists, seconds=10)


@pytest.mark.parametrize(
    "report",
    [2**70, float("nan"), "\x00", object()],
    ids=["long", "nan", "nul", "object"],
)
def test_a_report_that_no_row_can_hold_does_not_end_the_heartbeat(
    configure: Any, report: Any
) -> None:
    configure(LEASE_SECONDS=1.0)
    run = started(single_node("reports", lambda state, ctx: None))
    lease = held(run)
    with Heartbeat(lease) as heart:
        heart.report({"task": "work:1:0", "done": report, "total": 1, "note": ""})
        threading.Event().wait(2.0)
        assert leases.is_held(run.id)


def test_an_attempt_that_was_given_up_before_it_began_does_not_begin() -> None:
    called: list[str] = []
    lease = held(
        started(single_node("given-up", lambda state, ctx: called.append("work")))
    )
    compiled = registry.by_fingerprint(lease.fingerprint)
    head = head_loader.load_head(lease)
    context = SuperstepContext(
        lease, compiled, head.payload.state, {}, Heartbeat(lease)
    )
    results: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
    for give_up in (True, False):
        start = Start(Task("work", 1))
        node = compiled.nodes["work"]
        attempt = Attempt(context, start, node, 1, 1, 60.0, results)
        if give_up:
            attempt.leave()
        attempt.work()
        assert called == ([] if give_up else ["work"])
    assert results.get_nowait() is attempt
    assert results.empty()
