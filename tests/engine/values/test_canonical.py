"""Canonical JSON: one byte form per value, and a clear refusal for what has none."""

import hashlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import dumps, framed, framed_hash, loads

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-canonical.LARGEST, canonical.LARGEST)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1)), inner
        )
    ),
)


@given(PLAIN)
def test_what_is_written_reads_back_and_is_written_the_same_again(value: Any) -> None:
    data = dumps(value)
    assert loads(data) == value
    assert dumps(loads(data)) == data


def test_keys_are_sorted_and_nothing_is_between() -> None:
    assert (
        dumps({"b": [1, 2.0], "a": {"ä": None, "z": True}})
        == '{"a":{"z":true,"ä":null},"b":[1,2.0]}'.encode()
    )


def test_negative_zero_is_zero_and_tuples_are_lists() -> None:
    assert dumps((-0.0, 0.0)) == b"[0.0,0.0]"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, 2**53]}, "a[1]"),
        ({"a": -(2**53)}, "a"),
        ([float("nan")], "[0]"),
        ({"a": float("inf")}, "a"),
        ({"a": {"b": "\ud800"}}, "a.b"),
        ({"a": "x\x00y"}, "a"),
        ({"a": {1: 2}}, "a"),
        ({"a": Decimal(1)}, "a"),
        ({"a": {1, 2}}, "a"),
        ({"a": b"x"}, "a"),
    ],
)
def test_what_is_not_json_is_refused_by_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        dumps(value)
    assert refused.value.facts["path"] == path


def test_a_key_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidValue):
        dumps({"\ud800": 1})


def test_nesting_of_100_is_kept_and_of_101_refused() -> None:
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    assert loads(dumps(deep)) == deep
    with pytest.raises(InvalidValue, match="deeper than 100"):
        dumps([deep])


def test_the_largest_integers_are_kept() -> None:
    assert loads(dumps([2**53 - 1, -(2**53) + 1])) == [2**53 - 1, -(2**53) + 1]


@given(
    st.lists(
        st.one_of(
            st.binary(),
            st.text(st.characters(exclude_categories=["Cs"])),
            st.integers(-(2**63), 2**63 - 1),  # counters and sizes: what a column holds
            st.none(),
        )
    ),
    st.data(),
)
def test_framing_tells_any_two_rows_of_parts_apart(parts: list[Any], data: Any) -> None:
    others = data.draw(
        st.lists(
            st.one_of(
                st.sampled_from(parts or [None]),
                st.binary(max_size=2),
                st.text("a1:", max_size=3),
            )
        )
    )
    same = len(parts) == len(others) and all(
        type(a) is type(b) and a == b for a, b in zip(parts, others, strict=True)
    )
    assert (framed(*parts) == framed(*others)) == same


def test_a_framed_hash_is_the_sha256_of_the_frames() -> None:
    assert framed("a", 1, None, b"x") == b'["a",1,null,[1]]x'
    assert (
        framed_hash("a", 1, None, b"x")
        == hashlib.sha256(b'["a",1,null,[1]]x').hexdigest()
    )
