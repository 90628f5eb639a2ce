"""What a request says after one of its writes was edited, and which gate asks as much as
another.
"""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from orchestrator.engine import Fact, Gate
from orchestrator.engine.gates.requests import ShownWrite, covers, texts_after_edit

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
    facts = _texts(gate, old)["facts"]
    assert [fact["value"] for fact in facts] == [900, 4]


def test_where_no_text_reads_the_proposal_nothing_changes() -> None:
    assert _texts(Gate(reviewers=["user:ann"], title="Pay?"), []) == {}


def _whom_the_state_names(state: Any) -> list[str]:
    return ["group:clerks"]


def _covers(gate: Gate, other: Gate) -> bool:
    compiled: Any = SimpleNamespace(graph=SimpleNamespace(reviewers=None))
    return covers(compiled, gate, other)


def _asks_later(who: str, reviewers: Any = _whom_the_state_names) -> Gate:
    return Gate(reviewers=reviewers, tiers=[(timedelta(hours=1), "escalate", who)])


def test_a_gate_that_asks_others_later_covers_none_that_never_asks_them() -> None:
    plain = Gate(reviewers=_whom_the_state_names)
    assert not _covers(_asks_later("group:interns"), plain)
    assert _covers(plain, _asks_later("group:interns"))
    assert _covers(_asks_later("group:interns"), _asks_later("group:interns"))


def test_who_is_asked_later_does_not_cover_who_is_asked_at_once() -> None:
    leads = Gate(reviewers=["group:leads"])
    later = _asks_later("group:leads", ["group:clerks"])
    assert not _covers(leads, later)
    both = Gate(reviewers=["group:clerks", "group:leads"])
    assert _covers(later, both)
