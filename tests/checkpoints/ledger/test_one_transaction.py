"""One commit is one transaction, however many rows it has."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from checkpoints.event_log import NewEvent
from checkpoints.ledger import commit as ledger
from checkpoints.models import Run, RunEvent
from orchestrator.engine import END, START
from tests.support.small_graphs import graph, held, started

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def _inserts_break() -> Iterator[None]:
    """The connection breaks at statements that only insert."""

    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("INSERT INTO"):
            raise OperationalError("the connection broke")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse):
        yield


def test_a_commit_of_many_lines_that_breaks_between_its_statements_leaves_nothing() -> (
    None
):
    flow = graph("many_lines")
    flow.node("a")(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.edge("a", END)
    run = started(flow)
    lease = held(run)
    events = [NewEvent("warning", {"n": n}) for n in range(600)]
    before = Run.objects.values("event_seq", "event_hash", "seal").get(id=run.id)
    with _inserts_break(), pytest.raises(OperationalError):
        ledger.append_events(lease, events)
    assert (
        Run.objects.values("event_seq", "event_hash", "seal").get(id=run.id) == before
    )
    ledger.append_events(lease, events)
    assert (
        RunEvent.objects.filter(run=run).count()
        == 601
        == Run.objects.get(id=run.id).event_seq
    )
