"""Reducers: how writes change a channel. Markers in a state's annotations; `channel`
applies them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reducer:
    """A built-in reducer, known by its name. `bound`: its result replaces the old
    value; decisions depend on that.
    """

    name: str
    bound: bool = False

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Custom:
    """An author's own reducer: `fn(old, update) -> new`. `commutes=True`: the order of
    updates does not matter.
    """

    fn: Callable[[Any, Any], Any]
    commutes: bool = False

    @property
    def name(self) -> str:
        return getattr(self.fn, "__qualname__", None) or type(self.fn).__qualname__

    @property
    def bound(self) -> bool:
        return not self.commutes


@dataclass(frozen=True, slots=True)
class ArtifactMark:
    """The mark of an artifact in the state: a result of the run, in a separate
    partition.
    """

    def __repr__(self) -> str:
        return "Artifact"


Replace = Reducer("Replace", bound=True)
"""The new value replaces the old one; two tasks must not do so in one superstep."""
Last = Reducer("Last", bound=True)
"""Like Replace, and of several in one superstep the last in declared order wins."""
Append = Reducer("Append")
"""Lists are joined."""
Merge = Reducer("Merge")
"""Dicts are merged, one level deep."""
Sum = Reducer("Sum")
"""Values are added."""
Max = Reducer("Max")
"""The greater value stays."""
Min = Reducer("Min")
"""The smaller value stays."""
First = Reducer("First")
"""The first value written stays."""
Union = Reducer("Union")
"""Items that are not there yet are added."""
Longest = Reducer("Longest")
"""The longer value stays; if both are equally long, the older one."""
Artifact = ArtifactMark()


def reducer_in(metadata: list[Any]) -> list[Reducer | Custom]:
    """Return the reducers among a field's annotations. Pydantic's own markers and classes
    are none, though callable.
    """
    reducers: list[Reducer | Custom] = []
    for mark in metadata:
        # The order matters: a marker of pydantic or a class would pass as a function.
        if isinstance(mark, Reducer | Custom):
            reducers.append(mark)
        elif isinstance(mark, type) or hasattr(mark, "__get_pydantic_core_schema__"):
            continue
        elif callable(mark):
            reducers.append(Custom(mark))
    return reducers
