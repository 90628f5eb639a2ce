"""What differs between two JSON values."""

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.core.diff import ValueDifference, differences, written
from orchestrator.engine.values.ops import same

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-2, 2)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def rows_of(before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    return [
        (written(d.path), d.kind, d.before, d.after) for d in differences(before, after)
    ]


def test_added_removed_and_changed_keys_are_told_apart() -> None:
    assert rows_of({"a": 1, "b": 2, "c": 3}, {"b": 5, "c": 3, "d": 4}) == [
        ("a", "removed", 1, None),
        ("b", "changed", 2, 5),
        ("d", "added", None, 4),
    ]


def test_a_list_is_compared_by_index_and_its_tail_is_added_or_removed() -> None:
    assert rows_of({"n": ["a", "b"]}, {"n": ["a", "x", "c"]}) == [
        ("n[1]", "changed", "b", "x"),
        ("n[2]", "added", None, "c"),
    ]
    assert rows_of({"n": [1, 2]}, {"n": [1]}) == [("n[1]", "removed", 2, None)]


def test_a_key_whose_value_is_null_is_not_a_key_that_is_missing() -> None:
    assert rows_of({}, {"a": None}) == [("a", "added", None, None)]
    assert rows_of({"a": None}, {"a": 0}) == [("a", "changed", None, 0)]


def test_a_change_of_type_is_one_change() -> None:
    assert rows_of({"a": {"b": 1}}, {"a": [1]}) == [("a", "changed", {"b": 1}, [1])]


@pytest.mark.parametrize(
    ("left", "right"), [(True, 1), (1, 1.0), (0, False), ([1], [True])]
)
def test_values_that_python_calls_equal_and_json_does_not_are_different(
    left: Any, right: Any
) -> None:
    assert not same(left, right)
    assert len(list(differences({"a": left}, {"a": right}))) == 1


def test_a_path_is_written_without_ambiguity() -> None:
    assert written(("payout", "lines", 2, "amount")) == "payout.lines[2].amount"
    assert written(("map", "a.b", "c")) == 'map["a.b"].c'
    assert written(("fraud-score",)) == "fraud-score"


@given(JSON, JSON)
def test_only_the_same_value_has_no_differences(left: Any, right: Any) -> None:
    assert (list(differences(left, right)) == []) == same(left, right)


@given(JSON, JSON)
def test_applying_the_differences_to_the_old_value_gives_the_new_one(
    before: Any, after: Any
) -> None:
    assert same(_applied(before, list(differences(before, after))), after)


def _applied(value: Any, changes: list[ValueDifference]) -> Any:
    if changes and not changes[0].path:
        return changes[0].after
    value = _copied(value)
    for d in changes:
        if d.kind != "removed":
            _set(value, d)
    # From the end, so that the indices of those before stay right.
    removed = [d for d in changes if d.kind == "removed"]
    for d in sorted(
        removed,
        key=lambda d: d.path[-1] if isinstance(d.path[-1], int) else -1,
        reverse=True,
    ):
        del _inside(value, d)[d.path[-1]]
    return value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _inside(value: Any, difference: ValueDifference) -> Any:
    for part in difference.path[:-1]:
        value = value[part]
    return value


def _set(value: Any, difference: ValueDifference) -> None:
    place = _inside(value, difference)
    last = difference.path[-1]
    if isinstance(place, list) and last == len(place):
        place.append(difference.after)
    else:
        place[last] = difference.after


def test_what_is_equal_is_passed_over_without_being_entered() -> None:
    before = [[n, {"n": n}] for n in range(20_000)]
    after = [*before[:15_000], [0, {"n": -1}], *before[15_001:]]
    entered: list[str] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is differences.__code__:
            entered.append(event)

    sys.setprofile(watch)
    try:
        count = len(list(differences({"a": before}, {"a": after})))
    finally:
        sys.setprofile(None)
    assert count == 2
    # Generators are entered again for each thing they give, at each level; of 20,000
    # items that is next to nothing.
    assert len(entered) <= 20
