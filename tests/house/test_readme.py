"""What the first page shows is true."""

import re
from typing import Any

import pytest

from orchestrator.engine import play
from tests.house.commands import ROOT

INPUT = {"claim_id": "CLM-1", "amount": "12.50"}
APPROVE = ("approve", None)
REJECT = ("reject", None)


@pytest.fixture
def graph() -> Any:
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(block, "README.md", "exec"), names)
    return names["graph"]


def test_the_first_graph_waits_for_a_person(graph: Any) -> None:
    assert play(graph, INPUT).status == "paused"


def test_the_first_graph_pays_what_was_approved(graph: Any) -> None:
    played = play(graph, INPUT, decisions=lambda request: {0: APPROVE, 1: APPROVE})
    assert played.status == "completed"
    assert played.state.paid == "12.50"


def test_the_first_graph_pays_what_an_edit_made_of_it(graph: Any) -> None:
    played = play(
        graph,
        INPUT,
        decisions=lambda request: {0: ("edit", {"amount": "10.00"}), 1: APPROVE},
    )
    assert played.status == "completed"
    assert played.state.paid == "10.00"


def test_the_first_graph_pays_nothing_when_one_write_was_rejected(graph: Any) -> None:
    played = play(graph, INPUT, decisions=lambda request: {0: APPROVE, 1: REJECT})
    assert played.status == "completed"
    assert played.state.paid == ""
