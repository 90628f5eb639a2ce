"""The state that a node gets reads its channels when they are looked at, and is
otherwise like any other instance.
"""

import copy
import pickle
from typing import Annotated, Any

import pytest
from pydantic import (
    BaseModel,
    PrivateAttr,
    TypeAdapter,
    computed_field,
    field_validator,
)

from orchestrator.engine import END, START, Append, Graph
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.graphs.state import viewer
from orchestrator.engine.values.view import can_be_viewed, viewed


class Inner(BaseModel):
    words: list[str] = []


class State(BaseModel):
    number: int = 1
    items: Annotated[list[str], Append] = []
    inner: Inner = Inner()
    lax: int = None  # type: ignore[assignment]

    @computed_field
    @property
    def twice(self) -> int:
        return self.number * 2

    @field_validator("number")
    @classmethod
    def positive(cls, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value


PLAIN: dict[str, dict[str, Any]] = {
    "scratch": {
        "number": 4,
        "items": ["a", "ö"],
        "inner": {"words": ["x"]},
        "lax": None,
    },
    "artifacts": {},
}
LIKE = State(number=4, items=["a", "ö"], inner=Inner(words=["x"]))


@pytest.fixture
def compiled() -> Compiled:
    graph = Graph("views", input=Inner, state=State)
    graph.node("step")(lambda state, ctx: None)
    graph.edge(START, "step")
    graph.edge("step", END)
    return compile(graph)


def seen(compiled: Compiled, *, reads: tuple[str, ...] | None = None) -> Any:
    return viewer(compiled.channels, State, PLAIN, reads=reads)()


def test_only_what_is_looked_at_is_read() -> None:
    looked: list[str] = []
    loaders = {
        name: (lambda name=name: looked.append(name) or 4)
        for name in State.model_fields
    }
    state: Any = viewed(State, loaders)
    assert state.number + state.number + state.twice == 16
    assert looked == ["number"]


def test_it_is_an_instance_like_any_other(compiled: Compiled) -> None:
    assert isinstance(seen(compiled), State)
    assert seen(compiled).__class__ is State
    assert seen(compiled) == LIKE
    assert seen(compiled) == LIKE
    assert repr(seen(compiled)) == repr(LIKE)
    assert seen(compiled).model_dump() == LIKE.model_dump()
    assert seen(compiled).model_dump_json() == LIKE.model_dump_json()
    assert TypeAdapter(State).dump_python(seen(compiled)) == LIKE.model_dump()
    assert dict(seen(compiled)) == dict(LIKE)
    assert vars(seen(compiled)) == vars(LIKE)
    assert seen(compiled).lax is None


def test_its_fields_are_dumped_in_declared_order_whatever_was_looked_at_first(
    compiled: Compiled,
) -> None:
    state = seen(compiled)
    assert state.inner.words == ["x"]
    assert list(state.model_dump()) == list(LIKE.model_dump())


def test_it_can_be_copied_pickled_and_put_into_another_model(
    compiled: Compiled,
) -> None:
    class Outer(BaseModel):
        state: State

    assert copy.copy(seen(compiled)) == LIKE
    assert copy.deepcopy(seen(compiled)) == LIKE
    assert seen(compiled).model_copy(update={"number": 5}).number == 5
    assert pickle.loads(pickle.dumps(seen(compiled))) == LIKE
    assert Outer(state=seen(compiled)).model_dump() == {"state": LIKE.model_dump()}


def test_what_is_done_to_its_values_stays_in_it(compiled: Compiled) -> None:
    state = seen(compiled)
    state.items.append("mine")
    assert state.items == ["a", "ö", "mine"]
    assert seen(compiled).items == ["a", "ö"]
    assert PLAIN["scratch"]["items"] == ["a", "ö"]


def test_with_reads_it_has_these_channels_and_no_others(compiled: Compiled) -> None:
    state = seen(compiled, reads=("items",))
    assert state.items == ["a", "ö"]
    with pytest.raises(AttributeError):
        _ = state.number


def test_an_unknown_name_is_an_attribute_error(compiled: Compiled) -> None:
    with pytest.raises(AttributeError):
        _ = seen(compiled).nothing


def test_a_model_that_is_more_than_its_fields_is_read_whole() -> None:
    class Private(BaseModel):
        n: int = 0
        _cache: dict[str, int] = PrivateAttr(default_factory=dict)

    class Begun(BaseModel):
        n: int = 0

        def model_post_init(self, context: Any) -> None:
            self.n += 1

    assert can_be_viewed(State)
    assert not can_be_viewed(Private)
    assert not can_be_viewed(Begun)
