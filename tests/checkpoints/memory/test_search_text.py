"""What is searched for in memory is text that every row can hold."""

from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from orchestrator.engine import END, START
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("text", ["a \ud800 b", "a \x00 b"], ids=["surrogate", "nul"])
@pytest.mark.parametrize("effect", ["external", "pure"])
def test_a_search_for_text_that_no_row_can_hold_fails_the_run_by_name(
    text: str, effect: str
) -> None:
    flow = graph(f"asks-{effect}-{len(text)}-{ord(text[2])}")

    @flow.node(effect=effect)
    def asks(state: Any, ctx: Any) -> Any:
        ctx.memory.search(text, "notes")
        return {"letter": "x"}

    flow.edge(START, "asks")
    flow.edge("asks", END)
    run = advanced(flow)
    assert run.status == (Status.FAILED if effect == "pure" else Status.UNKNOWN)
    assert "text holds" in str(run_error.stored_error(run))
