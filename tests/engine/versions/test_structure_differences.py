"""No two versions that differ are said to be alike: whatever of a structure changes is
told in words.
"""

import copy
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Custom,
    Gate,
    Graph,
    Last,
    Show,
)
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.versions.differences import (
    BREAKING,
    HARMLESS,
    WARNING,
    differences,
)
from tests.engine.random_graphs import graphs
from tests.engine.reference import Spec
from tests.engine.small import Nothing, logs
from tests.properties.edits import Source, edited


class Inner(BaseModel):
    payee: str
    amount: int
    kind: Literal["a", "b"] = "a"


class State(BaseModel):
    model_config = ConfigDict(extra="forbid")

    log: Annotated[list[str], Append] = []
    note: Annotated[str, Last, Field(max_length=9)] = ""
    paid: Inner | None = None
    report: Annotated[dict[str, int], Artifact] = {}
    own: Annotated[int, Custom(max)] = 0


class Given(BaseModel):
    folder: str
    inner: Inner
    size: int = 0


def whole() -> dict[str, Any]:
    """A structure in which each field has something to say."""
    flow = Graph("whole", input=Given, state=State, reviewers=["user:ann"])
    writes = {"note": Show(reason_required=True), "paid": Show()}
    gate = Gate(
        reviewers=["user:ann", "user:bob"],
        quorum=2,
        writes=writes,
        shows=["log", "own"],
        needs_approval=_asked,
        recheck=_asked,
        veto=_asked,
    )
    flow.node("fetch", effect="read", reads=["note", "log"], goto=["send", "ask"])(logs)
    flow.node("ask", effect="human", gate=gate)(logs)
    flow.node(
        "send",
        effect="external",
        idempotent=True,
        not_done=[KeyError, ValueError],
        join="all",
        authority="ask",
    )(logs)
    flow.node("each", sends=["send", "fetch"])(logs)
    for source, target in (
        (START, "fetch"),
        ("fetch", "each"),
        ("ask", "send"),
        ("each", "send"),
        ("send", END),
    ):
        flow.edge(source, target)
    return copy.deepcopy(compile(flow).structure)


def _asked(state: Any, proposal: Any) -> bool:
    return True


Path = tuple[Any, ...]
NOT_ITS_OWN = {"goto", "sends"}
"""What a node leads to: it stands among the edges, in the same order."""


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each place of a structure with what it may be changed to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from leaves(inner, (*path, n)) if isinstance(inner, dict) else ()
        more = [] if value and isinstance(value[0], dict) else [[*value, "other"]]
        yield from (
            (path, other)
            for other in (value[:-1], value[::-1], *more)
            if other != value
        )
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int):
        yield path, value + 1
    elif isinstance(value, str):
        yield path, f"{value}x"
    elif path[-1] != "gate":
        yield path, ["log"] if path[-1] == "reads" else "other"


def changed(path: Path, value: Any) -> dict[str, Any]:
    flow = whole()
    at: Any = flow
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return flow


# A graph of another name is another graph.
EVERY = [
    leaf
    for leaf in leaves(whole())
    if leaf[0] != ("name",) and not NOT_ITS_OWN & {*leaf[0]}
]


@pytest.mark.parametrize(
    ("path", "value"),
    EVERY,
    ids=[f"{'.'.join(map(str, path))}={value}" for path, value in EVERY],
)
def test_each_field_of_a_structure_that_changes_is_told(path: Path, value: Any) -> None:
    assert differences(whole(), changed(path, value))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.integers(0, 2**32))
def test_random_edits_that_move_the_fingerprint_are_told(
    made: tuple[list[Spec], list[str]], dice: int
) -> None:
    before = Source(*made)
    source = edited(before, "g", dice)[0]
    old, new = (compile(one.graph("g", dice)) for one in (before, source))
    changes = differences(old.structure, new.structure)
    assert bool(changes) == (old.fingerprint != new.fingerprint)


def test_the_order_in_which_a_node_names_where_it_goes_is_told() -> None:
    def going(*targets: str) -> Any:
        flow = Graph("going", input=Nothing, state=State)
        for name in ("a", "b", "c"):
            flow.node(name, goto=targets if name == "a" else ())(logs)
            flow.edge(START if name == "a" else name, "a" if name == "a" else END)
        return compile(flow).structure

    assert [
        difference.words for difference in differences(going("b", "c"), going("c", "b"))
    ] == ["order of edges: changed"]


def bound(commutes: bool) -> Any:
    class Owned(BaseModel):
        total: Annotated[int, Custom(max, commutes=commutes)] = 0

    return simple(Owned)


def simple(state: type[BaseModel], value: type[BaseModel] = Nothing) -> Any:
    flow = Graph("simple", input=value, state=state)
    flow.node("a")(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.edge("a", END)
    return compile(flow).structure


def test_what_a_signature_is_bound_to_is_not_loosened_without_a_word() -> None:
    (looser,) = differences(bound(False), bound(True))
    assert looser.weight == BREAKING
    assert looser.migratable is False
    assert (
        looser.words
        == "channel `total`: a signature is bound to its value: yes became no"
    )
    (stricter,) = differences(bound(True), bound(False))
    assert stricter.weight == WARNING


def test_a_type_that_is_written_otherwise_and_takes_the_same_values_breaks_nothing() -> (
    None
):
    class Swapped(BaseModel):
        amount: int
        payee: str
        kind: Literal["a", "b"] = "a"

    class Before(BaseModel):
        paid: Inner | None = None

    class After(BaseModel):
        paid: Swapped | None = None

    changes = [
        *differences(simple(Before), simple(After)),
        *differences(simple(Before, Inner), simple(Before, Swapped)),
    ]
    assert [(change.weight, change.what) for change in changes] == [
        (HARMLESS, "state"),
        (HARMLESS, "input"),
    ]
    assert {change.change for change in changes} == {
        "is written otherwise, and takes the same values"
    }


def test_what_is_left_of_the_type_of_the_state_is_a_warning() -> None:
    class Open(BaseModel):
        total: int = 0

    class Closed(Open):
        model_config = ConfigDict(extra="forbid")

    assert [
        (difference.weight, difference.what)
        for difference in differences(simple(Open), simple(Closed))
    ] == [(WARNING, "state")]
