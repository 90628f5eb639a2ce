"""Blocks of a comparison are given window by window, and all windows together are the whole."""

from typing import Any

import pytest

from approvals.views import comparison
from approvals.views.change_blocks import Fields, Items


def block(now: Any, proposed: Any) -> Any:
    (found,) = comparison.compare(now, proposed).blocks
    return found


@pytest.mark.parametrize(
    ("now", "proposed", "kind"),
    [
        ({f"f{n}": n for n in range(40)}, {f"f{n}": n + 1 for n in range(40)}, Fields),
        ([f"item {n}" for n in range(40)], [f"item {n + 7}" for n in range(40)], Items),
    ],
)
def test_windows_put_together_are_all_units(now: Any, proposed: Any, kind: type) -> None:
    found = block(now, proposed)
    assert isinstance(found, kind)
    whole = found.units(0, len(found))
    assert len(whole) == len(found)
    assert [
        unit for start in range(0, len(found), 7) for unit in found.units(start, min(start + 7, len(found)))
    ] == whole


def test_a_row_names_its_field_and_holds_both_values() -> None:
    row = block({"amount": "10"}, {"amount": "12"}).units(0, 1)[0]
    assert (row.label, row.state, row.now.text, row.proposed.text) == ("Amount", "changed", "10", "12")


def test_an_item_that_came_and_one_that_went_have_one_side_each() -> None:
    units = block(["a", "b"], ["b", "c"]).units(0, 9)
    assert [(unit.state, bool(unit.out), bool(unit.come)) for unit in units] == [
        ("out", True, False),
        ("same", False, True),
        ("in", False, True),
    ]
