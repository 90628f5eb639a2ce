"""Bases: the channel values that a decision on a held write was made on. When one of
them changes, the decision is due again.

Pure. Pending writes store theirs as bytes, `play` keeps the objects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.trace import is_memory
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json


class Digests(Protocol):
    """An object that hashes bytes."""

    def digest(self, data: bytes, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Base:
    """The channel's value and the values of `shows`. `bound` is true if the value
    binds; `version` is set for memory only.
    """

    value: Json
    shows: dict[str, Json]
    bound: bool
    version: int | None = None

    @classmethod
    def read(
        cls,
        compiled: Compiled,
        state: Mapping[str, Mapping[str, Any]],
        channel: str,
        *,
        shows: Iterable[str],
    ) -> Self:
        """Return the base of a write to `channel` in this state, {"scratch": {...},
        "artifacts": {...}}. For a write to memory the state also has a partition
        "memory", {channel: {value, version}}.
        """
        values = {**state["scratch"], **state["artifacts"]}
        bound = compiled.channels[channel].bound
        shown_values = {name: values.get(name) for name in sorted(shows)}
        if is_memory(channel):
            return cls(shows=shown_values, bound=bound, **state["memory"][channel])
        return cls(values.get(channel), shown_values, bound)

    def binding(self) -> bytes:
        """Return the part that binds, as bytes. A base has moved when these differ."""
        # A trace set to the same content again has moved too: a write to memory lands
        # on the version that it names.
        part: dict[str, Json] = {"shows": self.shows}
        if self.bound:
            part["value"] = self.value
        return canonical.dumps(part | self._versioned())

    def hash(self, by: Digests) -> str:
        """Return the hash of the part that binds."""
        return by.digest(self.binding())

    def to_json(self) -> dict[str, Json]:
        return {
            "value": self.value,
            "shows": self.shows,
            "bound": self.bound,
            **self._versioned(),
        }

    def _versioned(self) -> dict[str, Json]:
        return {} if self.version is None else {"version": self.version}
