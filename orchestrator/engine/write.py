"""What a node may return besides a dict: writes, sends and commands. Values only; `output_of` checks them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.engine.hints import explained_class


@dataclass(frozen=True, slots=True)
class Write:
    """A wish to change one channel. `label` is what reviewers see in place of the channel's name."""

    channel: str
    value: Any
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Start `node` at once with `payload`, a JSON value that it reads as `ctx.payload`."""

    node: str
    payload: Any = None


@explained_class
@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Writes, and where to go. `goto` replaces the node's outgoing edges for this visit, `send` adds to them."""

    update: dict[str, Any] | Sequence[Write] | None = None
    goto: str | Sequence[str] | None = None
    send: Sequence[Send] = ()
