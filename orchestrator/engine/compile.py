"""From a declared graph to the one that runs: checked, indexed, fingerprinted, frozen. For the registry and `play`.

A `Compiled` answers what planner, reducer, runner and pages ask about a graph; it never changes and holds no run.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from orchestrator.engine import checks, state, values
from orchestrator.engine.canonical import Json, digest, encode
from orchestrator.engine.channel import LIMIT
from orchestrator.engine.definition import Definition, edge_id
from orchestrator.engine.errors import InvalidGraph, InvalidValue, PayloadTooLarge
from orchestrator.engine.gate import Proposal, Proposed, paths_of
from orchestrator.engine.hints import nearest
from orchestrator.engine.identity import Task
from orchestrator.engine.mermaid import to_mermaid
from orchestrator.engine.node import END, START, Branch, Edge, Node
from orchestrator.engine.reach import Reach, reach_of
from orchestrator.engine.structure import document, in_words, policy
from orchestrator.engine.trace import Channels
from orchestrator.engine.view import INPUT, read_only
from orchestrator.engine.write import Write

State = dict[str, dict[str, Json]]
"""{"scratch": {...}, "artifacts": {...}}, canonical JSON."""


@dataclass(frozen=True)
class Ways:
    """How a node is left: `plain` edges, `branches`, by outcome (`when`), `error` edges, and goto targets."""

    plain: tuple[Edge, ...] = ()
    branches: tuple[Branch, ...] = ()
    when: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    error: tuple[Edge, ...] = ()
    goto: Mapping[str, Edge] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A graph that can run. `order` numbers nodes as declared; `incoming` are a node's edges without sends. `channels`
    lists those of the state, and knows those of memory too.
    """

    graph: Definition
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    channels: Channels
    structure: dict[str, Json]
    schemas: dict[str, dict[str, Any]]
    reach: Reach
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def version(self) -> str:
        return self.graph.version

    @property
    def input_model(self) -> type[BaseModel]:
        return self.graph.input

    @property
    def state_model(self) -> type[BaseModel]:
        return self.graph.state

    @cached_property
    def checkpoints(self) -> str | int:
        """The checkpoint policy: a word, or n for every n-th superstep."""
        return policy(self.graph.checkpoints)

    @property
    def snapshot(self) -> str | int:
        """When a full snapshot is due: "bytes", or every so many checkpoints."""
        return self.graph.snapshot

    @cached_property
    def structure_text(self) -> str:
        """The structure as the one text that the fingerprint is made of."""
        return json.dumps(self.structure, sort_keys=True, default=str)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the structure, in hex: what runs are pinned to."""
        return digest(self.structure_text.encode())

    @cached_property
    def order(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.nodes)}

    @cached_property
    def edge(self) -> dict[str, Edge]:
        """Edges by id."""
        return {edge.id: edge for edge in self.edges}

    @cached_property
    def incoming(self) -> dict[str, tuple[Edge, ...]]:
        return {name: tuple(e for e in self.edges if e.target == name and e.kind != "send") for name in self.nodes}

    @cached_property
    def ways(self) -> dict[str, Ways]:
        return {name: _ways(self, name) for name in self.nodes}

    def task_order(self, task: Task) -> tuple[int, int, int]:
        """Sort key: declared order of the node, visit, index."""
        return self.order[task.node], task.visit, task.index

    def has_error_edge(self, node: str) -> bool:
        """Whether a failure of this node is a way on, not the end of the run."""
        return bool(self.ways[node].error)

    def memory_mode(self, node: str) -> str:
        """The mode of a node's memory: its own, else the graph's."""
        return self.nodes[node].memory or self.graph.memory

    def fresh_state(self) -> State:
        """A new state at its defaults."""
        return state.fresh(self.channels, self.state_model)

    def stage_input(self, given: Any, *, limit: int | None = LIMIT) -> Json:
        """Canonical JSON of an input: a mapping or an instance of the model. `limit` in bytes.

        Raises `InvalidValue` naming the path (fields that the model does not know are refused unless it says
        otherwise), `PayloadTooLarge`.
        """
        model = self.input_model
        if not isinstance(given, BaseModel | Mapping):
            raise InvalidValue(f"the input of {self.name} must be an object", path="")
        data = dict(given) if isinstance(given, Mapping) else {k: getattr(given, k) for k in type(given).model_fields}
        self._refuse_unknown(data)
        instance = values.validated(model, data, by_alias=True)
        plain = values.round_trip(instance, sets=state.holds_sets(self.schemas["input"]))
        size = len(encode(plain))
        if limit is not None and size > limit:
            message = f"the input has {size} bytes, more than the {limit} that are allowed"
            raise PayloadTooLarge(message, size=size, limit=limit)
        return plain

    def _refuse_unknown(self, data: Mapping[Any, Any]) -> None:
        if self.input_model.model_config.get("extra") is not None:
            return
        known = {n for name, f in self.input_model.model_fields.items() for n in (name, f.alias, f.validation_alias)}
        if any(not isinstance(name, str | None) for name in known):
            return  # an alias path or choice: only pydantic knows what it takes
        for name in data:
            if name not in known:
                raise InvalidValue(
                    f"the input of {self.name} has no field {name}; {nearest(name, _texts(known))}", path=str(name)
                )

    def input_for(self, plain: Json) -> BaseModel:
        """The input as a node sees it; a fresh instance."""
        return read_only(values.read(self.input_model, plain), INPUT)

    def state_for(self, plain: State, node: str | None = None) -> BaseModel:
        """The state as a node sees it (honouring its `reads`), or as a router does (None); a fresh instance."""
        return self.viewer(plain, node)()

    def recorded_state(self, plain: State) -> tuple[BaseModel, set[str]]:
        """Return the state as a router sees it, and the set to which each channel is added that is looked at."""
        record: set[str] = set()
        return state.viewer(self.channels, self.state_model, plain, reads=None, record=record)(), record

    def viewer(self, plain: State, node: str | None = None) -> Callable[[], BaseModel]:
        """What makes such instances of one state, again and again."""
        reads = self.nodes[node].reads if node else None
        return state.viewer(self.channels, self.state_model, plain, reads=reads)

    def proposal(self, writes: Sequence[Proposed]) -> Proposal:
        """What a gate's `needs_approval` gets: the writes with Python values."""
        return Proposal([Write(w.channel, self.channels[w.channel].load(w.value), w.label) for w in writes])

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return to_mermaid(self.nodes.values(), self.edges)

    def catalogue(self) -> dict[str, Json]:
        """The graph for people, as JSON: nodes, edges, schemas, docstrings, warnings, flowchart."""
        return {
            "name": self.name,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "doc": self.graph.description.strip(),
            "nodes": [in_words(node) for node in self.nodes.values()],
            "edges": [
                {"id": e.id, "source": e.source, "target": e.target, "kind": e.kind, "label": e.label, "when": e.when}
                for e in self.edges
            ],
            "input_schema": self.schemas["input"],
            "state_schema": self.schemas["state"],
            "warnings": list(self.warnings),
            "mermaid": self.mermaid(),
        }


def _texts(names: Iterable[Any]) -> list[str]:
    return [name for name in names if isinstance(name, str)]


def compile(graph: Definition) -> Compiled:
    """Check a graph and make it ready to run. Raises `InvalidGraph` with all faults in `faults`."""
    _refuse(graph, list(checks.faults_of_graph(graph)))
    channels, faults = state.channels_of(graph.state)
    edges = (*graph.edges, *_targets(graph))
    for node in graph.nodes:
        faults += [*checks.faults_of_node(node, channels), *checks.faults_of_gate(graph, node, channels)]
        faults += checks.faults_of_coverage(node, edges)
    _refuse(graph, [*faults, *checks.faults_of_edges(graph, edges)])
    reach = reach_of([node.name for node in graph.nodes], edges)
    _refuse(graph, _unreachable(graph, edges, reach))
    try:
        schemas = {"input": state.schema_of(graph.input), "state": state.schema_of(graph.state)}
    except InvalidValue as error:
        raise _invalid(graph, [error.message]) from error
    return Compiled(
        graph=graph,
        nodes={node.name: node for node in graph.nodes},
        edges=edges,
        channels=Channels(channels),
        structure=document(graph, channels, edges, schemas=schemas),
        schemas=schemas,
        reach=reach,
        warnings=tuple(_warnings(graph, edges, reach)),
    )


def _refuse(graph: Definition, faults: list[str]) -> None:
    if faults:
        raise _invalid(graph, faults)


def _invalid(graph: Definition, faults: list[str]) -> InvalidGraph:
    listed = faults[0] if len(faults) == 1 else "".join(f"\n  - {fault}" for fault in faults)
    return InvalidGraph(f"graph {graph.name} cannot run: {listed}", graph=graph.name, faults=faults)


def _targets(graph: Definition) -> list[Edge]:
    """The edges that nodes declare by `goto=` and `sends=`."""
    return [
        Edge(edge_id(node.name, target, kind), node.name, target, kind)
        for node in graph.nodes
        for kind, targets in (("goto", node.goto), ("send", node.sends))
        for target in targets
    ]


def _ways(compiled: Compiled, name: str) -> Ways:
    out = [edge for edge in compiled.edges if edge.source == name]
    plain = tuple(edge for edge in out if edge.kind == "edge" and edge.when is None)
    when: dict[str, tuple[Edge, ...]] = {}
    for edge in out:
        if edge.when and edge.kind == "edge":
            when[edge.when] = (*when.get(edge.when, ()), edge)
    return Ways(
        plain=plain,
        branches=tuple(branch for branch in compiled.graph.branches if branch.source == name),
        when=when,
        error=tuple(edge for edge in out if edge.kind == "error"),
        goto={edge.target: edge for edge in out if edge.kind == "goto"},
    )


def _unreachable(graph: Definition, edges: tuple[Edge, ...], reach: Reach) -> list[str]:
    started = 0
    for edge in edges:
        if edge.source == START and edge.target in reach.bit:
            started |= reach.forward[edge.target]
    faults = [f"node {name} cannot be reached from START" for name, bit in reach.bit.items() if not started & bit]
    if not any(edge.target == END and edge.source != START for edge in edges):
        faults.append("END cannot be reached")
    return faults


def _warnings(graph: Definition, edges: tuple[Edge, ...], reach: Reach) -> list[str]:
    leave = sum({reach.bit[edge.source] for edge in edges if edge.target == END and edge.source in reach.bit})
    stuck = [name for name in reach.bit if not reach.forward[name] & leave]
    found = [f"nothing leads out of the circle of {', '.join(stuck)}"] if stuck else []
    for node in graph.nodes:
        found += _unbound(graph, node)
        found += _unknown_paths(graph, node)
        found += _taken_though_rejected(node, edges)
    return found


def _unknown_paths(graph: Definition, node: Node) -> list[str]:
    """What title and facts of a gate read that nothing can be: reviewers would see the bare template."""
    if node.gate is None or graph.input.model_config.get("extra") == "allow":
        return []
    names = [*graph.input.model_fields, *graph.state.model_fields]
    there = {*names, "node", "input", "state", "proposal"}
    firsts = dict.fromkeys(path.partition(".")[0] for path in paths_of(node.gate))
    return [
        f"node {node.name}: title or facts of the gate read {first}, which is no channel and no "
        f"field of the input; {nearest(first, names)}"
        for first in firsts
        if first not in there
    ]


def _taken_though_rejected(node: Node, edges: tuple[Edge, ...]) -> list[str]:
    """The ways on that a gate of several writes takes although people rejected one of them."""
    gate = node.gate
    if gate is None or gate.all_or_nothing or len(gate.writes) < 2:
        return []
    ways = [edge for edge in edges if edge.source == node.name and edge.when is None]
    targets = dict.fromkeys(edge.target for edge in ways if edge.target != END)
    return [
        f"node {node.name}: the way to {target} is also taken where people reject some of its writes "
        f"({', '.join(gate.writes)}) and approve others; name the outcomes (edge(..., when='approved'), "
        "when='partial'), or give the gate all_or_nothing=True"
        for target in targets
    ]


def _unbound(graph: Definition, node: Node) -> list[str]:
    """What a gate shows that could change under a signature without bringing it back."""
    if node.gate is None:
        return []
    read = []
    for path in paths_of(node.gate):
        first, _, rest = path.partition(".")
        read.append(rest.partition(".")[0] if first == "state" else first)
    loose = sorted({c for c in read if c in graph.state.model_fields} - {*node.gate.shows, *node.gate.writes})
    return [
        f"node {node.name}: the gate shows {channel}, which is neither in its writes nor in its shows; "
        "a change of it would not bring a signature back"
        for channel in loose
    ]
