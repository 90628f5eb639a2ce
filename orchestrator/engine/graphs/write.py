"""Writes, sends and commands: what a node may return besides a dict. Values only;
`output_of` checks them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.values.hints import explained_class


@dataclass(frozen=True, slots=True)
class Write:
    """A wish to change one channel. Reviewers see `label` instead of the channel's name.

    At a gate, an edit must fit `schema` besides the channel's type: a JSON Schema, or a
    type for which pydantic makes one. `effect` names what whoever acts on the value
    does to the world, as nodes name theirs. Both are shown, and part of what is signed.
    """

    channel: str
    value: Any
    label: str | None = None
    schema: Any = None
    effect: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Start `node` at once with `payload`, a JSON value that it reads as `ctx.payload`."""

    node: str
    payload: Any = None


@explained_class
@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Command:
    """Writes, and the way on. `goto` replaces the node's outgoing edges for this
    visit, `send` adds to them.
    """

    update: dict[str, Any] | Sequence[Write] | None = None
    goto: str | Sequence[str] | None = None
    send: Sequence[Send] = ()
