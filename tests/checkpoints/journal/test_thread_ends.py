"""When the thread of an attempt ended is sealed with its row, under the lock of the run
as all that seals it anew.
"""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints.journal import results
from checkpoints.models import Run, TaskResult
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine import END, START, Task
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_run_is_locked_before_its_result_is_sealed_anew() -> None:
    flow = graph("ends")
    flow.node("act", effect="write")(lambda state, ctx: {"total": 1})
    flow.edge(START, "act")
    flow.edge("act", END)
    registered(flow)
    run = runs.advance(runs.start("ends", {}).id)
    with CaptureQueriesContext(connection) as seen:
        results.note_thread_ended(run.id, run.line, Task("act", 1), 1)
    texts = [query["sql"] for query in seen]
    locking = [sql for sql in texts if "FOR UPDATE" in sql]
    if connection.vendor == "postgresql":
        assert [
            Run._meta.db_table in locking[0],
            TaskResult._meta.db_table in locking[1],
        ] == [True, True]
    row = TaskResult.objects.get(run=run)
    assert row.thread_ended_at is not None
    sealed_rows.verify_row(row, protection_of(run))
