"""Bases: what the channels held that a decision on a held write looked at. When one moves, the decision comes back.

Pure. Pending writes keep theirs as bytes, `play` as it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from orchestrator.engine import canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled
from orchestrator.engine.trace import is_memory


class Digests(Protocol):
    """Whatever hashes bytes."""

    def digest(self, data: bytes, /) -> str: ...


@dataclass(frozen=True, slots=True)
class Base:
    """The channel's value and those of `shows`. `bound` says whether the value binds; `version` is that of a memory."""

    value: Json
    shows: dict[str, Json]
    bound: bool
    version: int | None = None

    @classmethod
    def read(
        cls, compiled: Compiled, state: Mapping[str, Mapping[str, Any]], channel: str, *, shows: Iterable[str]
    ) -> Self:
        """The base of a write to `channel` in this state, {"scratch": {...}, "artifacts": {...}}; where it is a write
        to memory the state has a partition "memory" too, {channel: {value, version}}.
        """
        values = {**state["scratch"], **state["artifacts"]}
        bound, shown = compiled.channels[channel].bound, {name: values.get(name) for name in sorted(shows)}
        if is_memory(channel):
            return cls(shows=shown, bound=bound, **state["memory"][channel])
        return cls(values.get(channel), shown, bound)

    def binding(self) -> bytes:
        """The part that binds, as bytes. A base has moved when these differ."""
        part: dict[str, Json] = {"shows": self.shows}
        if self.bound:
            part["value"] = self.value
        return canonical.dumps(part | self._versioned())

    def hash(self, by: Digests) -> str:
        """The hash of the part that binds."""
        return by.digest(self.binding())

    def to_json(self) -> dict[str, Json]:
        return {"value": self.value, "shows": self.shows, "bound": self.bound, **self._versioned()}

    def _versioned(self) -> dict[str, Json]:
        return {} if self.version is None else {"version": self.version}
