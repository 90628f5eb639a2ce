"""Paths are read as the differences write them, and a channel followed alone has the
value that it has in the whole.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.core.diff import written
from checkpoints.core.state_paths import (
    ABSENT,
    LONGEST,
    changed_document,
    is_same,
    is_touched,
    narrowed,
    nodes_that_ran,
    parsed_path,
    value_at,
    value_in,
)
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values import canonical, ops

KEYS = st.one_of(
    st.sampled_from(
        [
            "payout",
            "a b",
            "a-b",
            "ö",
            "",
            'say "no"',
            "back\\slash",
            "x.y",
            "[0]",
            "0",
            "input",
            "-",
        ]
    ),
    st.text(max_size=5),
)
PATHS = st.builds(
    lambda first, rest: (first, *rest),
    KEYS,
    st.lists(KEYS | st.integers(0, 10**9 - 1), max_size=4),
)


@given(st.sampled_from(["scratch", "artifacts", "input", "diagnostics"]), PATHS)
def test_a_path_with_its_partition_is_read_as_it_was_written(
    partition: str, parts: tuple[Any, ...]
) -> None:
    path = parsed_path(written((partition, *parts)))
    assert path.partitions == (partition,)
    assert path.parts == parts
    assert path.channel == parts[0]
    assert parsed_path(str(path)) == path


@given(
    PATHS.filter(
        lambda parts: parts[0] not in ("scratch", "artifacts", "input", "diagnostics")
    )
)
def test_a_path_without_a_partition_names_a_channel_of_the_state(
    parts: tuple[Any, ...],
) -> None:
    path = parsed_path(written(parts))
    assert path.partitions == ("scratch", "artifacts")
    assert path.parts == parts
    assert str(path) == written(parts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".a",
        "a.",
        "a..b",
        "a[",
        "a[x]",
        "a[-1]",
        "a[1",
        'a["b]',
        "[0]",
        "scratch",
        "input",
        "scratch[0]",
        "a b",
        "a[12345678901]",
        "a]b",
        "x" * (LONGEST + 1),
        None,
        7,
        "a\x00b",
        "/payout/amount",
        "a.0",
    ],
)
def test_what_is_no_path_is_refused_by_name(text: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        parsed_path(text)
    assert refused.value.facts["path"] == "path"


def test_a_channel_called_like_a_partition_is_named_with_its_partition() -> None:
    assert parsed_path("scratch.scratch.a").parts == ("scratch", "a")
    assert parsed_path("scratch.a").parts == ("a",)


def test_a_value_is_found_by_keys_and_indexes_and_absent_where_there_is_none() -> None:
    value = {"lines": [{"amount": 3}, None]}
    assert value_at(value, ("lines", 0, "amount")) == 3
    assert value_at(value, ("lines", 1)) is None
    for path in (
        ("lines", 2),
        ("lines", "0"),
        ("other",),
        ("lines", 1, "x"),
        ("lines", 0, "amount", 0),
    ):
        assert value_at(value, path) is ABSENT
    assert is_same(ABSENT, ABSENT)
    assert not is_same(ABSENT, None)
    assert not is_same(1, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", max_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)
PARTITION = st.dictionaries(
    st.sampled_from(["risk", "payout", "notes"]), JSON, max_size=3
)
DOCUMENTS = st.fixed_dictionaries(
    {"scratch": PARTITION, "artifacts": PARTITION, "diagnostics": PARTITION}
)


@given(
    DOCUMENTS,
    DOCUMENTS,
    st.booleans(),
    st.sampled_from(["scratch.payout", "artifacts.notes", "diagnostics.risk"]),
)
def test_a_channel_alone_goes_the_way_that_it_goes_in_the_whole_document(
    before: dict[str, Any], after: dict[str, Any], whole: bool, text: str
) -> None:
    before = canonical.normalised(before)
    after = canonical.normalised(after)
    path = parsed_path(text)
    op = ops.put(after) if whole else ops.between(before, after) or ops.within({})
    assert changed_document(narrowed(before, path), [op], path) == narrowed(after, path)
    if not is_touched(op, path):
        assert is_same(value_in(before, path), value_in(after, path))


def test_the_nodes_of_a_change_are_those_of_the_supersteps_that_set_the_channel() -> (
    None
):
    def step(node: str, channel: str) -> dict[str, Any]:
        noted = ops.within({"nodes": ops.within({node: ops.put({"ms": 1, "runs": 1})})})
        return ops.within(
            {"diagnostics": noted, "scratch": ops.within({channel: ops.put(1)})}
        )

    change = [
        step("fetch", "notes"),
        step("assess", "risk"),
        step("look", "risk"),
        step("pay", "paid"),
    ]
    assert nodes_that_ran(change, parsed_path("risk")) == ["assess", "look"]
    assert (
        nodes_that_ran([ops.put({"scratch": {"risk": 1}})], parsed_path("risk")) == []
    )
