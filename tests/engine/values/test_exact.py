"""What is staged without going through pydantic is staged as if it had; and nothing
else is.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    StringConstraints,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
)

from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.state import channels_of
from orchestrator.engine.values.exact import exact


class Plain(BaseModel):
    text: str = ""
    whole: int = 0
    real: float = 0.0
    flag: bool = False
    maybe: int | None = None
    texts: list[str] = []
    reals: list[float] = Field(default_factory=list)
    table: dict[str, list[float | None]] = {}


CHANNELS, FAULTS = channels_of(Plain)

VALUES = [
    None,
    "",
    "é",
    "\x00",
    "a\x00b",
    "\ud800",
    "😀",
    0,
    1,
    -1,
    2**53 - 1,
    2**53,
    -(2**53),
    2**64,
    10**5000,
    True,
    False,
    0.0,
    -0.0,
    1.0,
    1e300,
    5e-324,
    0.1,
    float("nan"),
    float("inf"),
    b"bytes",
    object(),
    (1.0,),
    {1.0},
    [],
    [""],
    ["a", "\x00"],
    ["\ud800"],
    [1],
    [1.0],
    [-0.0],
    [float("nan")],
    [True],
    [None],
    [[1.0]],
    ["a", 1],
    {},
    {"a": []},
    {"a": [1.0, None]},
    {"a": [-0.0]},
    {"a": [1]},
    {"\x00": []},
    {"\ud800": []},
    {1: []},
    {"a": {}},
]


def _outcome(act: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        value = act()
    except CountersignError as error:
        return "refused", error.code, error.facts.get("channel")
    return "staged", repr(value)


def _by_hand(channel: Channel, value: Any) -> tuple[Any, ...]:
    return _outcome(lambda: replace(channel, exact=None).stage(value))


@pytest.mark.parametrize("name", list(Plain.model_fields))
def test_a_value_that_is_its_own_json_is_staged_as_its_model_would_stage_it(
    name: str,
) -> None:
    channel = CHANNELS[name]
    assert channel.exact is not None
    for value in VALUES:
        assert _outcome(lambda value=value: channel.stage(value)) == _by_hand(
            channel, value
        ), repr(value)[:60]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", "x"),
        ("whole", 3),
        ("real", 0.5),
        ("flag", True),
        ("maybe", None),
        ("texts", ["x"]),
        ("reals", [1.5]),
    ],
)
def test_what_is_exactly_of_its_type_does_not_go_through_pydantic(
    name: str, value: Any
) -> None:
    tells = CHANNELS[name].exact
    assert tells
    assert tells(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("whole", True),
        ("real", 1),
        ("flag", 1),
        ("text", b"x"),
        ("texts", ("x",)),
        ("reals", [1]),
        ("table", {1: []}),
    ],
)
def test_what_pydantic_might_turn_into_something_else_goes_through_it(
    name: str, value: Any
) -> None:
    tells = CHANNELS[name].exact
    assert tells
    assert not tells(value)


def test_what_is_staged_shares_nothing_with_what_the_node_gave() -> None:
    table = {"a": [1.0]}
    staged = CHANNELS["table"].stage(table)
    table["a"].append(2.0)
    assert staged == {"a": [1.0]}


class Lower(BaseModel):
    model_config = ConfigDict(str_to_lower=True)
    value: str = ""


class Validated(BaseModel):
    value: str = ""

    @field_validator("value")
    @classmethod
    def loud(cls, value: str) -> str:
        return value.upper()


class Serialised(BaseModel):
    value: str = ""

    @field_serializer("value")
    def loud(self, value: str) -> str:
        return value.upper()


class WholeSerialised(BaseModel):
    value: str = ""

    @model_serializer
    def loud(self) -> dict[str, Any]:
        return {"value": self.value.upper()}


class Computed(BaseModel):
    value: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def loud(self) -> str:
        return self.value.upper()


class Started(BaseModel):
    value: str = ""

    def model_post_init(self, context: Any, /) -> None:
        self.value = self.value.upper()


class Private(BaseModel):
    value: str = ""
    _seen: int = PrivateAttr(0)


class OwnDump(BaseModel):
    value: str = ""

    def model_dump(self, **how: Any) -> dict[str, Any]:
        return {"value": self.value.upper()}


class OwnCheck(BaseModel):
    value: str = ""

    @classmethod
    def model_validate(cls, value: Any, **how: Any) -> Any:
        return super().model_validate({"value": value["value"].upper()}, **how)


def _with(kind: Any, **field: Any) -> type[BaseModel]:
    return type(
        "Made",
        (BaseModel,),
        {"__annotations__": {"value": kind}, "value": Field("", **field)},
    )


@pytest.mark.parametrize(
    "model",
    [
        Lower,
        Validated,
        Serialised,
        WholeSerialised,
        Computed,
        Started,
        Private,
        OwnDump,
        OwnCheck,
        _with(str, max_length=3),
        _with(str, pattern="a+"),
        _with(str, exclude=True),
        _with(Annotated[str, StringConstraints(strip_whitespace=True)]),
        _with(Plain),
        _with(list[Plain]),
        _with(Annotated[str, BeforeValidator(str.upper)]),
        _with(Annotated[str, PlainSerializer(str.upper)]),
        _with(Annotated[int, Field(gt=3)]),
        _with(list[str], max_length=1),
        _with(Literal["a", "b"]),
        _with(int | str),
        _with(list[Any]),
        _with(dict[int, str]),
        _with(set[str]),
        _with(tuple[str, ...]),
        _with(bytes),
        _with(Any),
        _with(str, alias="other"),
    ],
)
def test_a_field_that_says_more_than_its_type_always_goes_through_pydantic(
    model: type[BaseModel],
) -> None:
    assert exact(model, "value") is None
