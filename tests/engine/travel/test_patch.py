"""Patches: the examples of both RFCs, and what a patch of a state may not do."""

from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Artifact, Graph
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.travel.patch import merged, operated, patched


@pytest.mark.parametrize(
    ("value", "patch", "after"),
    [  # RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_its_rfc_says(
    value: Any, patch: Any, after: Any
) -> None:
    assert merged(value, patch) == after


@pytest.mark.parametrize(
    ("value", "operations", "after"),
    [  # RFC 6902, appendix A
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux"}],
            {"baz": "qux", "foo": "bar"},
        ),
        (
            {"foo": ["bar", "baz"]},
            [{"op": "add", "path": "/foo/1", "value": "q"}],
            {"foo": ["bar", "q", "baz"]},
        ),
        (
            {"baz": "qux", "foo": "bar"},
            [{"op": "remove", "path": "/baz"}],
            {"foo": "bar"},
        ),
        (
            {"foo": ["bar", "qux", "baz"]},
            [{"op": "remove", "path": "/foo/1"}],
            {"foo": ["bar", "baz"]},
        ),
        (
            {"baz": "qux"},
            [{"op": "replace", "path": "/baz", "value": "boo"}],
            {"baz": "boo"},
        ),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        (
            {"foo": ["a", "b", "c", "d"]},
            [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
            {"foo": [*"acdb"]},
        ),
        (
            {"baz": "qux"},
            [{"op": "test", "path": "/baz", "value": "qux"}],
            {"baz": "qux"},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/child", "value": {"g": {}}}],
            {"foo": "bar", "child": {"g": {}}},
        ),
        (
            {"foo": "bar"},
            [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}],
            {"foo": "bar", "baz": "qux"},
        ),
        (
            {"/": 9, "~1": 10},
            [{"op": "test", "path": "/~01", "value": 10}],
            {"/": 9, "~1": 10},
        ),
        (
            {"foo": ["bar"]},
            [{"op": "add", "path": "/foo/-", "value": ["a", "d"]}],
            {"foo": ["bar", ["a", "d"]]},
        ),
        (
            {"a": {"b": 1}},
            [{"op": "copy", "from": "/a", "path": "/c"}],
            {"a": {"b": 1}, "c": {"b": 1}},
        ),
        ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/a"}], {"a": 1}),
    ],
)
def test_operations_do_what_their_rfc_says(
    value: Any, operations: Any, after: Any
) -> None:
    assert operated(value, operations) == after


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"op": "add", "path": "/baz/bat", "value": 1}, "there is no 'baz'"),
        ({"op": "remove", "path": "/none"}, "there is no 'none'"),
        ({"op": "replace", "path": "/none", "value": 1}, "there is no 'none'"),
        ({"op": "test", "path": "/flag", "value": 1}, "another one"),
        ({"op": "test", "path": "/foo", "value": ["b"]}, "another one"),
        ({"op": "add", "path": "/foo/3", "value": 1}, "no place in a list of 1"),
        ({"op": "add", "path": "/foo/01", "value": 1}, "no place"),
        ({"op": "add", "path": "/foo/-1", "value": 1}, "no place"),
        ({"op": "remove", "path": "/foo/-"}, "no place"),
        ({"op": "remove", "path": ""}, "the whole cannot be removed"),
        ({"op": "move", "from": "/deep", "path": "/deep/in"}, "into itself"),
        ({"op": "add", "path": "/flag/x", "value": 1}, "an object or a list only"),
        ({"op": "add", "path": "foo", "value": 1}, "no pointer"),
        ({"op": "add", "path": "/x"}, "add needs value"),
        ({"op": "move", "path": "/x"}, "move needs from"),
        ({"op": "shake", "path": "/x"}, "it needs an op"),
        ({"path": "/x"}, "it needs an op"),
        ("add", "it needs an op"),
    ],
)
def test_an_operation_that_cannot_be_done_is_named_and_nothing_is_changed(
    operation: Any, words: str
) -> None:
    value = {"foo": ["a"], "flag": True, "deep": {"in": 1}}
    with pytest.raises(InvalidValue, match=words) as refused:
        operated(value, [{"op": "add", "path": "/new", "value": 1}, operation])
    assert refused.value.message.startswith("operation 1: ")
    assert value == {"foo": ["a"], "flag": True, "deep": {"in": 1}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, JSON)
def test_any_value_can_be_replaced_as_a_whole(value: Any, other: Any) -> None:
    assert operated(value, [{"op": "replace", "path": "", "value": other}]) == other


@given(
    st.dictionaries(st.text("ab/~", max_size=2), JSON, max_size=3),
    st.text("ab/~", max_size=3),
    JSON,
)
def test_what_is_added_can_be_tested_and_removed_again(
    value: Any, name: str, added: Any
) -> None:
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    steps = [
        {"op": "add", "path": pointer, "value": added},
        {"op": "test", "path": pointer, "value": added},
    ]
    after = operated(value, [*steps, {"op": "remove", "path": pointer}])
    assert after == {k: v for k, v in value.items() if k != name}


class Known(BaseModel):
    notes: Annotated[list[str], Append] = []
    total: int = 3
    report: Annotated[str, Artifact] = ""


def _graph() -> Compiled:
    flow = Graph("patched", input=Known, state=Known)
    flow.node("a")(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.edge("a", END)
    return compile(flow)


STATE: dict[str, dict[str, Any]] = {
    "scratch": {"notes": ["one"], "total": 7},
    "artifacts": {"report": "draft"},
}


def test_each_partition_may_have_a_patch_of_its_own_kind() -> None:
    patch = {
        "scratch": [{"op": "add", "path": "/notes/-", "value": "two"}],
        "artifacts": {"report": "final"},
    }
    assert patched(STATE, patch, graph=_graph()) == {
        "scratch": {"notes": ["one", "two"], "total": 7},
        "artifacts": {"report": "final"},
    }
    assert STATE["scratch"]["notes"] == ["one"]


def test_a_channel_that_is_removed_is_at_its_default_again() -> None:
    assert (
        patched(STATE, {"scratch": {"total": None}}, graph=_graph())["scratch"]["total"]
        == 3
    )
    assert "total" not in patched(STATE, {"scratch": {"total": None}})["scratch"]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"input": {}}, "scratch and artifacts, not input"),
        ({"diagnostics": {}}, "not diagnostics"),
        ({"scratch": 3}, "an object or a list of operations"),
        (
            {"scratch": [{"op": "replace", "path": "", "value": 1}]},
            "an object of channels still",
        ),
        ({"scratch": {"total": "many"}}, "total"),
        ({"scratch": {"colour": "red"}}, "scratch of patched has no channel colour"),
        ({"scratch": {"report": "in the wrong place"}}, "has no channel report"),
        ({"scratch": {"total": float("nan")}}, "total"),
        ({"scratch": {"total": 2**70}}, "total"),
        ("scratch", "a patch is an object"),
    ],
)
def test_a_patch_that_does_not_fit_the_graph_is_refused_by_its_place(
    patch: Any, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words):
        patched(STATE, patch, graph=_graph())


def test_a_patch_keeps_the_limit_of_values() -> None:
    with pytest.raises(PayloadTooLarge):
        patched(STATE, {"scratch": {"notes": ["x" * 100]}}, graph=_graph(), limit=50)


def test_what_a_patch_leaves_alone_is_not_checked_again() -> None:
    old = {**STATE, "scratch": {"notes": "of an earlier version", "total": 7}}
    assert (
        patched(old, {"scratch": {"total": 8}}, graph=_graph())["scratch"]["total"] == 8
    )
