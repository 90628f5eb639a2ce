"""A veto: what it answers, and what a changed one means."""

from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.errors import DeadlinePassed
from orchestrator.engine.graphs.veto import (
    REMOVED,
    objection,
    veto_policy,
    with_veto_of,
)
from orchestrator.engine.versions.gate_differences import gate_changes


def never(state: Any, proposal: Any) -> bool:
    return False


@pytest.mark.parametrize("answer", [True, None, 0, 1, "", " ", [], "no", object()])
def test_only_the_literal_false_lets_something_pass(answer: Any) -> None:
    assert objection(Gate(veto=lambda state, proposal: answer), None, None)
    assert objection(Gate(veto=never), None, None) is None


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(1), DeadlinePassed("late")]
)
def test_one_that_breaks_lets_nothing_pass(error: BaseException) -> None:
    def breaking(state: Any, proposal: Any) -> bool:
        raise error

    assert "failed" in str(objection(Gate(veto=breaking), None, None))


class OddText(str):
    """A text whose methods fail."""

    def strip(self, *args: Any) -> str:
        raise ValueError("strip")

    def __str__(self) -> str:
        raise ValueError("str")

    def __len__(self) -> int:
        raise ValueError("len")


@pytest.mark.parametrize(
    ("text", "reason"), [("no", "no"), (" ", "its veto odd said OddText")]
)
def test_a_text_of_a_class_of_its_own_is_taken_as_plain_text(
    text: str, reason: str
) -> None:
    def odd(state: Any, proposal: Any) -> str:
        return OddText(text)

    odd.__qualname__ = "odd"
    said = objection(Gate(veto=odd), None, None)
    assert said == reason
    assert type(said) is str


def test_one_that_is_gone_lets_nothing_pass() -> None:
    assert objection(None, None, None) == REMOVED
    assert objection(Gate(), None, None) == REMOVED


def test_the_policy_says_whether_there_is_one() -> None:
    assert veto_policy(Gate()) == {}
    policy = veto_policy(Gate(veto=never))
    assert policy == {"veto": "never"}
    assert with_veto_of(Gate(veto=never), policy).veto is never
    assert with_veto_of(Gate(veto=never), {}).veto is None


def always(state: Any, proposal: Any) -> bool:
    return False


@pytest.mark.parametrize(
    ("gate", "words"),
    [(Gate(), "has no veto any more"), (Gate(veto=always), "another veto now, always")],
)
def test_what_stands_for_a_veto_lets_nothing_pass_and_keeps_its_name(
    gate: Gate, words: str
) -> None:
    policy = veto_policy(Gate(veto=never))
    asking = with_veto_of(gate, policy)
    assert words in str(objection(asking, None, None))
    # So a version that has the old one again lets it decide.
    assert veto_policy(asking) == policy


@pytest.mark.parametrize(
    ("before", "after", "words", "weaker"),
    [
        (None, "never", "its veto: none became never", False),
        ("never", None, "its veto: never became none", True),
        ("never", "other", "its veto: never became other", True),
    ],
)
def test_a_veto_that_goes_or_changes_makes_a_gate_weaker(
    before: Any, after: Any, words: str, weaker: bool
) -> None:
    def node(veto: Any) -> dict[str, Any]:
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
        return {
            "approve": "writes",
            "gate": {**gate, **({"veto": veto} if veto else {})},
        }

    [change] = gate_changes(node(before), node(after))
    assert (change.words, change.weaker) == (words, weaker)
