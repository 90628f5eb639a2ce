"""How values are shown and edited: what changed, what cannot be seen, and a form for every schema."""

from typing import Any

import pytest

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
