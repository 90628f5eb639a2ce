"""An automatic policy: when it signs, and what a changed one means."""

from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.graphs.auto import (
    REMOVED,
    auto_policy,
    reservation,
    with_auto_of,
)
from orchestrator.engine.values.functions import name_of
from orchestrator.engine.versions.gate_differences import gate_changes


def always(state: Any, proposal: Any) -> bool:
    return True


@pytest.mark.parametrize("answer", [False, None, 0, 1, "", " ", "no", [1], object()])
def test_only_the_literal_true_signs(answer: Any) -> None:
    def answering(state: Any, proposal: Any) -> Any:
        return answer

    name = name_of(answering)
    assert reservation(Gate(auto=answering), name, None, None)
    assert reservation(Gate(auto=always), "always", None, None) is None


def test_another_one_than_the_request_was_opened_under_signs_nothing() -> None:
    gate = Gate(auto=always)
    assert "opened under other" in str(reservation(gate, "other", None, None))
    assert with_auto_of(gate, {"auto": "always"}) is gate
    assert with_auto_of(gate, {"auto": "other"}).auto is None
    assert with_auto_of(gate, {}).auto is None


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1)])
def test_one_that_breaks_signs_nothing(error: BaseException) -> None:
    def breaking(state: Any, proposal: Any) -> bool:
        raise error

    name = name_of(breaking)
    assert "failed" in str(reservation(Gate(auto=breaking), name, None, None))


def test_one_that_is_gone_signs_nothing() -> None:
    assert reservation(None, "x", None, None) == REMOVED
    assert reservation(Gate(), "x", None, None) == REMOVED
    assert auto_policy(Gate()) == {}
    assert auto_policy(Gate(auto=always)) == {"auto": "always"}


@pytest.mark.parametrize(
    ("before", "after", "weaker"),
    [(None, "always", True), ("always", None, False), ("always", "other", True)],
)
def test_a_policy_that_comes_or_changes_makes_a_gate_weaker(
    before: Any, after: Any, weaker: bool
) -> None:
    def node(auto: Any) -> dict[str, Any]:
        gate = {
            "reviewers": ["user:ann"],
            "quorum": 1,
            "reject_quorum": 1,
            "four_eyes": False,
            "all_or_nothing": False,
            "needs_approval": None,
            "shows": [],
            "writes": [],
            "reason_required": [],
        }
        if auto:
            gate["auto"] = auto
        return {"approve": "writes", "gate": gate}

    [change] = gate_changes(node(before), node(after))
    assert change.weaker is weaker
