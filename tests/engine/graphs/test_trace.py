"""Memory traces as values: how they are named, checked, found and ranked."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs import trace
from orchestrator.engine.graphs.trace import Channels, Trace

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_a_channel_names_a_trace_and_gives_it_back() -> None:
    channel = trace.channel_of("facts", "sky/colour")
    assert trace.is_memory(channel)
    assert trace.address_of(channel) == ("facts", "sky/colour")
    assert not trace.is_memory("facts")


@pytest.mark.parametrize(
    ("namespace", "key"),
    [
        ("", "k"),
        ("n", ""),
        ("n" * 61, "k"),
        ("n", "k" * 121),
        ("a/b", "k"),
        (3, "k"),
        ("n", None),
        ("n", "\ud800"),
    ],
)
def test_an_address_that_no_row_can_hold_is_refused(namespace: Any, key: Any) -> None:
    with pytest.raises(InvalidValue):
        trace.checked(namespace, key)
    assert trace.checked("n" * 60, "k" * 120) == ("n" * 60, "k" * 120)


@pytest.mark.parametrize("limit", [0, 201, True, "5", 1.0])
def test_a_limit_is_a_whole_number_up_to_the_most(limit: Any) -> None:
    with pytest.raises(InvalidValue):
        trace.checked_limit(limit)
    assert [trace.checked_limit(n) for n in (1, 200)] == [1, 200]


def test_words_are_compared_without_case_accents_and_signs() -> None:
    assert trace.words_in("Crème-BRÛLÉE, 2x_straße!") == [
        "creme",
        "brulee",
        "2x",
        "strasse",
    ]
    assert trace.words_in("w" * 100) == ["w" * trace.LONGEST_WORD]


def test_a_search_looks_at_keys_texts_and_numbers_and_not_at_truth() -> None:
    assert (
        trace.text_of("Sky", {"colour": ["blue", 7, None, True]}) == "sky colour blue 7"
    )
    assert (
        trace.text_of("sky", {"b": {"d": 1, "c": 2}, "a": 3}) == "sky a 3 b c 2 d 1"
    ), "in one order, whoever looks"


def test_the_most_words_come_first_then_the_strongest_then_the_newest_then_by_key() -> (
    None
):
    def trace_of(key: str, words: str, strength: float = 1.0, hours: int = 0) -> Trace:
        return Trace("facts", key, words, strength, 1, at=NOON + timedelta(hours=hours))

    traces = [
        trace_of("d", "blue"),
        trace_of("c", "blue", hours=1),
        trace_of("b", "blue", strength=2.0),
        trace_of("a", "blue sky"),
        trace_of("e", "blue"),
        trace_of("none", "green"),
    ]
    assert [hit.key for hit in trace.ranked(traces, ["blue", "sky"], 5)] == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    assert [hit.key for hit in trace.ranked(traces, ["blue", "sky"], 2)] == ["a", "b"]


def test_channels_of_memory_are_there_without_being_listed() -> None:
    channels = Channels()
    assert "$memory:facts/sky" in channels
    assert "sky" not in channels
    assert channels["$memory:facts/sky"].stage({"content": 1, "strength": 0.5}) == {
        "content": 1,
        "strength": 0.5,
    }
    with pytest.raises(InvalidValue):
        channels["$memory:facts/sky"].stage({"content": 1, "strength": -1.0})
    with pytest.raises(KeyError):
        channels["sky"]
