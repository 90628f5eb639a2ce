"""What a migration makes of a state, and what it would make of values that wait to be
written into it.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Graph, registry
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.versions.migration import Migration, misread_channels


@pytest.fixture(autouse=True)
def only_these() -> Iterator[None]:
    """Forget afterwards what a test registers."""
    known = registry.all()
    registry.clear()
    yield
    registry.clear()
    for compiled in known:
        registry.replace(compiled.graph)


class Nothing(BaseModel):
    """No input."""


class Bill(BaseModel):
    total: int = 0
    lines: Annotated[list[str], Append] = []


def bill(version: str) -> Graph:
    flow = Graph("bill", version=version, input=Nothing, state=Bill)
    flow.node("a")(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.edge("a", END)
    return flow


def target() -> Compiled:
    return compile(bill("2"))


def _large_in_cents(state: Any) -> None:
    if state["scratch"]["total"] > 100:
        state["scratch"]["total"] *= 100


def _failing_for_large(state: Any) -> None:
    if state["scratch"]["total"] > 100:
        raise ValueError("too large")


STATE: dict[str, dict[str, Any]] = {
    "scratch": {"total": 0, "lines": []},
    "artifacts": {},
}


@pytest.mark.parametrize("migrates", [_large_in_cents, _failing_for_large])
def test_each_value_that_waits_is_looked_at_though_the_state_itself_does_not_change(
    migrates: Any,
) -> None:
    steps = [Migration("1", "2", migrates)]
    small = [
        ("total", 1),
        ("total", 2),
        ("lines", ["a"]),
        ("$memory:a/b", {"content": 1}),
        ("gone", 1),
    ]
    assert misread_channels(target(), steps, STATE, small) == []
    assert misread_channels(target(), steps, STATE, [("total", 120), *small]) == [
        "total"
    ]
    assert misread_channels(target(), [], STATE, [("total", 120)]) == []


def test_a_channel_that_changes_is_misread_whatever_waits_for_it() -> None:
    steps = [Migration("1", "2", lambda state: state["scratch"].update(total=7))]
    assert misread_channels(
        target(), steps, STATE, [("total", 7), ("lines", ["a"])]
    ) == ["total"]


def test_the_test_of_a_migration_refuses_what_is_no_partition() -> None:
    flow = bill("2")
    flow.migration(from_version="1")(lambda state: None)
    with pytest.raises(InvalidValue, match="scrach: a state has scratch and artifacts"):
        flow.test_migration({"scrach": {"total": 1}}, from_version="1")


def test_a_migration_whose_error_cannot_be_read_is_refused_by_name() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def breaks(_: Any) -> Any:
        raise Mute

    flow = bill("2")
    flow.migration(from_version="1")(breaks)
    with pytest.raises(
        InvalidValue,
        match="the migration from 1 to 2 failed: Mute: its text cannot be shown",
    ):
        flow.test_migration(STATE, from_version="1")


def test_the_test_of_a_migration_goes_by_the_steps_of_other_versions_as_a_worker_does() -> (
    None
):
    second = bill("2")
    third = bill("3")
    second.migration(from_version="1")(lambda state: state["scratch"].update(total=2))
    third.migration(from_version="2")(
        lambda state: state["scratch"].update(lines=["three"])
    )
    with pytest.raises(
        InvalidValue, match="no migration of graph bill leads from version 1 to 3"
    ):
        third.test_migration({"scratch": {"total": 1}}, from_version="1")
    registry.replace(second)
    assert third.test_migration({"scratch": {"total": 1}}, from_version="1") == {
        "scratch": {"total": 2, "lines": ["three"]},
        "artifacts": {},
    }
    other = bill("3")
    other.migration(from_version="1")(lambda state: state["scratch"].update(total=9))
    registry.replace(other)
    assert (
        third.test_migration({"scratch": {"total": 1}}, from_version="1")["scratch"][
            "total"
        ]
        == 2
    )
