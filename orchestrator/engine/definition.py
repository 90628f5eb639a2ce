"""What a graph declares, before anything is checked: the list that `Graph` writes and the compiler reads."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.errors import InvalidGraph
from orchestrator.engine.gate import Fact
from orchestrator.engine.node import Branch, Edge, Node
from orchestrator.engine.retry import Interval

ARROWS = {"edge": ">", "branch": ">", "error": ">", "goto": "=>", "send": "~>"}


def edge_id(source: str, target: str, kind: str, *, label: str | None = None, when: str | None = None) -> str:
    """The edge's readable name: `a>b`, `a>b?label`, `a>b!approved`, `a=>b` (goto), `a~>b` (send). Where a second branch
    of a node gives the same label and target, `Graph.branch` adds a number: `a>b?label#2`.
    """
    mark = f"?{label}" if label is not None else f"!{when}" if when else ""
    return f"{source}{ARROWS[kind]}{target}{mark}"


def label_text(label: Any) -> str:
    """A router's label as text: True is `true`, 3 is `3`. Raises `TypeError` for what can be no label."""
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, str):
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
    nodes: list[Node] = field(default_factory=list, init=False, repr=False)
    edges: list[Edge] = field(default_factory=list, init=False, repr=False)
    branches: list[Branch] = field(default_factory=list, init=False, repr=False)
    faults: list[str] = field(default_factory=list, init=False, repr=False)
    migrations: list[Any] = field(default_factory=list, init=False, repr=False)
    frozen: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.secrets, str) and isinstance(self.secrets, Iterable):
            self.secrets = tuple(self.secrets)  # read more than once, whatever was given
        if not isinstance(self.indexed_metadata, str) and isinstance(self.indexed_metadata, Iterable):
            self.indexed_metadata = tuple(self.indexed_metadata)

    def must_be_open(self) -> None:
        """Refuse a change after registration."""
        if self.frozen:
            raise InvalidGraph(f"graph {self.name} is registered and can no longer change", graph=self.name)
