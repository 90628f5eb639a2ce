"""A form for every schema: what it is drawn from, what it gives back, and where its
messages stand.
"""

from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter

from approvals.forms import controls, reading


class Policy(BaseModel):
    number: str
    since: date


class Everything(BaseModel):
    name: str
    amount: Decimal
    count: int = 3
    ratio: float | None = None
    day: date
    kind: Literal["a", "b"] = "a"
    policy: Policy
    tags: list[str] = []
    numbers: list[int] = []
    policies: list[Policy] = []
    extra: dict[str, Any] = {}
    flag: bool = False


VALUE = {
    "name": "Ann",
    "amount": "12.50",
    "count": 4,
    "ratio": None,
    "day": "2026-11-20",
    "kind": "b",
    "policy": {"number": "P-1", "since": "2020-01-01"},
    "tags": ["x", "y"],
    "numbers": [1, 2],
    "policies": [{"number": "P-2", "since": "2021-01-01"}],
    "extra": {"deep": [1, {"er": None}]},
    "flag": True,
}


def posted_from(root: controls.Control) -> dict[str, Any]:
    """Return what a browser would post of the form as it is drawn."""
    drawn = [
        control
        for control in root.walk()
        if not control.children and (control.kind != "bool" or control.value)
    ]
    drawn = [
        item
        for item in drawn
        if item.kind != "radio" or item.nullable or item.value is not None
    ]
    # A form that nobody has touched sends nothing where no button is chosen.
    drawn = [item for item in drawn if item.kind != "yes_no" or item.value is not None]
    return {
        item.name: "true"
        if item.kind == "bool"
        else ""
        if item.value is None
        else str(item.value)
        for item in drawn
    }


def test_a_form_that_is_posted_as_drawn_gives_the_value_it_was_drawn_from() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f", value=VALUE)
    value = reading.read_form(root, posted_from(root))
    assert reading.errors(root) == []
    assert TypeAdapter(Everything).validate_python(value) == Everything.model_validate(
        VALUE
    )


def test_fields_left_empty_take_their_defaults_and_needed_ones_are_asked_for() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f")
    reading.read_form(root, {"f.name": "Ann"})
    assert [control.path for control in reading.errors(root)] == [
        "amount",
        "day",
        "policy.since",
    ]


def test_what_is_no_number_or_no_json_is_marked_where_it_stands() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f", value=VALUE)
    reading.read_form(
        root,
        {**posted_from(root), "f.count": "four", "f.extra": "{", "f.numbers": "1\nx"},
    )
    assert {control.path for control in reading.errors(root)} == {
        "count",
        "extra",
        "numbers",
    }


def test_a_message_finds_the_nearest_control_of_its_path() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f", value=VALUE)
    for path in ("policy.since", "policies[0].number", "tags[1]", "extra.deep.er"):
        assert reading.place(root, path, "wrong")
    assert {c.path for c in reading.errors(root)} == {
        "policy.since",
        "policies[0].number",
        "tags",
        "extra",
    }
    assert not reading.place(root, "nowhere", "wrong")


def test_line_ends_of_the_browser_are_not_part_of_the_value() -> None:
    root = controls.root({"type": "string"}, prefix="f", value="a\nb")
    assert reading.read_form(root, {"f": "a\r\nb"}) == "a\nb"


class Receipt(BaseModel):
    status: Literal["sent", "received"]
    number: int


class Letter(BaseModel):
    route: Literal["", "post"]
    way: Literal["", "post"] | None = None
    receipt: Receipt | None = None
    answer: "Letter | None" = None


def test_an_object_that_is_not_set_is_null_and_asks_for_none_of_its_fields() -> None:
    root = controls.root(Letter.model_json_schema(), prefix="f")
    value = reading.read_form(
        root, {"f.route": "post", "f.receipt": controls.NOT_SET, "f.way": ""}
    )
    assert reading.errors(root) == []
    assert value == {"route": "post", "way": None, "receipt": None, "answer": None}


def test_an_object_that_is_switched_on_asks_for_its_fields_and_stays_on() -> None:
    root = controls.root(Letter.model_json_schema(), prefix="f")
    reading.read_form(root, {"f.route": "post", "f.receipt": controls.SET})
    assert [error.path for error in reading.errors(root)] == [
        "receipt.status",
        "receipt.number",
    ]
    (receipt,) = [child for child in root.children if child.key == "receipt"]
    assert receipt.value is not None


def test_no_choice_is_not_the_empty_text_that_is_a_choice() -> None:
    root = controls.root(Letter.model_json_schema(), prefix="f")
    reading.read_form(root, {})
    assert [error.path for error in reading.errors(root)] == ["route"]
    assert reading.read_form(root, {"f.route": ""})["route"] == ""


def test_each_choice_has_a_label() -> None:
    root = controls.root(Letter.model_json_schema(), prefix="f")
    assert root.children[0].choices == [("", "empty text"), ("post", "Post")]


def test_where_null_and_the_empty_text_are_two_choices_they_are_written_as_json() -> (
    None
):
    root = controls.root(Letter.model_json_schema(), prefix="f")
    assert root.children[1].kind == "json"
    assert root.children[1].nullable is True


def test_a_type_that_holds_itself_is_drawn_to_a_depth_and_is_json_below() -> None:
    root = controls.root(Letter.model_json_schema(), prefix="f")
    deepest = max(root.walk(), key=lambda control: control.name.count("."))
    assert deepest.name.count(".") == controls.DEEPEST
    assert [control.kind for control in root.walk() if control.path.endswith("answer")][
        -1
    ] == "json"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}},
        {"type": "array", "items": True},
        {"type": "array", "items": {"anyOf": [True, {"type": "null"}]}},
        {"anyOf": [True]},
        {"anyOf": [True, {"type": "string"}]},
        {"anyOf": [{"type": ["string", "null"]}, {"type": "integer"}]},
        {"allOf": [False]},
    ],
)
def test_every_legal_schema_gets_a_form(schema: dict[str, Any]) -> None:
    whole = {**schema, "$defs": {"b": True}}
    control = controls.root(whole, prefix="e")
    kinds = {part.kind for part in control.walk()}
    assert kinds <= {"group", "json"}
