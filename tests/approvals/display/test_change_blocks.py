"""Blocks of a comparison are given window by window, and all windows together are the
whole.
"""

from typing import Any

import pytest

from approvals.display import comparison
from approvals.display.change_blocks import (
    LONGEST_ITEM,
    MOST_COMPARED,
    FieldTable,
    Items,
)
from approvals.views.card_pages import CardPages
from tests.approvals.views.looks import WRITE, rendered


def block(now: Any, proposed: Any) -> Any:
    (only_block,) = comparison.compare(now, proposed).blocks
    return only_block


@pytest.mark.parametrize(
    ("now", "proposed", "kind"),
    [
        (
            {f"f{n}": n for n in range(40)},
            {f"f{n}": n + 1 for n in range(40)},
            FieldTable,
        ),
        ([f"item {n}" for n in range(40)], [f"item {n + 7}" for n in range(40)], Items),
    ],
)
def test_windows_put_together_are_all_units(
    now: Any, proposed: Any, kind: type
) -> None:
    change_block = block(now, proposed)
    assert isinstance(change_block, kind)
    whole = change_block.units(0, len(change_block))
    assert len(whole) == len(change_block)
    assert [
        unit
        for start in range(0, len(change_block), 7)
        for unit in change_block.units(start, min(start + 7, len(change_block)))
    ] == whole


def test_a_row_names_its_field_and_holds_both_values() -> None:
    row = block({"amount": "10"}, {"amount": "12"}).units(0, 1)[0]
    assert row.label == "Amount"
    assert row.state == "changed"
    assert row.now.text == "10"
    assert row.proposed.text == "12"


def test_an_item_that_came_and_one_that_went_have_one_side_each() -> None:
    units = block(["a", "b"], ["b", "c"]).units(0, 9)
    assert [(unit.state, bool(unit.out), bool(unit.come)) for unit in units] == [
        ("out", True, False),
        ("same", False, True),
        ("in", False, True),
    ]


def side(units: list[Any], state: str) -> str:
    """The text of one side of the only changed item, from all its rows: `out` or
    `in`.
    """
    texts = []
    for unit in units:
        texts += [piece.text for piece in unit.pieces if piece.state in ("same", state)]
    return "".join(texts)


LETTERS_OLD = " ".join(f"old{n}" for n in range(300))
LETTERS_NEW = " ".join(f"new{n}" for n in range(300))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LETTERS_OLD, LETTERS_NEW),
        (f"1 {LETTERS_OLD}", f"2 {LETTERS_OLD}"[:300] + LETTERS_NEW),
        (f"[{LETTERS_OLD} {LETTERS_OLD}", f"[{LETTERS_NEW} {LETTERS_NEW}"),
    ],
)
def test_a_rewritten_long_item_is_shown_whole_on_both_sides(old: str, new: str) -> None:
    change_block = block([old], [new])
    units = change_block.units(0, len(change_block))
    assert len(units) > 1
    assert side(units, "out").strip('"') == old
    assert side(units, "in").strip('"') == new
    assert [unit.goes_on for unit in units] == [False] + [True] * (len(units) - 1)
    for unit in units:
        assert sum(len(piece.text) for piece in unit.pieces) <= LONGEST_ITEM


def test_a_later_change_of_a_long_item_is_on_the_page_too() -> None:
    words = [f"word{n}" for n in range(2000)]
    changed = [f"NEW{n}" if n % 60 == 0 else word for n, word in enumerate(words)]
    units = block([" ".join(words)], [" ".join(changed)]).units(0, 40)
    pieces = [piece for unit in units for piece in unit.pieces]
    removed = "".join(piece.text for piece in pieces if piece.state == "out")
    added = "".join(piece.text for piece in pieces if piece.state == "in")
    assert removed == "".join(words[::60])
    assert added == "".join(changed[::60])
    html = rendered([" ".join(words)], [" ".join(changed)])
    assert "NEW1980" in html
    assert html.count("[goes on]") == len(units) - 1


@pytest.mark.parametrize(
    ("start", "kind"), [("", "text"), ("[", "quoted"), ("{", "quoted")]
)
def test_a_late_change_of_a_very_long_text_does_not_turn_it_into_json(
    start: str, kind: str
) -> None:
    text = start + "word " * 1000
    (unit,) = block([f"{text}ten"], [f"{text}three"]).units(0, 9)
    assert unit.come.kind == kind
    assert side([unit], "out").endswith("ten" if kind == "text" else 'ten"')
    assert side([unit], "in").endswith("three" if kind == "text" else 'three"')


def test_a_late_change_beside_another_kind_of_value_is_shown_where_it_is() -> None:
    (unit,) = block([{"a": 1}], ["word " * 1000]).units(0, 9)
    assert unit.out.kind == "code"
    assert unit.come.kind == "text"
    assert unit.pieces == ()


def test_a_long_object_in_a_list_shows_each_of_its_changes() -> None:
    old = {f"field{n}": "x" * 100 for n in range(60)}
    new = {key: f"{value}y" for key, value in old.items()}
    units = block([old], [new]).units(0, 40)
    assert side(units, "in").count("y") == 60
    assert side(units, "out").count("y") == 0


def test_long_items_stand_between_their_neighbours() -> None:
    before = ["first", LETTERS_OLD, "last"]
    after = ["FIRST", LETTERS_NEW, "LAST"]
    change_block = block(before, after)
    units = change_block.units(0, len(change_block))
    assert units[0].come.text == "FIRST"
    assert units[-1].come.text == "LAST"
    assert side(units[1:-1], "in") == LETTERS_NEW


def test_many_long_items_are_compared_in_bounds_and_still_shown_whole() -> None:
    count = MOST_COMPARED // len(LETTERS_OLD)
    before = [f"{n} {LETTERS_OLD}" for n in range(count)]
    after = [f"{n} {LETTERS_NEW}" for n in range(count)]
    change = comparison.compare(before, after)
    html = rendered(
        before, after, pages=CardPages({(WRITE, "change"): change.pages - 1})
    )
    assert "new299" in html
    assert html.count("new") < 40 * LONGEST_ITEM
    states = [piece.state for piece in change.blocks[0].units(0, 1)[0].pieces]
    assert set(states) <= {"same", "out", "in"}
