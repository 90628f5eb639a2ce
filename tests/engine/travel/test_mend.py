"""What would make a refused value fit: for every kind of channel, and where there is
nothing to mend.
"""

import enum
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.engine import END, START, Append, Artifact, Graph, Merge, Union
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.travel.mend import mend_of
from orchestrator.engine.travel.patch import json_of, patched


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "Blue"


class Payout(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: str
    amount: Decimal
    account: Annotated[str, Field(pattern=r"^[A-Z]{2}\d+$")] = "DE1"


class Strict(BaseModel):
    """Nothing is converted by pydantic itself."""

    model_config = ConfigDict(strict=True)
    number: int = 0
    share: float = 0.0
    money: Decimal = Decimal(0)
    sure: bool = False


class State(BaseModel):
    text: str = ""
    number: int = 0
    share: float = 0.0
    money: Decimal = Decimal(0)
    sure: bool = False
    colour: Colour = Colour.RED
    route: Literal["", "small", "large"] = ""
    day: date = date(2026, 1, 1)
    clock: time = time(9)
    moment: datetime = datetime(2026, 1, 1)
    span: timedelta = timedelta(0)
    id: UUID = UUID(int=0)
    payout: Payout | None = None
    either: int | bool | list[int] = 0
    notes: Annotated[list[str], Append] = []
    tags: Annotated[set[str], Union] = set()
    pair: tuple[int, str] = (1, "a")
    counts: Annotated[dict[str, int], Merge] = {}
    orders: list[Payout] = []
    strict: Strict = Strict()
    anything: Any = None
    letter: Annotated[str, Artifact] = ""


def graph() -> Any:
    flow = Graph("mended", input=State, state=State)
    flow.node("only")(lambda state, ctx: None)
    flow.edge(START, "only")
    flow.edge("only", END)
    return compile(flow)


GRAPH = graph()
NOTHING = object()


@pytest.mark.parametrize(
    ("name", "proposed", "mend"),
    [
        ("text", 9, "9"),
        ("text", 4.5, "4.5"),
        ("text", True, NOTHING),
        ("text", None, NOTHING),
        ("text", ["a"], NOTHING),
        ("number", "nine", NOTHING),
        ("number", 9.5, NOTHING),
        ("number", " 9 apples", NOTHING),
        ("share", "half", NOTHING),
        ("money", "ten", NOTHING),
        ("sure", "perhaps", NOTHING),
        ("colour", "RED", "red"),
        ("colour", "blue", "Blue"),
        ("colour", " red ", "red"),
        ("colour", "green", NOTHING),
        ("route", "Large", "large"),
        ("route", "smal", "small"),
        ("route", 1, NOTHING),
        ("day", " 2026-03-02x", NOTHING),
        ("day", "tomorrow", NOTHING),
        ("clock", "nine", NOTHING),
        ("moment", "soon", NOTHING),
        ("span", "long", NOTHING),
        ("id", "x", NOTHING),
        ("payout", '{"to": "Kim", "amount": "1.00"}', {"to": "Kim", "amount": "1.00"}),
        ("payout", {"to": 5, "amount": "1.00"}, "5"),
        ("payout", {"to": "Kim", "amount": "1.00", "account": " DE99 "}, "DE99"),
        ("payout", {"to": "Kim"}, NOTHING),
        ("payout", {"to": "Kim", "amount": "1.00", "acount": "DE9"}, NOTHING),
        ("either", "[1, 2]", [1, 2]),
        ("notes", "one", ["one"]),
        ("notes", '["one", "two"]', ["one", "two"]),
        ("notes", ["one", 2], "2"),
        ("notes", {"a": 1}, NOTHING),
        ("tags", "one", ["one"]),
        ("pair", [1, 2], "2"),
        ("counts", '{"a": 1}', {"a": 1}),
        ("counts", {"a": "x"}, NOTHING),
        ("orders", {"to": "Kim", "amount": "1.00"}, [{"to": "Kim", "amount": "1.00"}]),
        ("orders", [{"to": "Kim", "amount": "1.00"}, {"to": 7, "amount": "2.00"}], "7"),
        ("strict", {"number": "9"}, 9),
        ("strict", {"number": "9.5"}, NOTHING),
        ("strict", {"share": "0.25"}, 0.25),
        ("strict", {"sure": "True"}, True),
        ("strict", {"sure": 1}, True),
        ("letter", 12, "12"),
    ],
)
def test_a_refused_value_is_mended_where_what_was_said_fits_in_another_form(
    name: str, proposed: Any, mend: Any
) -> None:
    channel = GRAPH.channels[name]
    with pytest.raises(InvalidValue):
        channel.stage(proposed)
    mends = mend_of(channel, proposed)
    assert mends == ([] if mend is NOTHING else [mend])
    assert [type(value) for value in mends] == ([] if mend is NOTHING else [type(mend)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", "9"),
        ("money", 0.1),
        ("share", 1),
        ("day", "2026-03-02"),
        ("anything", {"a": 1}),
        ("either", True),
    ],
)
def test_what_fits_needs_no_mend(name: str, value: Any) -> None:
    GRAPH.channels[name].stage(value)
    assert mend_of(GRAPH.channels[name], value) == []


def test_a_whole_number_that_json_cannot_keep_is_mended_where_text_may_stand() -> None:
    assert mend_of(GRAPH.channels["anything"], 2**60) == [str(2**60)]
    assert mend_of(GRAPH.channels["number"], 2**60) == []


def test_the_first_of_two_faults_is_mended() -> None:
    channel = GRAPH.channels["orders"]
    both = [{"to": 5, "amount": "1.00"}, {"to": 7, "amount": "1.00"}]
    assert mend_of(channel, both) == ["5"]


def state() -> Any:
    return GRAPH.fresh_state()


def refusal(patch: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(InvalidValue) as refused:
        patched(state(), patch, graph=GRAPH)
    return refused.value.facts


def test_a_refused_patch_names_path_rule_value_and_mend() -> None:
    facts = refusal({"scratch": {"payout": {"to": 5, "amount": "1.00"}}})
    assert {name: facts[name] for name in ("path", "rule", "value", "mend")} == {
        "path": "scratch.payout.to",
        "rule": "This must be text.",
        "value": 5,
        "mend": "5",
    }
    facts = refusal({"artifacts": [{"op": "replace", "path": "/letter", "value": 12}]})
    assert facts["path"] == "artifacts.letter"
    assert facts["mend"] == "12"
    assert "mend" not in refusal({"scratch": {"number": "nine"}})


def test_a_channel_that_there_is_not_is_refused_with_the_nearest() -> None:
    facts = refusal({"scratch": {"pay_out": {}}})
    assert facts["path"] == "scratch.pay_out"
    assert facts["nearest"] == ["payout"]
    assert refusal({"scratch": {"letter": "x"}})["nearest"] == [], (
        "letter is an artifact"
    )


def test_a_refusal_does_not_repeat_a_long_value() -> None:
    facts = refusal({"scratch": {"number": "x" * 2000}})
    assert facts["path"] == "scratch.number"
    assert "value" not in facts


@pytest.mark.parametrize(
    ("amount", "mend"),
    [
        (Decimal("4512.50"), "4512.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (date(2026, 3, 2), "2026-03-02"),
        (time(9, 30), "09:30:00"),
        (datetime(2026, 3, 2, 9, 30), "2026-03-02T09:30:00"),
        ({1, 2}, NOTHING),
        (2**60, NOTHING),
        (float("nan"), NOTHING),
    ],
)
def test_a_python_value_that_json_writes_as_text_is_mended_by_that_text(
    amount: Any, mend: Any
) -> None:
    with pytest.raises(InvalidValue) as refused:
        json_of({"scratch": {"payout": [{"amount": amount}]}})
    assert refused.value.facts["path"] == "scratch.payout[0].amount"
    assert refused.value.facts["rule"]
    assert refused.value.facts.get("mend", NOTHING) == mend


def test_the_place_in_a_partition_is_written_as_one_path() -> None:
    assert (
        refusal({"scratch": {"payout": {"amount": 2**60}}})["path"]
        == "scratch.payout.amount"
    )
    assert (
        refusal({"scratch": [{"op": "remove", "path": "/nowhere"}]})["path"]
        == "scratch[0]"
    )
