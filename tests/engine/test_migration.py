"""What a migration makes of a state, and what it would make of values that wait to be written into it."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Graph
from orchestrator.engine.compile import Compiled, compile
from orchestrator.engine.migration import Migration, misread_channels


class Nothing(BaseModel):
    """No input."""


class Bill(BaseModel):
    total: int = 0
    lines: Annotated[list[str], Append] = []


def target() -> Compiled:
    made = Graph("bill", version="2", input=Nothing, state=Bill)
    made.node("a")(lambda state, ctx: None)
    made.edge(START, "a")
    made.edge("a", END)
    return compile(made)


def _large_in_cents(state: Any) -> None:
    if state["scratch"]["total"] > 100:
        state["scratch"]["total"] *= 100


def _failing_for_large(state: Any) -> None:
    if state["scratch"]["total"] > 100:
        raise ValueError("too large")


STATE: dict[str, dict[str, Any]] = {"scratch": {"total": 0, "lines": []}, "artifacts": {}}


@pytest.mark.parametrize("migrates", [_large_in_cents, _failing_for_large])
def test_each_value_that_waits_is_looked_at_though_the_state_itself_does_not_change(migrates: Any) -> None:
    steps = [Migration("1", "2", migrates)]
    small = [("total", 1), ("total", 2), ("lines", ["a"]), ("$memory:a/b", {"content": 1}), ("gone", 1)]
    assert misread_channels(target(), steps, STATE, small) == []
    assert misread_channels(target(), steps, STATE, [("total", 120), *small]) == ["total"]
    assert misread_channels(target(), [], STATE, [("total", 120)]) == []


def test_a_channel_that_changes_is_misread_whatever_waits_for_it() -> None:
    steps = [Migration("1", "2", lambda state: state["scratch"].update(total=7))]
    assert misread_channels(target(), steps, STATE, [("total", 7), ("lines", ["a"])]) == ["total"]
