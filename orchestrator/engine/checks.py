"""What makes a graph unfit to run, and what is only suspicious. Pure; the compiler raises once for all faults."""

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.definition import Definition
from orchestrator.engine.effect import APPROVED, EFFECTS, HUMAN, OUTCOMES, PARTIAL, WRITE
from orchestrator.engine.gate import Fact, Gate, Show
from orchestrator.engine.hints import nearest
from orchestrator.engine.node import END, START, Edge, Node
from orchestrator.engine.retry import Interval, Retry

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
CHECKPOINTS = ("every_node", "explicit", "none", "manual")
MEMORY = ("live", "snapshot", "journaled")
ON_SAVE_ERROR = ("fail", "continue")


def faults_of_graph(graph: Definition) -> Iterator[str]:
    """What is wrong with the graph's own settings and names."""
    if not isinstance(graph.name, str) or not NAME.fullmatch(graph.name):
        yield f"{graph.name!r} is no name for a graph: letters, digits, _ . -"
    if not isinstance(graph.version, str) or not graph.version:
        yield "version must be text"
    for role in ("input", "state"):
        model = getattr(graph, role)
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            yield f"{role} must be a pydantic model class"
    yield from graph.faults
    yield from _faults_of_policies(graph)
    yield from _faults_of_migrations(graph)
    yield from _faults_of_facts(graph)
    if not graph.nodes:
        yield "there is no node"
    for name, times in Counter(node.name for node in graph.nodes).items():
        if times > 1:
            yield f"node {name} is declared {times} times"


def _faults_of_migrations(graph: Definition) -> Iterator[str]:
    steps = Counter((step.start, step.end) for step in graph.migrations)
    for (start, end), times in steps.items():
        if not (isinstance(start, str) and start and isinstance(end, str) and end):
            yield f"a migration leads from {start!r} to {end!r}; versions are text"
        elif start == end:
            yield f"a migration leads from version {start} to itself"
        elif times > 1:
            yield f"{times} migrations lead from version {start} to {end}"


def _faults_of_facts(graph: Definition) -> Iterator[str]:
    """An indexed fact that reads no input would stay empty, and nobody would find a run by it."""
    known = getattr(graph.input, "model_fields", {})
    if faults := list(_faults_of_fact_list(graph.facts)):
        yield from faults
        return
    for fact in graph.facts:
        first, _, rest = fact.path.partition(".")
        if fact.indexed and (first != "input" or re.split(r"[.\[]", rest)[0] not in known):
            yield f"fact {fact.label!r} is indexed, so its path must name a field of the input, as in input.name"


def _faults_of_fact_list(facts: Any) -> Iterator[str]:
    """What is in the place of a list of facts, or of one of them."""
    listed = facts if isinstance(facts, Iterable) and not isinstance(facts, str) else [facts]
    for fact in listed:
        if not isinstance(fact, Fact):
            yield f"facts={facts!r} holds {fact!r}; write facts=[Fact('Label', 'path.to.it')]"


def _faults_of_policies(graph: Definition) -> Iterator[str]:
    steps = graph.checkpoints
    interval = isinstance(steps, Interval) and isinstance(steps.n, int) and steps.n >= 0
    if not interval and steps not in CHECKPOINTS:
        yield f"checkpoints={steps!r} is none of {', '.join(CHECKPOINTS)}, Interval(n)"
    if graph.snapshot != "bytes" and not _whole(graph.snapshot):
        yield "snapshot must be 'bytes' or a whole number from 1"
    if graph.memory not in MEMORY:
        yield f"memory={graph.memory!r} is none of {', '.join(MEMORY)}"
    if graph.on_save_error not in ON_SAVE_ERROR:
        yield f"on_save_error={graph.on_save_error!r} is none of {', '.join(ON_SAVE_ERROR)}"
    if graph.payloads is not None and not (isinstance(graph.payloads, str) and NAME.fullmatch(graph.payloads)):
        yield f"payloads={graph.payloads!r} is no name of a payload backend"
    for limit in ("max_supersteps", "max_tasks"):
        if not _whole(getattr(graph, limit)):
            yield f"{limit} must be a whole number from 1"
    if graph.label is not None and not isinstance(graph.label, str):
        yield f"label={graph.label!r} is no text; write one such as label='Claim {{claim_id}}'"
    if not isinstance(graph.encrypted, bool):
        yield f"encrypted={graph.encrypted!r} is neither True nor False"
    for what in ("secrets", "indexed_metadata"):
        listed = getattr(graph, what)
        names = listed if isinstance(listed, list | tuple) else [None]
        if not all(isinstance(name, str) and name for name in names):
            yield f"{what}={listed!r} is no list of names"


def faults_of_node(node: Node, known: Collection[str]) -> Iterator[str]:
    """What is wrong with a node, apart from its gate. `known`: the channels."""
    if not NAME.fullmatch(node.name) or node.name in (START, END):
        yield f"{node.name!r} is no name for a node: letters, digits, _ . -, and neither START nor END"
    if not _takes_two(node.fn):
        yield f"node {node.name} must be a function of (state, ctx)"
    for what in ("args", "prepare", "graph", "inputs", "outputs"):
        if getattr(node, what) is not None:
            yield f"node {node.name}: this version has no {'sub-graphs (graph=)' if what == 'graph' else what + '='}"
    choices = {"effect": EFFECTS, "join": ("all", "any"), "approve": (None, "writes", "call")}
    choices |= {"checkpoint": (None, "before", "after", "both", "none"), "memory": (None, *MEMORY)}
    for what, allowed in choices.items():
        if getattr(node, what) not in allowed:
            yield f"node {node.name}: {what}={getattr(node, what)!r} is none of {', '.join(map(str, allowed))}"
    for channel in node.reads or ():
        if channel not in known:
            yield f"node {node.name} reads {channel}, which is no channel; {nearest(channel, known)}"
    if node.timeout is not None and not (isinstance(node.timeout, int | float) and node.timeout > 0):
        yield f"node {node.name}: timeout must be a number of seconds above 0"
    if node.max_visits is not None and not _whole(node.max_visits):
        yield f"node {node.name}: max_visits must be a whole number from 1"
    yield from _faults_of_effect(node)


def _faults_of_effect(node: Node) -> Iterator[str]:
    if node.atomic and node.effect != WRITE:
        yield f"node {node.name}: atomic=True is for effect='write', work in our own database"
    if node.atomic and inspect.iscoroutinefunction(node.fn):
        yield f"node {node.name}: an atomic node runs in a transaction and cannot be async"
    if (node.idempotent or node.not_done) and not node.journaled:
        yield f"node {node.name}: idempotent= and not_done= are for write and external nodes"
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in node.not_done):
        yield f"node {node.name}: not_done must name exception classes"
    if node.retry is None:
        return
    if not isinstance(node.retry, Retry):
        yield f"node {node.name}: retry={node.retry!r} is no Retry; write retry=Retry(attempts=3)"
        return
    yield from (f"node {node.name}: {fault}" for fault in node.retry.faults())
    if node.journaled and not (node.idempotent or node.atomic or node.not_done):
        yield (
            f"node {node.name}: Retry could repeat its effect; declare idempotent=True, atomic=True, "
            "or in not_done= the exceptions which say that nothing happened"
        )


def faults_of_edges(graph: Definition, edges: Collection[Edge]) -> Iterator[str]:
    """Unknown ends, edges twice, outcomes that cannot be."""
    nodes = {node.name: node for node in graph.nodes}
    for edge in edges:
        way = f"{edge.kind} {edge.source} -> {edge.target}"
        if edge.source not in nodes and edge.source != START:
            yield f"{way}: there is no node {edge.source}; {nearest(edge.source, nodes)}"
        if edge.target not in nodes and (edge.target != END or edge.kind == "send"):
            yield f"{way}: there is no node {edge.target}; {nearest(edge.target, nodes)}"
        if edge.source == START and (edge.kind != "edge" or edge.when):
            yield f"{way}: from START lead plain edges only"
        if edge.when is not None and edge.when not in OUTCOMES:
            yield f"{way}: when={edge.when!r} is none of {', '.join(OUTCOMES)}"
        elif edge.when and edge.kind != "error" and edge.source in nodes and not nodes[edge.source].gated:
            yield f"{way}: when={edge.when!r} needs a gate at {edge.source}"
    for id, times in Counter(edge.id for edge in edges).items():
        if times > 1:
            yield f"edge {id} is declared {times} times"
    for branch in graph.branches:
        if not callable(branch.router) or not branch.edges:
            yield f"branch from {branch.source} needs a router function and labels"


def faults_of_coverage(node: Node, edges: Collection[Edge]) -> Iterator[str]:
    """A node must lead on, and a gated one for each way in which people may let it pass."""
    out = [edge for edge in edges if edge.source == node.name and edge.kind != "error"]
    if not out:
        yield f"node {node.name} leads nowhere; add edge({node.name!r}, END)"
    open_ended = any(edge.when is None and edge.kind != "send" for edge in out)
    if not node.gated or open_ended or not out:
        return
    missing = [outcome for outcome in (APPROVED, PARTIAL) if outcome not in {edge.when for edge in out}]
    if missing:
        yield f"node {node.name} has a gate but no edge for the outcome {' and '.join(missing)}"


def faults_of_gate(graph: Definition, node: Node, known: Collection[str]) -> Iterator[str]:
    """What is wrong with a node's gate."""
    gate, at = node.gate, f"node {node.name}"
    if node.approve == "call":
        yield f"{at}: this version has no approve='call'"
    if gate is None:
        if node.approve is not None:
            asks = f"effect={node.effect!r}" if node.effect == HUMAN else f"approve={node.approve!r}"
            yield f"{at}: {asks} needs a gate; write gate=Gate(reviewers=['group:...'])"
        return
    if shapes := list(_misshapen_parts(gate)):
        yield from (f"{at}: {fault}" for fault in shapes)
        return
    if node.approve is None:
        yield f"{at}: a gate needs effect='human' or approve='writes'"
    elif node.approve == "writes" and node.journaled:
        yield f"{at}: approve='writes' is for pure, read and human nodes; {node.effect} acts before people see it"
    yield from (f"{at}: this version has no {what}" for what in gate.unavailable())
    yield from (f"{at}: {fault}" for fault in _faults_of_reviewers(gate.reviewers or graph.reviewers))
    for what in ("quorum", "reject_quorum"):
        if not _whole(getattr(gate, what)):
            yield f"{at}: {what} must be a whole number from 1"
    for what in ("shows", "writes"):
        for channel in getattr(gate, what):
            if channel not in known:
                fault = f"the gate's {what} name {channel}, which is no channel"
                yield f"{at}: {fault}; {nearest(channel, known)}"
    for channel, show in gate.writes.items():
        if show.change is not None and not _two_keys(show.change):
            yield f"{at}: change= of Show for {channel} must name two keys, what was and what becomes of it"


def _misshapen_parts(gate: Any) -> Iterator[str]:
    """What stands where a gate, or one of its lists, belongs."""
    if not isinstance(gate, Gate):
        yield f"gate={gate!r} is no gate; write gate=Gate(reviewers=['group:...'])"
        return
    if isinstance(gate.shows, str):
        yield f"shows={gate.shows!r} is text; write a list, shows=[{gate.shows!r}]"
    if not isinstance(gate.writes, Mapping):
        yield f"writes={gate.writes!r} is no dict; write writes={{channel: Show(...)}}"
    else:
        for channel, show in gate.writes.items():
            if not isinstance(show, Show):
                yield f"writes has {show!r} for {channel}; write {{{channel!r}: Show(...)}}"
    yield from _faults_of_fact_list(gate.facts)


def _faults_of_reviewers(reviewers: Any) -> Iterator[str]:
    if callable(reviewers):
        return
    if isinstance(reviewers, str) and reviewers:
        yield f"reviewers={reviewers!r} is text; write a list, reviewers=[{reviewers!r}]"
        return
    if not reviewers:
        yield "the gate has no reviewers; give a list such as ['group:claims'], or a function of the state"
        return
    for who in reviewers:
        kind, _, name = str(who).partition(":")
        if kind not in ("user", "group", "perm") or not name:
            yield f"reviewer {who!r} is neither user:<name>, group:<name> nor perm:<app.codename>"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _two_keys(keys: Any) -> bool:
    given = tuple(keys) if isinstance(keys, tuple | list) else ()
    return len(given) == len(set(given)) == 2 and all(isinstance(key, str) for key in given)


def _takes_two(fn: Any) -> bool:
    try:
        inspect.signature(fn).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True
