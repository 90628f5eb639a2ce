"""The compiler: from a declared graph to the one that runs, checked, indexed,
fingerprinted and frozen. For the registry and `play`.

A `Compiled` answers the questions of planner, reducer, runner and pages about a graph;
it never changes and holds no run.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.errors import InvalidGraph, InvalidValue, PayloadTooLarge
from orchestrator.engine.graphs import checks, state
from orchestrator.engine.graphs.call import CALL, call_channel, is_call
from orchestrator.engine.graphs.channel import LIMIT, Channel
from orchestrator.engine.graphs.definition import Definition, edge_id
from orchestrator.engine.graphs.gate import Proposal, Proposed, paths_of
from orchestrator.engine.graphs.mermaid import to_mermaid
from orchestrator.engine.graphs.node import END, START, Branch, Edge, Node
from orchestrator.engine.graphs.reach import Reach, reach_of
from orchestrator.engine.graphs.structure import document, in_words, policy
from orchestrator.engine.graphs.trace import Channels
from orchestrator.engine.graphs.write import Write
from orchestrator.engine.values import values
from orchestrator.engine.values.canonical import Json, digest, encode
from orchestrator.engine.values.hints import nearest
from orchestrator.engine.values.identity import Task
from orchestrator.engine.values.view import INPUT, read_only

State = dict[str, dict[str, Json]]
"""{"scratch": {...}, "artifacts": {...}}, canonical JSON."""


@dataclass(frozen=True)
class Ways:
    """The ways that lead on from a node: `plain` edges, `branches`, edges by outcome
    (`when`), `error` edges, and goto targets.
    """

    plain: tuple[Edge, ...] = ()
    branches: tuple[Branch, ...] = ()
    when: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    error: tuple[Edge, ...] = ()
    goto: Mapping[str, Edge] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Compiled:
    """A graph that can run. `order` numbers nodes in declared order; `incoming` are a
    node's edges without sends. `channels` lists those of the state, and finds those of
    memory too.
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
        """The snapshot policy: "bytes", or a number of checkpoints between snapshots."""
        return self.graph.snapshot

    @cached_property
    def structure_text(self) -> str:
        """The structure as text, from which the fingerprint is made."""
        return json.dumps(
            self.structure,
            sort_keys=True,
            default=str,
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the structure, in hex. Runs are pinned to it."""
        return digest(self.structure_text.encode())

    @cached_property
    def order(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.nodes)}

    @cached_property
    def has_policies(self) -> bool:
        """Return whether something that is no person may sign at a gate."""
        gates = [node.gate for node in self.nodes.values() if node.gate]
        return any(gate.auto or gate.standing for gate in gates)

    @cached_property
    def has_journaled(self) -> bool:
        """Return whether the journal records a node's results."""
        return any(node.journaled for node in self.nodes.values())

    @cached_property
    def keeps_every_row(self) -> bool:
        """Return whether the row of each superstep stays in the timeline."""
        if self.checkpoints != "every_node":
            return False
        return all(node.checkpoint is None for node in self.nodes.values())

    @cached_property
    def has_calls(self) -> bool:
        """Return whether people decide on a node before it runs."""
        return any(node.calls for node in self.nodes.values())

    @cached_property
    def edge(self) -> dict[str, Edge]:
        """Edges by id."""
        return {edge.id: edge for edge in self.edges}

    @cached_property
    def incoming(self) -> dict[str, tuple[Edge, ...]]:
        incoming: dict[str, tuple[Edge, ...]] = dict.fromkeys(self.nodes, ())
        for edge in self.edges:
            # A send starts its target at once, so no join waits for it.
            if edge.target in incoming and edge.kind != "send":
                incoming[edge.target] = (*incoming[edge.target], edge)
        return incoming

    @cached_property
    def ways(self) -> dict[str, Ways]:
        return {name: _ways(self, name) for name in self.nodes}

    def task_order(self, task: Task) -> tuple[int, int, int]:
        """Return the sort key of a task: declared order of its node, visit, index."""
        return self.order[task.node], task.visit, task.index

    def has_error_edge(self, node: str) -> bool:
        """Return whether a failure of this node leads on, instead of ending the run."""
        return bool(self.ways[node].error)

    def memory_mode(self, node: str) -> str:
        """Return the mode of a node's memory: its own, else the graph's."""
        return self.nodes[node].memory or self.graph.memory

    def fresh_state(self) -> State:
        """Return a new state at its defaults."""
        return state.fresh(self.channels, self.state_model)

    def stage_input(
        self,
        value: Any,
        *,
        limit: int | None = LIMIT,
    ) -> Json:
        """Return the canonical JSON of an input: a mapping or an instance of the model.
        `limit` in bytes.

        Raises `InvalidValue` naming the path (unknown fields are refused unless the
        model allows them), `PayloadTooLarge`.
        """
        data = self._input_fields(value)
        self._refuse_unknown_fields(data)
        instance = values.validated(
            self.input_model,
            data,
            by_alias=True,
        )
        has_sets = state.holds_sets(self.schemas["input"])
        plain = values.round_trip(instance, sets=has_sets)
        size = len(encode(plain))
        if limit is not None and size > limit:
            message = (
                f"the input has {size} bytes, more than the {limit} that are allowed"
            )
            raise PayloadTooLarge(
                message,
                size=size,
                limit=limit,
            )
        return plain

    def _input_fields(self, value: Any) -> dict[Any, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, BaseModel):
            return {name: getattr(value, name) for name in type(value).model_fields}
        raise InvalidValue(f"the input of {self.name} must be an object", path="")

    def _refuse_unknown_fields(self, data: Mapping[Any, Any]) -> None:
        model = self.input_model
        # A model that says what becomes of extra fields is taken at its word.
        if model.model_config.get("extra") is not None:
            return
        # Authors may write a field by its name or by an alias.
        names: set[Any] = set()
        for name, field_info in model.model_fields.items():
            names.update((name, field_info.alias, field_info.validation_alias))
        if not all(isinstance(name, str | None) for name in names):
            # An alias path or choice: only pydantic knows what it takes.
            return
        for name in data:
            if name not in names:
                raise InvalidValue(
                    f"the input of {self.name} has no field {name}; "
                    f"{nearest(name, _texts(names))}",
                    path=str(name),
                )

    def input_for(self, plain: Json) -> BaseModel:
        """Return the input as a node sees it; a fresh instance."""
        return read_only(values.read(self.input_model, plain), INPUT)

    def state_for(
        self,
        plain: State,
        node: str | None = None,
    ) -> BaseModel:
        """Return the state as a node sees it (limited to its `reads`), or as a router
        does (None); a fresh instance.
        """
        return self.viewer(plain, node)()

    def recorded_state(self, plain: State) -> tuple[BaseModel, set[str]]:
        """Return the state as a router sees it, and a set to which each channel is
        added once it is read.
        """
        record: set[str] = set()
        make_view = state.viewer(
            self.channels,
            self.state_model,
            plain,
            reads=None,
            record=record,
        )
        return make_view(), record

    def viewer(
        self,
        plain: State,
        node: str | None = None,
    ) -> Callable[[], BaseModel]:
        """Return a function that makes fresh views of one state, as `state_for` does."""
        reads = self.nodes[node].reads if node else None
        return state.viewer(
            self.channels,
            self.graph.state,
            plain,
            reads=reads,
        )

    def channel_of(self, node: str, name: str) -> Channel:
        """Return the channel that a node writes. That of its calls has the type of its
        arguments. Raises `KeyError` if there is none of this name.
        """
        declared = self.nodes.get(node)
        if declared is not None and declared.calls and name == CALL:
            return call_channel(declared.args)
        return self.channels[name]

    def has_channel(self, node: str, name: str) -> bool:
        """Return whether the node has a channel of this name, or of its calls, to
        write.
        """
        try:
            self.channel_of(node, name)
        except KeyError:
            return False
        if not is_call(name):
            return True
        # What was called is not known where the node is called no more; nobody edits
        # what a node acts on.
        return name == CALL and node in self.nodes and self.nodes[node].calls

    def proposal(self, node: str, writes: Sequence[Proposed]) -> Proposal:
        """Return the argument of a gate's `needs_approval`: the writes of the node with
        Python values.
        """
        loaded: list[Write] = []
        for write in writes:
            value = self.channel_of(node, write.channel).load(write.value)
            loaded.append(Write(write.channel, value, write.label))
        return Proposal(loaded)

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        return to_mermaid(self.nodes.values(), self.edges)

    def catalogue(self) -> dict[str, Json]:
        """Return the graph for people, as JSON: nodes, edges, schemas, docstrings, warnings,
        flowchart.
        """
        return {
            "name": self.name,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "doc": self.graph.description.strip(),
            "nodes": [in_words(node) for node in self.nodes.values()],
            "edges": [_edge_json(edge) for edge in self.edges],
            "input_schema": self.schemas["input"],
            "state_schema": self.schemas["state"],
            "warnings": list(self.warnings),
            "mermaid": self.mermaid(),
        }


def _edge_json(edge: Edge) -> dict[str, Json]:
    return {
        "id": edge.id,
        "source": edge.source,
        "target": edge.target,
        "kind": edge.kind,
        "label": edge.label,
        "when": edge.when,
    }


def _texts(names: Iterable[Any]) -> list[str]:
    return [name for name in names if isinstance(name, str)]


def compile(graph: Definition) -> Compiled:
    """Check a graph and make it ready to run. Raises `InvalidGraph` with all faults in
    `faults`.
    """
    # Each stage relies on what the one before has checked.
    _refuse(graph, list(checks.faults_of_graph(graph)))
    channels, faults = state.channels_of(graph.state)
    # Declared targets count for reach, checks, fingerprint and drawing as any edge.
    edges = (*graph.edges, *_declared_targets(graph))
    for node in graph.nodes:
        faults += checks.faults_of_node(node, channels)
        faults += checks.faults_of_gate(graph, node, channels)
        faults += checks.faults_of_coverage(node, edges)
        faults += checks.faults_of_silence(graph, node, edges)
        faults += checks.faults_of_authority(graph, node)
    faults += checks.faults_of_edges(graph, edges)
    _refuse(graph, faults)
    reach = reach_of([node.name for node in graph.nodes], edges)
    _refuse(graph, _unreachable(edges, reach))
    try:
        schemas = {
            "input": state.schema_of(graph.input),
            "state": state.schema_of(graph.state),
        }
    except InvalidValue as error:
        raise _invalid(graph, [error.message]) from error
    return Compiled(
        graph=graph,
        nodes={node.name: node for node in graph.nodes},
        edges=edges,
        channels=Channels(channels),
        structure=document(
            graph,
            channels,
            edges,
            schemas=schemas,
        ),
        schemas=schemas,
        reach=reach,
        warnings=tuple(_warnings(graph, edges, reach)),
    )


def _refuse(graph: Definition, faults: list[str]) -> None:
    if faults:
        raise _invalid(graph, faults)


def _invalid(graph: Definition, faults: list[str]) -> InvalidGraph:
    listed = faults[0]
    if len(faults) > 1:
        listed = "".join(f"\n  - {fault}" for fault in faults)
    return InvalidGraph(
        f"graph {graph.name} cannot run: {listed}",
        graph=graph.name,
        faults=faults,
    )


def _declared_targets(graph: Definition) -> list[Edge]:
    """Return the edges that nodes declare by `goto=` and `sends=`."""
    edges: list[Edge] = []
    for node in graph.nodes:
        for target in node.goto:
            edges.append(_edge_of_kind("goto", node.name, target))
        for target in node.sends:
            edges.append(_edge_of_kind("send", node.name, target))
    return edges


def _edge_of_kind(
    kind: str,
    source: str,
    target: str,
) -> Edge:
    return Edge(edge_id(source, target, kind), source, target, kind)


def _ways(compiled: Compiled, name: str) -> Ways:
    plain: list[Edge] = []
    when: dict[str, tuple[Edge, ...]] = {}
    error: list[Edge] = []
    goto: dict[str, Edge] = {}
    for edge in compiled.edges:
        if edge.source != name:
            continue
        if edge.kind == "error":
            error.append(edge)
        elif edge.kind == "goto":
            goto[edge.target] = edge
        elif edge.kind == "edge" and edge.when:
            when[edge.when] = (*when.get(edge.when, ()), edge)
        elif edge.kind == "edge":
            plain.append(edge)
    # A branch is taken as a whole by its router, and a send carries no token, so
    # neither kind of edge is listed by itself.
    branches = compiled.graph.branches
    return Ways(
        plain=tuple(plain),
        branches=tuple(branch for branch in branches if branch.source == name),
        when=when,
        error=tuple(error),
        goto=goto,
    )


def _unreachable(edges: tuple[Edge, ...], reach: Reach) -> list[str]:
    reached = 0
    is_end_reached = False
    for edge in edges:
        if edge.source == START and edge.target in reach.bit:
            reached |= reach.forward[edge.target]
        if edge.source != START and edge.target == END:
            is_end_reached = True
    # If every node is reached from START, any edge to END is reached as well.
    faults: list[str] = []
    for name, bit in reach.bit.items():
        if not reached & bit:
            faults.append(f"node {name} cannot be reached from START")
    if not is_end_reached:
        faults.append("END cannot be reached")
    return faults


def _warnings(
    graph: Definition,
    edges: tuple[Edge, ...],
    reach: Reach,
) -> list[str]:
    leads_to_end = 0
    for edge in edges:
        if edge.target == END and edge.source in reach.bit:
            leads_to_end |= reach.bit[edge.source]
    # Every node leads somewhere, so one that never leads to END is in a circle.
    stuck = [name for name in reach.bit if not reach.forward[name] & leads_to_end]
    warnings: list[str] = []
    if stuck:
        warnings.append(f"nothing leads out of the circle of {', '.join(stuck)}")
    for node in graph.nodes:
        warnings += _warnings_of_loose_channels(graph, node)
        warnings += _warnings_of_unknown_paths(graph, node)
        warnings += _warnings_of_partial_outcome(node, edges)
    return warnings


def _warnings_of_unknown_paths(graph: Definition, node: Node) -> list[str]:
    """Return the paths in title and facts of a gate that can lead nowhere: reviewers
    would see the bare template.
    """
    if node.gate is None or graph.input.model_config.get("extra") == "allow":
        return []
    names = [*graph.input.model_fields, *graph.state.model_fields]
    known_names = {*names, "node", "input", "state", "proposal"}
    if node.calls:
        known_names.add("args")
    warnings: list[str] = []
    for first in dict.fromkeys(path.partition(".")[0] for path in paths_of(node.gate)):
        if first not in known_names:
            warnings.append(
                f"node {node.name}: title or facts of the gate read {first}, "
                "which is no channel and no field of the input; "
                f"{nearest(first, names)}"
            )
    return warnings


def _warnings_of_partial_outcome(node: Node, edges: tuple[Edge, ...]) -> list[str]:
    """Return the ways that a gate of several writes takes although people rejected one
    of them.
    """
    gate = node.gate
    # Only several writes decided one by one can end partly approved.
    if gate is None or gate.all_or_nothing or len(gate.writes) < 2:
        return []
    targets: dict[str, None] = {}
    for edge in edges:
        if edge.source == node.name and edge.when is None and edge.target != END:
            targets[edge.target] = None
    return [
        f"node {node.name}: the way to {target} is also taken where people reject some "
        f"of its writes ({', '.join(gate.writes)}) and approve others; name the "
        "outcomes (edge(..., when='approved'), when='partial'), or give the gate "
        "all_or_nothing=True"
        for target in targets
    ]


def _warnings_of_loose_channels(graph: Definition, node: Node) -> list[str]:
    """Return the channels that a gate shows and that could change under a signature
    without bringing it back.
    """
    if node.gate is None:
        return []
    read: set[str] = set()
    for path in paths_of(node.gate):
        first, _, rest = path.partition(".")
        # `state.risk` and a bare `risk` show the same channel.
        if first == "state":
            first = rest.partition(".")[0]
        read.add(first)
    bound = {*node.gate.shows, *node.gate.writes}
    loose = sorted(read.intersection(graph.state.model_fields) - bound)
    return [
        f"node {node.name}: the gate shows {channel}, which is neither in its writes "
        "nor in its shows; a change of it would not bring a signature back"
        for channel in loose
    ]
