"""`Graph`: the declarations of authors. It only records them; `compile` checks them and
the registry freezes them.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel

from orchestrator.engine import registry
from orchestrator.engine.errors import InvalidGraph, InvalidValue
from orchestrator.engine.graphs.compile import State, compile
from orchestrator.engine.graphs.definition import Definition, edge_id, label_text
from orchestrator.engine.graphs.gate import Gate
from orchestrator.engine.graphs.node import END, START, Branch, Edge, Node, Router
from orchestrator.engine.graphs.retry import Retry
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.engine.values.hints import explained_class, explains_arguments
from orchestrator.engine.versions.migration import (
    Migration,
    migrated_state,
    way_between,
)

__all__ = ["END", "START", "Graph"]

F = TypeVar("F", bound=Callable[..., Any])


@explained_class
class Graph(Definition):
    """A graph: a name, models of its input and state, policies, nodes and edges. Making
    one registers nothing.
    """

    @explains_arguments("graph.node")
    def node(  # noqa: PLR0913
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
        authority: str | Sequence[str] = (),
        args: type[BaseModel] | None = None,
        prepare: Callable[..., Any] | None = None,
        memory: str | None = None,
        graph: "Graph | None" = None,
        inputs: Any = None,
        outputs: Any = None,
    ) -> Callable[[F], F]:
        """Declare a node: the decorated `(state, ctx)` function, under `name` or its
        own. Returns the function.
        """
        # Taken before any other local name exists, so these are exactly the arguments.
        options = dict(locals())
        del options["self"]
        options["name"] = name or ""
        node = Node(fn=_nothing, **options)
        self.must_be_open()
        # Without brackets the decorator is called with the function as its `name`.
        if name is not None and not isinstance(name, str):
            message = (
                "a node's name is text; "
                f"write @graph.node() with brackets, not {name!r}"
            )
            raise InvalidGraph(message, graph=self.name)
        if graph is not None:
            # There is no function to decorate, so the node is declared at once.
            self.nodes.append(node)
        return lambda fn: self._add_node(node, fn)

    def _add_node(
        self,
        node: Node,
        fn: F,
    ) -> F:
        # The graph may have been registered since `node(...)` was called.
        self.must_be_open()
        # A callable object may have no name; the compiler refuses the empty one.
        name = node.name or getattr(fn, "__name__", "")
        self.nodes.append(
            replace(
                node,
                name=name,
                fn=fn,
            )
        )
        return fn

    def edge(
        self,
        source: str,
        target: str,
        *,
        when: str | Sequence[str] | None = None,
    ) -> None:
        """Declare an edge from node to node, taken always or for these outcomes
        ("approved", "rejected", "partial", "error").
        """
        self.must_be_open()
        outcomes = (when,) if when is None or isinstance(when, str) else tuple(when)
        if not outcomes:
            cure = "leave it out for an edge that is always taken"
            # Kept, not raised: registration lists all faults of a graph at once.
            self.faults.append(
                f"edge {source} -> {target}: when={when!r} names no outcome; {cure}"
            )
        for outcome in outcomes:
            kind = "error" if outcome == "error" else "edge"
            id = edge_id(
                source,
                target,
                kind,
                when=outcome,
            )
            self.edges.append(
                Edge(
                    id,
                    source,
                    target,
                    kind,
                    when=outcome,
                )
            )

    def branch(
        self,
        source: str,
        router: Router,
        labels: Mapping[Any, str],
    ) -> None:
        """Declare a branch from a node to the target whose label `router(state)`
        returns, on the state after the node's writes. Several branches of one node are
        each taken, even if they share labels and targets.
        """
        self.must_be_open()
        if not isinstance(labels, Mapping):
            cure = f"write branch({source!r}, router, {{label: node}})"
            self.faults.append(
                f"branch from {source}: {labels!r} is no dict of labels; {cure}"
            )
            return
        edges: dict[str, Edge] = {}
        for label, target in labels.items():
            try:
                text = label_text(label)
            except TypeError as error:
                self.faults.append(f"branch from {source}: {error}")
                continue
            # Different keys may be one label: True and "true", 3 and "3".
            if text in edges:
                self.faults.append(f"branch from {source}: two labels are {text!r}")
                continue
            id = self._branch_id(source, target, text)
            edges[text] = Edge(
                id,
                source,
                target,
                "branch",
                label=text,
            )
            self.edges.append(edges[text])
        self.branches.append(Branch(source, router, edges))

    def _branch_id(
        self,
        source: str,
        target: str,
        label: str,
    ) -> str:
        """Return the id of one more edge: its readable name, with a number if an earlier
        branch has that already.
        """
        name = edge_id(
            source,
            target,
            "branch",
            label=label,
        )
        # Tokens are counted by the id of their edge, so two edges must not share one.
        taken = {edge.id for edge in self.edges}
        id = name
        numbers = itertools.count(2)
        while id in taken:
            id = f"{name}#{next(numbers)}"
        return id

    def wait(self, name: str, **_: Any) -> None:
        """Record a fault: this version cannot wait for an outside event or a time."""
        self.must_be_open()
        self.faults.append(
            f"wait {name}: this version has no waiting for events or times"
        )

    def migration(
        self,
        *,
        from_version: str,
        to_version: str | None = None,
    ) -> Callable[[F], F]:
        """Declare how the state of a run of another version becomes one of `to_version`
        (None: of this graph's own version).

        The decorated function takes {"scratch": {channel: value}, "artifacts": {...}},
        as JSON, and returns it changed, or changes it in place. Runs go by the shortest
        way, so steps can follow each other.
        """
        self.must_be_open()
        end = self.version if to_version is None else to_version
        return lambda fn: self._add_migration(Migration(from_version, end, fn), fn)

    def _add_migration(
        self,
        step: Migration,
        fn: F,
    ) -> F:
        self.migrations.append(step)
        return fn

    def test_migration(
        self,
        state: Mapping[str, Mapping[str, Any]],
        *,
        from_version: str,
    ) -> State:
        """Return the state of a run that goes on from `from_version` with this graph,
        for the tests of authors.

        `state` as a migration takes it. Like a worker, this also takes steps that other
        registered versions of this graph declare. Raises `InvalidGraph`, and
        `InvalidValue` naming the step that failed or the channel that does not fit;
        also for anything but partitions of a state, and if no migration leads here.
        """
        unknown = sorted(set(state).difference(PARTITIONS))
        if unknown:
            raise InvalidValue(
                f"{', '.join(unknown)}: a state has {' and '.join(PARTITIONS)}",
                path="state",
            )
        of_others = registry.migrations(self.name, apart_from=self.version)
        # Among equally short ways, the one declared first wins: that of this version.
        all_steps = [*self.migrations, *of_others]
        steps = way_between(all_steps, from_version, self.version)
        if not steps:
            message = (
                f"no migration of graph {self.name} leads "
                f"from version {from_version} to {self.version}"
            )
            raise InvalidValue(message, path="from_version")
        whole = {part: dict(state.get(part, {})) for part in PARTITIONS}
        return migrated_state(compile(self), steps, whole)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart. Raises `InvalidGraph`."""
        return compile(self).mermaid()


def _nothing(state: Any, ctx: Any) -> None:
    """The function of a node that has none yet."""
