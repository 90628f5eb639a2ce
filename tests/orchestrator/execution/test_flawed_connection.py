"""A connection that saw an error earlier serves a slice like any other: nothing runs
twice.
"""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from checkpoints.models import Run
from orchestrator import runs
from tests.support.chain import join_in_a_row
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


def test_after_an_error_on_the_connection_pure_nodes_run_once() -> None:
    ran: list[str] = []
    flow = graph("pure_after_error")

    def note(state: Any, ctx: Any) -> dict[str, Any]:
        ran.append(ctx.node)
        return {"notes": [ctx.node]}

    names = [f"n{n}" for n in range(6)]
    for name in names:
        flow.node(name)(note)
    join_in_a_row(flow, *names)
    registered(flow)
    assert runs.advance(runs.start("pure_after_error", {}).id).status == "completed"
    ran.clear()
    run = runs.start("pure_after_error", {}, key="once")
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.create(id=run.id, graph="x", version="1", key="other")
    assert runs.advance(run.id).status == "completed"
    assert ran == names
