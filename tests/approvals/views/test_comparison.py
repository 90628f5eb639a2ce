"""How values are shown and edited: what changed, what cannot be seen, and a form for every schema."""

from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, TypeAdapter

from approvals.forms import controls, reading
from approvals.views import comparison


def rows(now: Any, proposed: Any, **how: Any) -> dict[str, str]:
    shown = comparison.compare(now, proposed, **how)
    return {row.label: row.state for row in [*shown.rows, *shown.same]}


def test_fields_are_new_changed_gone_or_the_same() -> None:
    now = {"kept": 1, "moved": "a", "left": True}
    proposed = {"kept": 1, "moved": "b", "left": None, "came": [1, 2]}
    assert rows(now, proposed) == {"Kept": "same", "Moved": "changed", "Left": "gone", "Came": "new"}


def test_numbers_and_truth_are_not_confused() -> None:
    assert rows({"a": 1}, {"a": True}) == {"A": "changed"}
    assert rows({"a": 1}, {"a": 1.0}) == {"A": "changed"}


def test_inner_fields_are_shown_by_their_path() -> None:
    assert rows({"payee": {"name": "Ann"}}, {"payee": {"name": "Bea"}}) == {"Payee › Name": "changed"}


def test_words_of_a_letter_are_marked() -> None:
    (text,) = comparison.compare("Dear Ann,\n\nwithin 10 days.", "Dear Ann,\n\nwithin 3 days.").texts
    states = [(piece.state, piece.text) for piece in text.paragraphs[1]]
    assert states == [("same", "within "), ("out", "10"), ("in", "3"), ("same", " days.")]


def test_a_long_field_is_shown_as_a_letter_beside_the_others() -> None:
    shown = comparison.compare(None, {"to": "ann@example.com", "body": "Dear Ann,\n\nhello"})
    assert [row.label for row in shown.rows] == ["To"]
    assert [text.label for text in shown.texts] == ["Body"]


def test_items_of_a_list_are_added_and_removed() -> None:
    items = comparison.compare(["a", "b"], ["a", "c"]).items
    assert [(item.state, item.text) for item in items] == [("same", "a"), ("out", "b"), ("in", "c")]


def test_what_is_added_to_a_list_is_shown_without_what_is_there() -> None:
    items = comparison.compare(["a"], ["b", "c"], adds=True).items
    assert [item.state for item in items] == ["in", "in"]


def test_a_value_that_says_what_it_changes_is_shown_as_that_change() -> None:
    correction = {"row": 7, "before": {"email": " a@b "}, "after": {"email": "a@b"}}
    shown = comparison.compare([], [correction], adds=True)
    assert shown.states_before
    assert [(row.label, row.now, row.proposed) for row in shown.rows] == [("Email", "␣a@b␣", "a@b"), ("Row", "", "7")]


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\ufeff", "\u2066", "\x07"])
def test_what_cannot_be_seen_is_written_out(hidden: str) -> None:
    assert comparison.visible(f"a{hidden}b") == f"a⟨U+{ord(hidden):04X}⟩b"


def test_very_long_texts_are_compared_by_lines() -> None:
    before = "\n".join(f"line {n}" for n in range(20_000))
    found = comparison.pieces(before, before.replace("line 77\n", "line seventy\n"))
    assert {piece.state for piece in found} == {"same", "out", "in"}


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
