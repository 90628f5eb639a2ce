"""The differences between two gates in what signs there by itself."""

from typing import Any

import pytest

from orchestrator.engine.versions.gate_differences import gate_changes


def node(**options: Any) -> dict[str, Any]:
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
        **options,
    }
    return {"approve": "writes", "gate": gate}


def test_to_permit_standing_policies_makes_a_gate_weaker() -> None:
    [change] = gate_changes(node(), node(standing=True))
    assert change.weaker
    [change] = gate_changes(node(standing=True), node())
    assert not change.weaker


@pytest.mark.parametrize(
    ("before", "after", "weaker"), [(600, 60, True), (60, 600, False)]
)
def test_a_shorter_window_makes_a_gate_weaker(
    before: int, after: int, weaker: bool
) -> None:
    old = node(auto="small", auto_after=before)
    [change] = gate_changes(old, node(auto="small", auto_after=after))
    assert change.weaker is weaker


def test_to_remove_what_signs_by_itself_makes_no_gate_weaker() -> None:
    changes = gate_changes(node(auto="small", auto_after=600), node())
    assert not any(change.weaker for change in changes)
