"""Nodes and edges as values: what a graph declares and what the compiled graph runs on."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from orchestrator.engine.effect import HUMAN, JOURNALED
from orchestrator.engine.errors import NotDone
from orchestrator.engine.gate import Gate
from orchestrator.engine.retry import Retry

START = "START"
END = "END"

NodeFunction = Callable[[Any, Any], Any]
Router = Callable[[Any], Any]

ATOMIC_SECONDS = 5.0
"""How long an atomic node may take where it names no timeout: it holds a transaction open."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node. `timeout` in seconds, None: the installation's. `reads` None: all channels."""

    name: str
    fn: NodeFunction
    effect: str = "pure"
    gate: Gate | None = None
    approve: str | None = None
    checkpoint: str | None = None
    join: str = "all"
    retry: Retry | None = None
    timeout: float | None = None
    max_visits: int | None = None
    idempotent: bool = False
    atomic: bool = False
    not_done: tuple[type[BaseException], ...] = ()
    reads: tuple[str, ...] | None = None
    goto: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    args: Any = None
    prepare: Any = None
    memory: str | None = None
    graph: Any = None
    inputs: Any = None
    outputs: Any = None

    def __post_init__(self) -> None:
        """One form for what authors may write in several: names alone or in a list, seconds or a timedelta."""
        for name in ("not_done", "reads", "goto", "sends"):
            given = getattr(self, name)
            alone = isinstance(given, str | type)
            self._set(name, (given,) if alone else given if given is None else tuple(given))
        if self.approve is None and self.effect == HUMAN:
            self._set("approve", "writes")
        if self.timeout is None and self.atomic:
            self._set("timeout", ATOMIC_SECONDS)
        elif isinstance(self.timeout, timedelta):
            self._set("timeout", self.timeout.total_seconds())

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def journaled(self) -> bool:
        """Whether intent and result of its tasks are recorded, because it acts."""
        return self.effect in JOURNALED

    @property
    def gated(self) -> bool:
        """Whether people decide on what it writes."""
        return self.approve is not None and self.gate is not None

    @property
    def doc(self) -> str:
        """The function's docstring."""
        return (self.fn.__doc__ or "").strip()

    @property
    def safe_again(self) -> bool:
        """Whether an attempt that ended without a result may simply be made again."""
        return not self.journaled or self.idempotent or self.atomic

    def unknown_after(self, error: BaseException) -> bool:
        """Whether an attempt that ended with this error may have acted, so that only a person can tell."""
        return not self.safe_again and not self.says_not_done(error)

    def says_not_done(self, error: BaseException) -> bool:
        """Return whether this error says that nothing happened outside."""
        return isinstance(error, (NotDone, *self.not_done))


@dataclass(frozen=True, slots=True)
class Edge:
    """One way from node to node: each label and each outcome is an edge of its own. A `send` edge carries no token."""

    id: str
    source: str
    target: str
    kind: str = "edge"
    label: str | None = None
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A router and where its labels lead: {label: edge}."""

    source: str
    router: Router
    edges: dict[str, Edge]

    @property
    def name(self) -> str:
        return getattr(self.router, "__qualname__", None) or type(self.router).__qualname__
