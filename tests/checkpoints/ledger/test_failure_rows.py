"""Where snapshots are counted, a load reads no more rows than that, failure rows
included.
"""

import pytest

from checkpoints.ledger import reader
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_run_that_failed_often_loads_from_as_few_rows_as_its_graph_says():
    flow = graph("failing", snapshot=2)

    @flow.node()
    def first(state, ctx):
        return {"letter": "w" * 5000}

    @flow.node()
    def a(state, ctx):
        raise ConnectionError("no")

    flow.edge(START, "first")
    flow.edge("first", "a")
    flow.edge("a", END)
    run = advanced(flow)
    for _ in range(20):
        runs.resume(run.id)
        run = runs.advance(run.id)
    assert len(reader.range_of(Run.objects.get(id=run.id).head)) <= 2
