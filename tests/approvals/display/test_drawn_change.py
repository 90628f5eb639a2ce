"""An old value beside a new one: a change is seen if and only if the values differ as
JSON.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from approvals.display.drawn_change import (
    CONTEXT,
    NOT_THERE,
    ONE_LINE,
    draw_change,
    sides_of,
)
from approvals.display.leaf import ABSENT, Leaf, leaf_of
from approvals.display.value_types import NOTHING_DECLARED, ValueType, decimal_of
from checkpoints.core.diff import ADDED, CHANGED, REMOVED, differences
from orchestrator.engine.values.canonical import encode
from orchestrator.templatetags.values import shown_value
from tests.approvals.views.looks import ALIKE, look

LONG = "word " * 200
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, 1.5, "1", "1.0", "1.00", "-0", "0", "true", "null"])
    | st.sampled_from(["", "not set", "not there", "removed", "erased", "a\u200b", "a"])
    | st.sampled_from([LONG, LONG + "a", LONG + "b", "é", "e\u0301", "a ", "a\n"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "A", "a b", ""]), inner, max_size=3)
    ),
    max_leaves=8,
)
INSIDE: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda value: value,
    "a list": lambda value: [value],
    "an object": lambda value: {"a": value},
    "a long list": lambda value: [LONG, value],
}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values: any two, or two that could be taken for each other."""
    if draw(st.booleans()):
        return draw(JSON), draw(JSON)
    left, right = draw(st.sampled_from(list(ALIKE.values())))
    inside = INSIDE[draw(st.sampled_from(list(INSIDE)))]
    return inside(left), inside(draw(st.sampled_from([left, right])))


BARE = decimal_of("")
TYPES: dict[str, ValueType | None] = {
    "lines of JSON": None,
    "nothing declared": NOTHING_DECLARED,
    "amounts": decimal_of("EUR"),
    "bare decimals": BARE,
    "a list of bare decimals": ValueType({"items": BARE.schema}),
}


def plain_look(leaf: Leaf) -> str:
    """The look of a leaf without its font: code is a text as any other."""
    html = shown_value(leaf).replace('<code class="js">', "<span>")
    return look(html.replace("</code>", "</span>"))


FEW = settings(max_examples=150, deadline=None)


@pytest.mark.parametrize("declared", TYPES.values(), ids=list(TYPES))
@FEW
@given(pairs())
def test_a_change_is_seen_if_and_only_if_the_canonical_json_differs(
    declared: ValueType | None, pair: tuple[Any, Any]
) -> None:
    before, after = pair
    change = draw_change(before, after, declared=declared, longest=ONE_LINE)
    looks = [plain_look(leaf) for leaf in (change.before, change.after)]
    assert (looks[0] != looks[1]) == (encode(before) != encode(after))


def test_keys_in_another_order_are_no_change() -> None:
    before = {"a b": None, "": None}
    change = draw_change(before, {"": None, "a b": None}, declared=None)
    assert change.before == change.after


@FEW
@given(pairs())
def test_all_differences_of_two_values_together_are_seen_if_and_only_if_they_differ(
    pair: tuple[Any, Any],
) -> None:
    before, after = pair
    places = list(differences({"at": before}, {"at": after}))
    assert bool(places) == (encode(before) != encode(after))
    for place in places:
        old, new = sides_of(place.kind, place.before, place.after)
        change = draw_change(old, new, declared=None, longest=ONE_LINE)
        assert look(shown_value(change.before)) != look(shown_value(change.after))


@pytest.mark.parametrize("case", ALIKE)
@pytest.mark.parametrize("declared", TYPES.values(), ids=list(TYPES))
def test_what_could_be_mistaken_is_told_apart(
    case: str, declared: ValueType | None
) -> None:
    change = draw_change(*ALIKE[case], declared=declared, longest=ONE_LINE)
    assert plain_look(change.before) != plain_look(change.after)


@pytest.mark.parametrize(
    ("before", "after"), [(7, "7"), (7.5, "7.5"), ("-1", -1), ([1, 7], [1, "7"])]
)
def test_a_number_and_a_bare_decimal_of_its_digits_are_told_apart(
    before: Any, after: Any
) -> None:
    declared = ValueType({"items": BARE.schema}) if isinstance(before, list) else BARE
    change = draw_change(before, after, declared=declared)
    assert plain_look(change.before) != plain_look(change.after)
    assert {change.before.kind, change.after.kind} == {"code"}
    same = draw_change(before, before, declared=declared)
    assert same.before == same.after == leaf_of(before, declared=declared)


def test_lists_of_bare_decimals_that_read_the_same_are_cut_where_they_differ() -> None:
    declared = ValueType({"items": BARE.schema})
    before = [*("9" * 110 for _ in range(6)), 7]
    after = [*before[:-1], "7"]
    change = draw_change(before, after, declared=declared, longest=ONE_LINE)
    assert change.before.text.endswith("7]")
    assert change.after.text.endswith('"7"]')


def test_two_equal_long_values_are_drawn_from_their_beginning() -> None:
    change = draw_change(LONG, LONG, declared=NOTHING_DECLARED, longest=ONE_LINE)
    assert change.before == change.after == leaf_of(LONG, longest=ONE_LINE)


@pytest.mark.parametrize("declared", TYPES.values(), ids=list(TYPES))
def test_what_is_missing_is_not_null(declared: ValueType | None) -> None:
    added = draw_change(ABSENT, None, declared=declared)
    assert added.before == NOT_THERE
    assert added.before != added.after
    removed = draw_change(None, ABSENT, declared=declared)
    assert removed.after.text == "removed"
    assert removed.before == added.after


@pytest.mark.parametrize("declared", TYPES.values(), ids=list(TYPES))
def test_long_values_are_shown_where_they_differ(declared: ValueType | None) -> None:
    before = {"text": LONG + "ten"}
    after = {"text": LONG + "three"}
    change = draw_change(before, after, declared=declared, longest=ONE_LINE)
    assert change.before.text.endswith('ten"}')
    assert change.after.text.endswith('three"}')
    assert len(change.after.text) <= CONTEXT + len('…three"}')
    assert change.after.rest.startswith("… and 9")


def test_the_missing_side_of_a_difference_is_absent_and_null_is_not() -> None:
    assert sides_of(ADDED, None, None) == (ABSENT, None)
    assert sides_of(REMOVED, None, None) == (None, ABSENT)
    assert sides_of(CHANGED, None, 1) == (None, 1)
