"""What a client says is read strictly: what is not known is refused, and nothing raises
an error of its own.
"""

import json
from uuid import UUID

import pytest

from orchestrator.live import messages

RUN = "0190c6a0-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("query", "number"),
    [(b"", 0), (b"after=7", 7), (f"after={2**63 - 1}".encode(), 2**63 - 1)],
)
def test_the_number_that_was_seen_last_is_zero_where_none_is_given(
    query: bytes, number: int
) -> None:
    assert messages.read_after(query) == number


@pytest.mark.parametrize(
    "query",
    [
        "after=-1",
        "after=" + "9" * 30,
        "after=" + "9" * 5000,
        f"after={2**63}",
        "after=%D9%A3",
        "after=\u00b3",
        "after=x",
        "after=",
        "after=1&after=2",
        "after=%00",
        "after=1.5",
        "after=+1",
        "after=1_0",
        "&".join(["a=1"] * 20),
    ],
)
def test_a_number_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(messages.NotUnderstood):
        messages.read_after(query.encode())


def test_the_rows_that_are_watched_have_numbers() -> None:
    assert messages.read_watch(json.dumps({"watch": {RUN: 3}})) == {UUID(RUN): 3}
    assert messages.read_watch('{"watch": {}}') == {}


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "",
        "[]",
        "3",
        "null",
        '{"watch": {"x": 1}}',
        '{"watch": 3}',
        "{}",
        '{"watch": {}, "more": 1}',
        f'{{"watch": {{"{RUN}": "1"}}}}',
        f'{{"watch": {{"{RUN}": true}}}}',
        f'{{"watch": {{"{RUN}": -1}}}}',
        f'{{"watch": {{"{RUN}": 1.5}}}}',
        f'{{"watch": {{"{RUN}": Infinity}}}}',
        f'{{"watch": {{"{RUN}": 1e400}}}}',
        f'{{"watch": {{"{RUN}": {"9" * 30}}}}}',
        f'{{"watch": {{"{RUN}": {"9" * 5000}}}}}',
        "[" * 9000,
        '{"watch": {}, "watch": {}}',
        f'{{"watch": {{"{RUN}": 1, "{RUN}": 2}}}}',
        "\ud800",
        json.dumps({"watch": {RUN[:-3] + f"{n:03}": 0 for n in range(101)}}),
        None,
    ],
)
def test_a_message_that_is_not_known_is_refused(text: str | None) -> None:
    with pytest.raises(messages.NotUnderstood):
        messages.read_watch(text)


def test_a_message_nested_deeper_than_any_is_refused_however_long_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "MOST_BYTES", 10**6)
    for text in (
        "[" * 50_000 + "]" * 50_000,
        '{"watch":' * 50_000 + "1" + "}" * 50_000,
        "[" * 50_000,
    ):
        with pytest.raises(messages.NotUnderstood):
            messages.read_watch(text)


@pytest.mark.parametrize("text", [" " * 20_000, "\u20ac" * 6_000])
def test_a_message_that_is_too_large_is_not_read(text: str) -> None:
    with pytest.raises(messages.TooLarge):
        messages.read_watch(text)
