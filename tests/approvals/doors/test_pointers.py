"""JSON Pointers, by the examples of RFC 6901."""

from typing import Any

import pytest

from approvals.doors.pointers import is_pointer, value_at
from orchestrator.engine.errors import InvalidValue

BODY: dict[str, Any] = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, "~1": 9}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", BODY),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/m~0n", 8),
        ("/~01", 9),
    ],
)
def test_a_pointer_leads_to_a_value(pointer: str, value: Any) -> None:
    assert is_pointer(pointer)
    assert value_at(BODY, pointer) == value


@pytest.mark.parametrize(
    "pointer", ["/none", "/foo/2", "/foo/01", "/foo/-", "/foo/0/x", "/foo/-1"]
)
def test_where_there_is_nothing_the_pointer_is_named(pointer: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        value_at(BODY, pointer)
    assert refused.value.facts["path"] == pointer


@pytest.mark.parametrize("text", ["foo", "/~", "/~2", "#/foo"])
def test_other_texts_are_no_pointers(text: str) -> None:
    assert not is_pointer(text)
