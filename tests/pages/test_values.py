"""How values are edited: a form for every schema, which gives back what it was drawn from."""

from datetime import date
from decimal import Decimal
from typing import Any, Literal

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
    """What a browser would post of the form as it is drawn."""
    drawn = [one for one in root.walk() if not one.children and (one.kind != "bool" or one.value)]
    return {one.name: "true" if one.kind == "bool" else "" if one.value is None else str(one.value) for one in drawn}


def test_a_form_that_is_posted_as_drawn_gives_the_value_it_was_drawn_from() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f", value=VALUE)
    value = reading.read_form(root, posted_from(root))
    assert reading.errors(root) == []
    assert TypeAdapter(Everything).validate_python(value) == Everything.model_validate(VALUE)


def test_fields_left_empty_take_their_defaults_and_needed_ones_are_asked_for() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f")
    reading.read_form(root, {"f.name": "Ann"})
    assert [control.path for control in reading.errors(root)] == ["amount", "day", "policy.since"]


def test_what_is_no_number_or_no_json_is_marked_where_it_stands() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f", value=VALUE)
    reading.read_form(root, {**posted_from(root), "f.count": "four", "f.extra": "{", "f.numbers": "1\nx"})
    assert {control.path for control in reading.errors(root)} == {"count", "extra", "numbers"}


def test_a_message_finds_the_nearest_control_of_its_path() -> None:
    root = controls.root(Everything.model_json_schema(), prefix="f", value=VALUE)
    for path in ("policy.since", "policies[0].number", "tags[1]", "extra.deep.er"):
        assert reading.place(root, path, "wrong")
    assert {c.path for c in reading.errors(root)} == {"policy.since", "policies[0].number", "tags", "extra"}
    assert not reading.place(root, "nowhere", "wrong")


def test_line_ends_of_the_browser_are_not_part_of_the_value() -> None:
    root = controls.root({"type": "string"}, prefix="f", value="a\nb")
    assert reading.read_form(root, {"f": "a\r\nb"}) == "a\nb"
