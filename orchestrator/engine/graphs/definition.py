"""The declaration of a graph, before anything is checked: `Graph` writes it, and the
compiler reads it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.errors import InvalidGraph
from orchestrator.engine.graphs.gate import Fact
from orchestrator.engine.graphs.node import Branch, Edge, Node
from orchestrator.engine.graphs.retry import Interval

ARROWS = {"edge": ">", "branch": ">", "error": ">", "goto": "=>", "send": "~>"}


def edge_id(
    source: str,
    target: str,
    kind: str,
    *,
    label: str | None = None,
    when: str | None = None,
) -> str:
    """Return the edge's readable name: `a>b`, `a>b?label`, `a>b!approved`, `a=>b`
    (goto), `a~>b` (send). If a second branch of a node gives the same label and target,
    `Graph.branch` adds a number: `a>b?label#2`.
    """
    mark = ""
    if label is not None:
        mark = f"?{label}"
    elif when:
        mark = f"!{when}"
    return f"{source}{ARROWS[kind]}{target}{mark}"


def label_text(label: Any) -> str:
    """Return a router's label as text: True is `true`, 3 is `3`. Raises `TypeError` for
    anything that cannot be a label.
    """
    # Before int, for to Python a bool is one.
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, str):
        # A member of an enum may write itself as `Risk.HIGH`; its text is the label.
        return str.__str__(label)
    if isinstance(label, int):
        return str(int(label))
    raise TypeError(f"{label!r} is no label; a label is text")


@dataclass(eq=False)
class Definition:
    """A graph as declared. `frozen` once it is registered."""

    name: str
    _: KW_ONLY
    version: str = "1"
    current: bool | None = None
    input: type[BaseModel]
    state: type[BaseModel]
    checkpoints: str | Interval = "every_node"
    snapshot: str | int = "bytes"
    memory: str = "live"
    payloads: str | None = None
    label: str | None = None
    description: str = ""
    facts: Sequence[Fact] = ()
    encrypted: bool = False
    secrets: Sequence[str] = ()
    indexed_metadata: Sequence[str] = ()
    on_save_error: str = "fail"
    reviewers: Sequence[str] | Callable[[Any], Sequence[str]] | None = None
    max_supersteps: int = 1000
    max_tasks: int = 10_000
    nodes: list[Node] = field(
        default_factory=list,
        init=False,
        repr=False,
    )
    edges: list[Edge] = field(
        default_factory=list,
        init=False,
        repr=False,
    )
    branches: list[Branch] = field(
        default_factory=list,
        init=False,
        repr=False,
    )
    faults: list[str] = field(
        default_factory=list,
        init=False,
        repr=False,
    )
    migrations: list[Any] = field(
        default_factory=list,
        init=False,
        repr=False,
    )
    frozen: bool = field(
        default=False,
        init=False,
        repr=False,
    )

    def __post_init__(self) -> None:
        # Both are read more than once, and a generator would be empty then.
        for option in ("secrets", "indexed_metadata"):
            names = getattr(self, option)
            if isinstance(names, Iterable) and not isinstance(names, str):
                setattr(self, option, tuple(names))

    def must_be_open(self) -> None:
        """Raise `InvalidGraph` if the graph is registered."""
        if self.frozen:
            raise InvalidGraph(
                f"graph {self.name} is registered and can no longer change",
                graph=self.name,
            )
