"""Nodes and edges as values: declared by a graph, and run by the compiled graph."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from types import FunctionType
from typing import Any

from orchestrator.engine.errors import NotDone
from orchestrator.engine.graphs.effect import HUMAN, JOURNALED, PURE
from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.graphs.retry import Retry

START = "START"
END = "END"

NodeFunction = Callable[[Any, Any], Any]
Router = Callable[[Any], Any]

ATOMIC_SECONDS = 5.0
"""The timeout of an atomic node that declares none: it holds a transaction open."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node. `timeout` in seconds, None: the installation's. `reads` None: all
    channels. `authority` names the nodes at whose gates people must have approved what it
    acts on.
    """

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
    authority: tuple[str, ...] = ()
    args: Any = None
    prepare: Any = None
    memory: str | None = None
    graph: Any = None
    inputs: Any = None
    outputs: Any = None

    def __post_init__(self) -> None:
        """Bring to one form what authors may write in several: single names or lists,
        seconds or a timedelta.
        """
        for option in ("not_done", "reads", "goto", "sends", "authority"):
            declared = getattr(self, option)
            # A text would be split into letters, and a class is no sequence.
            if isinstance(declared, str | type):
                self._set(option, (declared,))
            elif declared is not None:
                self._set(option, tuple(declared))
        if self.approve is None and self.effect == HUMAN:
            self._set("approve", "writes")
        if self.timeout is None and self.atomic:
            self._set("timeout", ATOMIC_SECONDS)
        elif isinstance(self.timeout, timedelta):
            self._set("timeout", self.timeout.total_seconds())

    def _set(
        self,
        name: str,
        value: Any,
    ) -> None:
        # The class is frozen; this is called only while an instance is made.
        object.__setattr__(self, name, value)

    @cached_property
    def journaled(self) -> bool:
        """Return whether intent and result of its tasks are recorded because it acts."""
        return self.effect in JOURNALED

    @cached_property
    def is_pure_function(self) -> bool:
        """Return whether it is a pure, plain function. A coroutine needs a thread
        without an event loop, and any other callable may do anything.
        """
        return (
            self.effect == PURE
            and type(self.fn) is FunctionType
            and not self.fn.__code__.co_flags & inspect.CO_COROUTINE
        )

    @cached_property
    def gated(self) -> bool:
        """Return whether people decide on its writes."""
        return self.approve is not None and self.gate is not None

    @cached_property
    def calls(self) -> bool:
        """Return whether people decide before it runs, on the arguments of the call."""
        return self.approve == "call"

    @cached_property
    def preparing(self) -> "Node":
        """Return the node that makes the proposal of a call in place of this node: its
        `prepare` acts nowhere, so it may run again.
        """
        return replace(
            self,
            fn=self.prepare,
            effect=PURE,
            idempotent=False,
            atomic=False,
            not_done=(),
        )

    @property
    def doc(self) -> str:
        """Return the function's docstring, each of its paragraphs on one line."""
        paragraphs = inspect.cleandoc(self.fn.__doc__ or "").split("\n\n")
        return "\n\n".join(" ".join(lines.split()) for lines in paragraphs)

    @cached_property
    def safe_again(self) -> bool:
        """Return whether an attempt that ended without a result may simply be repeated."""
        # What an atomic attempt did was rolled back with its transaction.
        return not self.journaled or self.idempotent or self.atomic

    def unknown_after(self, error: BaseException) -> bool:
        """Return whether an attempt that ended with this error may have acted, so that
        only a person can find out.
        """
        return not self.safe_again and not self.says_not_done(error)

    def says_not_done(self, error: BaseException) -> bool:
        """Return whether this error states that nothing happened outside."""
        return isinstance(error, (NotDone, *self.not_done))


@dataclass(frozen=True, slots=True)
class Edge:
    """One way from node to node: each label and each outcome is a separate edge. A
    `send` edge carries no token.
    """

    id: str
    source: str
    target: str
    kind: str = "edge"
    label: str | None = None
    when: str | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A router and the edges of its labels: {label: edge}."""

    source: str
    router: Router
    edges: dict[str, Edge]

    @property
    def name(self) -> str:
        return (
            getattr(self.router, "__qualname__", None) or type(self.router).__qualname__
        )
