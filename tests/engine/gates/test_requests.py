"""What a request says after one of its writes was edited."""

from typing import Any

from orchestrator.engine import Fact, Gate
from orchestrator.engine.gates.requests import ShownWrite, texts_after_edit

STATE: Any = {"scratch": {"payout": {"amount": 1}, "other": 5}, "artifacts": {}}


def _texts(gate: Gate, facts: list[Any]) -> dict[str, Any]:
    writes = [ShownWrite("payout", {"amount": 900}, None)]
    return texts_after_edit(
        gate, node="ask", input={}, state=STATE, writes=writes, facts=facts
    )


def test_a_title_that_reads_the_proposal_is_made_anew() -> None:
    assert _texts(Gate(reviewers=["user:ann"], title="Pay {payout.amount}?"), []) == {
        "title": "Pay 900?",
        "facts": [],
    }


def test_a_fact_that_reads_no_proposal_stays_as_it_was() -> None:
    gate = Gate(
        reviewers=["user:ann"],
        facts=[Fact("Amount", "payout.amount"), Fact("Other", "other")],
    )
    old = [{"label": "Amount", "value": 1}, {"label": "Other", "value": 4}]
    found = _texts(gate, old)["facts"]
    assert [one["value"] for one in found] == [900, 4]


def test_where_no_text_reads_the_proposal_nothing_changes() -> None:
    assert _texts(Gate(reviewers=["user:ann"], title="Pay?"), []) == {}
