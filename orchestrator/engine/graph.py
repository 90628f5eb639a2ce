"""`Graph`: how authors declare what runs. It only takes notes; `compile` checks them and the registry freezes them."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from orchestrator.engine import registry
from orchestrator.engine.compile import State, compile
from orchestrator.engine.definition import Definition, edge_id, label_text
from orchestrator.engine.errors import InvalidGraph, InvalidValue
from orchestrator.engine.gate import Gate
from orchestrator.engine.hints import explained_class, explains_arguments
from orchestrator.engine.migration import Migration, migrated_state, way_between
from orchestrator.engine.node import END, START, Branch, Edge, Node, Router
from orchestrator.engine.patch import PARTITIONS
from orchestrator.engine.retry import Retry

__all__ = ["END", "START", "Graph"]

F = TypeVar("F", bound=Callable[..., Any])


@explained_class
class Graph(Definition):
    """A graph: a name, models of its input and state, policies, nodes and edges. Making one registers nothing."""

    @explains_arguments("graph.node")
    def node(
        self,
        name: str | None = None,
        *,
        effect: str = "pure",
        gate: Gate | None = None,
        approve: str | None = None,
        checkpoint: str | None = None,
        join: str = "all",
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        max_visits: int | None = None,
        idempotent: bool = False,
        atomic: bool = False,
        not_done: type[BaseException] | Sequence[type[BaseException]] = (),
        reads: Sequence[str] | None = None,
        goto: str | Sequence[str] = (),
        sends: str | Sequence[str] = (),
        args: type[BaseModel] | None = None,
        prepare: Callable[..., Any] | None = None,
        memory: str | None = None,
        graph: "Graph | None" = None,
        inputs: Any = None,
        outputs: Any = None,
    ) -> Callable[[F], F]:
        """Declare a node: the decorated `(state, ctx)` function, under `name` or its own. Returns the function."""
        node = Node(fn=_nothing, **{k: v for k, v in locals().items() if k not in ("self", "name")}, name=name or "")
        self.must_be_open()
        if name is not None and not isinstance(name, str):
            message = f"a node's name is text; write @graph.node() with brackets, not {name!r}"
            raise InvalidGraph(message, graph=self.name)
        if graph is not None:  # there is no function to decorate, so the note is made at once
            self.nodes.append(node)
        return lambda fn: self._declared(node, fn)

    def _declared(self, node: Node, fn: F) -> F:
        self.must_be_open()
        self.nodes.append(replace(node, name=node.name or getattr(fn, "__name__", ""), fn=fn))
        return fn

    def edge(self, source: str, target: str, *, when: str | Sequence[str] | None = None) -> None:
        """From node to node, always or for these outcomes ("approved", "rejected", "partial", "error")."""
        self.must_be_open()
        outcomes = (when,) if when is None or isinstance(when, str) else tuple(when)
        if not outcomes:
            cure = "leave it out for an edge that is always taken"
            self.faults.append(f"edge {source} -> {target}: when={when!r} names no outcome; {cure}")
        for outcome in outcomes:
            kind = "error" if outcome == "error" else "edge"
            self.edges.append(Edge(edge_id(source, target, kind, when=outcome), source, target, kind, when=outcome))

    def branch(self, source: str, router: Router, labels: Mapping[Any, str]) -> None:
        """From a node to the one whose label `router(state)` returns, on the state after the node's writes. Several
        branches of one node are each taken, whatever labels and targets they share.
        """
        self.must_be_open()
        if not isinstance(labels, Mapping):
            cure = f"write branch({source!r}, router, {{label: node}})"
            self.faults.append(f"branch from {source}: {labels!r} is no dict of labels; {cure}")
            return
        found: dict[str, Edge] = {}
        for label, target in labels.items():
            try:
                text = label_text(label)
            except TypeError as error:
                self.faults.append(f"branch from {source}: {error}")
                continue
            if text in found:
                self.faults.append(f"branch from {source}: two labels are {text!r}")
                continue
            found[text] = Edge(self._branch_id(source, target, text), source, target, "branch", label=text)
            self.edges.append(found[text])
        self.branches.append(Branch(source, router, found))

    def _branch_id(self, source: str, target: str, label: str) -> str:
        """A name for one more edge: that of the edge, with a number where an earlier branch has that already."""
        name, taken = edge_id(source, target, "branch", label=label), {edge.id for edge in self.edges}
        numbered = (f"{name}#{n}" for n in itertools.count(2))
        return name if name not in taken else next(one for one in numbered if one not in taken)

    def wait(self, name: str, **_: Any) -> None:
        """Waiting for an outside event or a time: the compiler says that this version does not have it."""
        self.must_be_open()
        self.faults.append(f"wait {name}: this version has no waiting for events or times")

    def migration(self, *, from_version: str, to_version: str | None = None) -> Callable[[F], F]:
        """Declare how the state of a run of another version becomes one of `to_version` (None: of this graph's own).

        The decorated function takes {"scratch": {channel: value}, "artifacts": {...}}, as JSON, and returns it changed,
        or changes what it was given. Runs go by the shortest way, so steps can follow each other.
        """
        self.must_be_open()
        end = self.version if to_version is None else to_version
        return lambda fn: self._leads(Migration(from_version, end, fn), fn)

    def _leads(self, step: Migration, fn: F) -> F:
        self.migrations.append(step)
        return fn

    def test_migration(self, state: Mapping[str, Mapping[str, Any]], *, from_version: str) -> State:
        """What a run's state becomes where it goes on from `from_version` with this graph, for the tests of authors.

        `state` as a migration takes it. As a worker does, it also goes by steps that other registered versions of this
        graph declare. Raises `InvalidGraph`, and `InvalidValue` naming the step that failed or the channel that does
        not fit; also for what is no partition of a state, and where no migration leads here.
        """
        if unknown := sorted({*state} - {*PARTITIONS}):
            raise InvalidValue(f"{', '.join(unknown)}: a state has {' and '.join(PARTITIONS)}", path="state")
        known = [*self.migrations, *registry.migrations(self.name, apart_from=self.version)]
        steps = way_between(known, from_version, self.version)
        if not steps:
            message = f"no migration of graph {self.name} leads from version {from_version} to {self.version}"
            raise InvalidValue(message, path="from_version")
        whole = {part: {**state.get(part, {})} for part in PARTITIONS}
        return migrated_state(compile(self), steps, whole)

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart. Raises `InvalidGraph`."""
        return compile(self).mermaid()


def _nothing(state: Any, ctx: Any) -> None:
    """What a node without a function would do."""
