"""Channels: values pass through their type both ways, and reducers do what they say, as
data.
"""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator

from orchestrator.engine import (
    Append,
    Artifact,
    Custom,
    First,
    Last,
    Longest,
    Max,
    Merge,
    Min,
    Replace,
    Sum,
    Union,
)
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.state import channels_of, fresh, viewer
from orchestrator.engine.values import ops


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    name: str
    amount: Decimal


def longer(old: str, update: str) -> str:
    return old + update


def broken(old: int, update: int) -> int:
    raise ZeroDivisionError("no")


class State(BaseModel):
    text: str = ""
    amount: Decimal = Decimal("0.00")
    day: date | None = None
    moment: datetime | None = None
    uuid: UUID | None = None
    colour: Colour = Colour.RED
    free: dict[str, Any] = {}
    anything: Any = None
    lines: list[Line] = []
    number: float = 0.0
    tags: set[str] = set()
    pair: tuple[int, str] = (0, "")
    nested: dict[str, set[int]] = {}
    positive: Annotated[int, Field(ge=0)] = 0
    even: int = 0
    replace: Annotated[str, Replace] = ""
    last: Annotated[str, Last] = ""
    append: Annotated[list[str], Append] = ["default"]
    merge: Annotated[dict[str, int], Merge] = {"d": 0}
    total: Annotated[int, Sum] = 100
    money: Annotated[Decimal, Sum] = Decimal("1.10")
    joined: Annotated[tuple[int, ...], Append] = ()
    most: Annotated[int | None, Max] = None
    least: Annotated[Decimal | None, Min] = None
    top: Annotated[int, Max] = 5
    loose: Annotated[int, Max] = None  # type: ignore[assignment]
    first: Annotated[str, First] = "default"
    union: Annotated[list[str], Union] = ["b"]
    members: Annotated[set[int], Union] = {9}
    longest: Annotated[str | None, Longest] = None
    own: Annotated[str, longer] = "<"
    calm: Annotated[str, Custom(longer, commutes=True)] = "<"
    bad: Annotated[int, broken] = 0
    artifact: Annotated[str, Artifact] = ""
    kind: Literal["a", "b"] = "a"

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("is odd")
        return value


CHANNELS, FAULTS = channels_of(State)


def channel(name: str) -> Channel:
    return CHANNELS[name]


def reduced(name: str, *updates: Any) -> Any:
    """Return the JSON value after these updates, made one after another from the
    default; each op, applied, must give the same.
    """
    channel_here = channel(name)
    value = channel_here.default
    written = False
    for update in updates:
        value, op = _checked(channel_here, value, update, unset=not written)
        written = True
    return value


def _checked(item: Channel, old: Any, update: Any, *, unset: bool) -> tuple[Any, Any]:
    value, op = item.reduce(old, item.stage(update), unset=unset)
    assert ops.apply(old, op) == value
    assert ops.apply_to_own(deepcopy(old), op) == value
    return value, op


def test_the_state_has_no_faults() -> None:
    assert FAULTS == []


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("amount", Decimal("4512.50"), "4512.50"),
        ("day", date(2026, 1, 31), "2026-01-31"),
        ("moment", datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
        ("uuid", UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        ("colour", Colour.RED, "red"),
        (
            "lines",
            [Line(name="x", amount=Decimal("1.0"))],
            [{"name": "x", "amount": "1.0"}],
        ),
        ("number", 1, 1.0),
        ("number", -0.0, 0.0),
        ("pair", (1, "x"), [1, "x"]),
        ("anything", {"a": [1, "x", None, True]}, {"a": [1, "x", None, True]}),
    ],
)
def test_a_typed_value_is_stored_as_json_and_read_back_as_it_was(
    name: str, value: Any, stored: Any
) -> None:
    plain = channel(name).stage(value)
    assert plain == stored
    assert type(plain) is type(stored)
    assert channel(name).load(plain) == value


@given(st.sets(st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1))))
def test_sets_are_written_sorted(value: set[str]) -> None:
    assert channel("tags").stage(value) == sorted(value)
    assert channel("nested").stage({"x": {3, 20, 1}}) == {"x": [1, 3, 20]}


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("free", {"a": {"b": Decimal("1")}}, "free.a.b"),
        ("free", {"a": [date(2026, 1, 1)]}, "free.a[0]"),
        ("free", {"a": (1, 2)}, "free.a"),
        ("free", {"a": {1: 2}}, "free.a"),
        ("free", {"n": 2**53}, "free.n"),
        ("free", {"n": float("nan")}, "free.n"),
        ("free", {"n": "\x00"}, "free.n"),
        ("free", {"n": "\udfff"}, "free.n"),
        ("free", {"n": {1, 2}}, "free.n"),
        ("free", {"n": object()}, "free"),
        ("number", float("inf"), "number"),
        ("text", 7, "text"),
        (
            "lines",
            [{"name": "x", "amount": "1"}, {"name": "y", "amount": "?"}],
            "lines[1].amount",
        ),
        ("positive", -1, "positive"),
        ("even", 3, "even"),
        ("kind", "c", "kind"),
    ],
)
def test_what_does_not_fit_is_refused_by_channel_and_path(
    name: str, value: Any, path: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        channel(name).stage(value)
    assert refused.value.facts["channel"] == name
    assert refused.value.facts["path"].startswith(path)


def test_a_value_over_the_limit_is_refused_with_its_size() -> None:
    assert channel("text").stage("x" * 98, limit=100) == "x" * 98
    with pytest.raises(PayloadTooLarge) as refused:
        channel("text").stage("x" * 99, limit=100)
    assert refused.value.facts == {"channel": "text", "size": 101, "limit": 100}
    with pytest.raises(PayloadTooLarge):
        channel("text").stage("x" * 4 * 1024 * 1024)


def test_an_edit_may_say_in_json_what_a_strict_type_wants_in_python() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        day: date | None = None

    channels, _ = channels_of(Strict)
    assert (
        channels["day"].stage("2026-01-31")
        == channels["day"].stage(date(2026, 1, 31))
        == "2026-01-31"
    )


@pytest.mark.parametrize(
    ("name", "updates", "value"),
    [
        ("replace", ["a", "b"], "b"),
        ("last", ["a", "b"], "b"),
        ("append", [["a"], [], ["a", "b"]], ["default", "a", "a", "b"]),
        ("joined", [(1,), (2, 3)], [1, 2, 3]),
        ("merge", [{"a": 1}, {"a": 2, "b": 3}], {"d": 0, "a": 2, "b": 3}),
        ("total", [1, 2], 103),
        ("money", [Decimal("0.20"), Decimal("0.30")], "1.60"),
        ("most", [3, 7, 5], 7),
        ("most", [-3], -3),
        ("most", [3, None], 3),
        ("top", [3], 5),
        ("top", [6], 6),
        ("loose", [-6], -6),
        ("least", [Decimal("10"), Decimal("9"), Decimal("11")], "9"),
        ("first", ["a", "b"], "a"),
        ("first", ["default", "b"], "default"),
        ("union", [["c", "b"], ["c", "a", "a"]], ["b", "c", "a"]),
        ("members", [{10, 1}, {1, 2}], [1, 2, 9, 10]),
        ("longest", ["aa", "bbb", "ccc", ""], "bbb"),
        ("own", ["a", "b"], "<ab"),
    ],
)
def test_reducers(name: str, updates: list[Any], value: Any) -> None:
    assert reduced(name, *updates) == value


@pytest.mark.parametrize(
    "name",
    [
        "append",
        "merge",
        "total",
        "most",
        "least",
        "union",
        "members",
        "longest",
        "own",
        "first",
    ],
)
@given(data=st.data())
def test_several_updates_at_once_are_as_good_as_one_by_one(
    name: str, data: Any
) -> None:
    text = st.text("ab", max_size=3)
    number = st.integers(-9, 9)
    kinds = {
        "append": st.lists(text),
        "union": st.lists(text),
        "merge": st.dictionaries(text, number),
        "members": st.sets(number),
        "least": st.decimals(-9, 9, places=1),
    }
    kind = kinds.get(name, number if name in ("total", "most") else text)
    updates = data.draw(st.lists(kind, min_size=1, max_size=4))
    channel_here = channel(name)
    value, op = channel_here.reduce_all(
        channel_here.default,
        [channel_here.stage(update) for update in updates],
        unset=True,
    )
    assert value == reduced(name, *updates)
    assert ops.apply(channel_here.default, op) == value


def test_ops_say_what_changed_and_not_what_is() -> None:
    assert channel("append").reduce(["x"] * 1000, ["y"])[1] == {
        "op": "append",
        "items": ["y"],
    }
    assert channel("merge").reduce({"x": 1}, {"y": 2})[1] == {
        "op": "merge",
        "items": {"y": 2},
    }
    assert channel("union").reduce(["x"], ["x", "y"])[1] == {
        "op": "append",
        "items": ["y"],
    }
    assert channel("members").reduce([1, 9], [2, 9])[1] == {
        "op": "insert",
        "items": [2],
    }
    assert channel("replace").reduce("x", "y")[1] == {"op": "set", "value": "y"}


def test_union_tells_true_one_and_one_point_zero_apart() -> None:
    class Mixed(BaseModel):
        items: Annotated[list[Any], Union] = []

    channels, _ = channels_of(Mixed)
    assert channels["items"].reduce([1], [True, 1.0, 1])[0] == [1, True, 1.0]


def test_a_reducer_of_ones_own_that_fails_is_named() -> None:
    with pytest.raises(
        InvalidValue, match=r"broken of bad failed: ZeroDivisionError: no"
    ):
        channel("bad").reduce(0, 1)


def test_a_held_write_is_bound_where_its_result_replaces() -> None:
    bound = {
        name
        for name, channel in CHANNELS.items()
        if name in ("replace", "last", "own", "text", "bad") and channel.bound
    }
    assert bound == {"replace", "last", "own", "text", "bad"}
    names = (
        "append",
        "merge",
        "total",
        "most",
        "least",
        "first",
        "union",
        "longest",
        "calm",
    )
    assert [name for name in names if channel(name).bound] == []


def test_reducing_changes_none_of_its_arguments() -> None:
    old = ["a"]
    update = ["b"]
    value, op = channel("append").reduce(old, update)
    value.append("c")
    assert old == ["a"]
    assert update == ["b"]
    assert op["items"] == ["b"]


def test_a_fresh_state_stands_in_its_partitions() -> None:
    state = fresh(CHANNELS, State)
    assert state["artifacts"] == {"artifact": ""}
    assert state["scratch"]["amount"] == "0.00"
    assert state["scratch"]["loose"] is None


def test_a_state_is_a_fresh_object_each_time() -> None:
    state = fresh(CHANNELS, State)
    make = viewer(CHANNELS, State, state, reads=None)
    first = make()
    second = make()
    first.append.append("x")  # type: ignore[attr-defined]
    assert second.append == ["default"]  # type: ignore[attr-defined]
    assert state["scratch"]["append"] == ["default"]


def test_a_node_that_names_what_it_reads_sees_nothing_else() -> None:
    seen: Any = viewer(CHANNELS, State, fresh(CHANNELS, State), reads=("total",))()
    assert seen.total == 100
    with pytest.raises(AttributeError):
        _ = seen.text


def _faults(**fields: Any) -> list[str]:
    annotations = {name: given[0] for name, given in fields.items()}
    defaults = {name: given[1] for name, given in fields.items() if len(given) > 1}
    return channels_of(
        type("Odd", (BaseModel,), {"__annotations__": annotations, **defaults})
    )[1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"x": (int,)}, "has no default"),
        ({"input": (int, 0)}, "name of a partition"),
        ({"x": (int, "seven")}, "default does not fit"),
        ({"x": (Annotated[int, Sum, Max], 0)}, "more than one reducer"),
        ({"x": (Annotated[str, Append], "")}, "needs a list"),
        ({"x": (Annotated[list[int], Merge], [])}, "needs a dict"),
        ({"x": (Annotated[set[int], Append], set())}, "use Union"),
        ({"x": (Callable[[], None], print)}, "without a JSON Schema"),
    ],
)
def test_a_field_that_can_be_no_channel_is_a_fault(fields: Any, words: str) -> None:
    faults = _faults(**fields)
    assert len(faults) == 1
    assert words in faults[0]
