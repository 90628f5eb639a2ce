"""The faults that make a graph unfit to run. Pure; the compiler raises once for all of
them.
"""

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.auto import faults_of_auto, faults_of_window
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.confirmation import faults_of_confirmation
from orchestrator.engine.graphs.consideration import faults_of_consideration
from orchestrator.engine.graphs.definition import Definition
from orchestrator.engine.graphs.effect import (
    APPROVED,
    EFFECTS,
    HUMAN,
    OUTCOMES,
    PARTIAL,
    REJECTED,
    WRITE,
)
from orchestrator.engine.graphs.gate import (
    LONGEST_DEADLINE,
    ON_DEADLINE,
    Fact,
    Gate,
    Show,
    faults_of_terms,
)
from orchestrator.engine.graphs.limit import faults_of_limits
from orchestrator.engine.graphs.node import END, START, Edge, Node
from orchestrator.engine.graphs.retry import Interval, Retry
from orchestrator.engine.graphs.review_claim import faults_of_claims
from orchestrator.engine.graphs.standing_policy import faults_of_standing
from orchestrator.engine.graphs.state import schema_of
from orchestrator.engine.graphs.tiers import faults_of_tiers
from orchestrator.engine.graphs.veto import faults_of_veto
from orchestrator.engine.values.functions import takes_two
from orchestrator.engine.values.hints import nearest
from orchestrator.engine.values.numbers import is_number, is_whole

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
CHECKPOINTS = ("every_node", "explicit", "none", "manual")
MEMORY = ("live", "snapshot", "journaled")
ON_SAVE_ERROR = ("fail", "continue")
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "effect": EFFECTS,
    "join": ("all", "any"),
    "approve": (None, "writes", "call"),
    "checkpoint": (None, "before", "after", "both", "none"),
    "memory": (None, *MEMORY),
}
"""The values that some options of a node may have."""


def faults_of_graph(graph: Definition) -> Iterator[str]:
    """Yield the faults of the graph's own settings and names."""
    if not isinstance(graph.name, str) or not NAME.fullmatch(graph.name):
        yield f"{graph.name!r} is no name for a graph: letters, digits, _ . -"
    if not isinstance(graph.version, str) or not graph.version:
        yield "version must be text"
    for role in ("input", "state"):
        model = getattr(graph, role)
        if not _is_class_of(BaseModel, model):
            yield f"{role} must be a pydantic model class"
    # Faults that declarations collected themselves, before anything could be checked.
    yield from graph.faults
    yield from _faults_of_policies(graph)
    yield from _faults_of_texts(graph)
    yield from _faults_of_migrations(graph)
    yield from _faults_of_facts(graph)
    yield from _faults_of_node_names(graph)


def _faults_of_node_names(graph: Definition) -> Iterator[str]:
    if not graph.nodes:
        yield "there is no node"
    for name, times in Counter(node.name for node in graph.nodes).items():
        if times > 1:
            yield f"node {name} is declared {times} times"


def _faults_of_policies(graph: Definition) -> Iterator[str]:
    if not _is_checkpoint_policy(graph.checkpoints):
        yield (
            f"checkpoints={graph.checkpoints!r} is none of "
            f"{', '.join(CHECKPOINTS)}, Interval(n)"
        )
    if graph.snapshot != "bytes" and not is_whole(graph.snapshot):
        yield "snapshot must be 'bytes' or a whole number from 1"
    if graph.memory not in MEMORY:
        yield f"memory={graph.memory!r} is none of {', '.join(MEMORY)}"
    if graph.on_save_error not in ON_SAVE_ERROR:
        yield (
            f"on_save_error={graph.on_save_error!r} is none of "
            f"{', '.join(ON_SAVE_ERROR)}"
        )
    if graph.payloads is not None and not _is_name(graph.payloads):
        yield f"payloads={graph.payloads!r} is no name of a payload backend"
    for limit in ("max_supersteps", "max_tasks"):
        if not is_whole(getattr(graph, limit)):
            yield f"{limit} must be a whole number from 1"


def _is_checkpoint_policy(policy: Any) -> bool:
    if isinstance(policy, Interval):
        return is_whole(policy.n, least=0)
    return policy in CHECKPOINTS


def _faults_of_texts(graph: Definition) -> Iterator[str]:
    if graph.label is not None and not isinstance(graph.label, str):
        yield (
            f"label={graph.label!r} is no text; "
            "write one such as label='Claim {claim_id}'"
        )
    if not isinstance(graph.encrypted, bool):
        yield f"encrypted={graph.encrypted!r} is neither True nor False"
    for option in ("secrets", "indexed_metadata"):
        names = getattr(graph, option)
        if not _is_list_of_names(names):
            yield f"{option}={names!r} is no list of names"


def _is_list_of_names(names: Any) -> bool:
    if not isinstance(names, list | tuple):
        return False
    return all(isinstance(name, str) and name for name in names)


def _faults_of_migrations(graph: Definition) -> Iterator[str]:
    steps = Counter((step.start, step.end) for step in graph.migrations)
    for (start, end), times in steps.items():
        if not _is_text(start) or not _is_text(end):
            yield f"a migration leads from {start!r} to {end!r}; versions are text"
        elif start == end:
            yield f"a migration leads from version {start} to itself"
        elif times > 1:
            yield f"{times} migrations lead from version {start} to {end}"


def _faults_of_facts(graph: Definition) -> Iterator[str]:
    """Yield the faults of the graph's facts. An indexed fact that reads no input would
    stay empty, and nobody would find a run by it.
    """
    # Paths can be read only once all members are known to be facts.
    faults = list(_faults_of_fact_list(graph.facts))
    if faults:
        yield from faults
        return
    fields = getattr(graph.input, "model_fields", {})
    for fact in graph.facts:
        first, _, rest = fact.path.partition(".")
        # A path may go on into the field, by a dot or by an index.
        reads_input = first == "input" and re.split(r"[.\[]", rest)[0] in fields
        if fact.indexed and not reads_input:
            yield (
                f"fact {fact.label!r} is indexed, so its path must name a field "
                "of the input, as in input.name"
            )


def _faults_of_fact_list(facts: Any) -> Iterator[str]:
    """Yield a fault for everything that stands in place of a list of facts, or of one
    of them.
    """
    members = [facts]
    if isinstance(facts, Iterable) and not isinstance(facts, str):
        members = list(facts)
    for member in members:
        if not isinstance(member, Fact):
            yield (
                f"facts={facts!r} holds {member!r}; "
                "write facts=[Fact('Label', 'path.to.it')]"
            )


def faults_of_node(node: Node, channels: Collection[str]) -> Iterator[str]:
    """Yield the faults of a node, apart from those of its gate."""
    if not NAME.fullmatch(node.name) or node.name in (START, END):
        yield (
            f"{node.name!r} is no name for a node: letters, digits, _ . -, "
            "and neither START nor END"
        )
    if not takes_two(node.fn):
        yield f"node {node.name} must be a function of (state, ctx)"
    yield from _faults_of_options(node)
    for channel in node.reads or ():
        if channel not in channels:
            yield (
                f"node {node.name} reads {channel}, which is no channel; "
                f"{nearest(channel, channels)}"
            )
    yield from _faults_of_limits(node)
    yield from _faults_of_effect(node)
    yield from _faults_of_retry(node)


def _faults_of_limits(node: Node) -> Iterator[str]:
    if node.timeout is not None and not _is_above_zero(node.timeout):
        yield f"node {node.name}: timeout must be a number of seconds above 0"
    if node.max_visits is not None and not is_whole(node.max_visits):
        yield f"node {node.name}: max_visits must be a whole number from 1"


def _faults_of_options(node: Node) -> Iterator[str]:
    """Yield the options unknown to this version, and those with an unknown value."""
    for option in ("graph", "inputs", "outputs"):
        if getattr(node, option) is not None:
            what = "sub-graphs (graph=)" if option == "graph" else f"{option}="
            yield f"node {node.name}: this version has no {what}"
    for option, allowed in _CHOICES.items():
        value = getattr(node, option)
        if value not in allowed:
            choices = ", ".join(map(str, allowed))
            yield f"node {node.name}: {option}={value!r} is none of {choices}"


def _faults_of_effect(node: Node) -> Iterator[str]:
    if node.atomic and node.effect != WRITE:
        yield (
            f"node {node.name}: atomic=True is for effect='write', "
            "work in our own database"
        )
    if node.atomic and inspect.iscoroutinefunction(node.fn):
        yield (
            f"node {node.name}: an atomic node runs in a transaction "
            "and cannot be async"
        )
    if not node.journaled and (node.idempotent or node.not_done):
        yield (
            f"node {node.name}: idempotent= and not_done= are "
            "for write and external nodes"
        )
    if not all(_is_class_of(BaseException, error) for error in node.not_done):
        yield f"node {node.name}: not_done must name exception classes"


def _faults_of_retry(node: Node) -> Iterator[str]:
    if node.retry is None:
        return
    if not isinstance(node.retry, Retry):
        yield (
            f"node {node.name}: retry={node.retry!r} is no Retry; "
            "write retry=Retry(attempts=3)"
        )
        return
    for fault in node.retry.faults():
        yield f"node {node.name}: {fault}"
    # After an error nobody knows whether such a node has acted.
    if node.journaled and not (node.idempotent or node.atomic or node.not_done):
        yield (
            f"node {node.name}: Retry could repeat its effect; "
            "declare idempotent=True, atomic=True, "
            "or in not_done= the exceptions which say that nothing happened"
        )


def faults_of_edges(graph: Definition, edges: Collection[Edge]) -> Iterator[str]:
    """Yield unknown ends, duplicate edges, impossible outcomes."""
    nodes = {node.name: node for node in graph.nodes}
    for edge in edges:
        yield from _faults_of_ends(edge, nodes)
        yield from _faults_of_outcome(edge, nodes)
    # Ids of branches are numbered, so a repeated id is an edge declared twice.
    for id, times in Counter(edge.id for edge in edges).items():
        if times > 1:
            yield f"edge {id} is declared {times} times"
    for branch in graph.branches:
        if not callable(branch.router) or not branch.edges:
            yield f"branch from {branch.source} needs a router function and labels"


def _in_words(edge: Edge) -> str:
    return f"{edge.kind} {edge.source} -> {edge.target}"


def _faults_of_ends(edge: Edge, nodes: Mapping[str, Node]) -> Iterator[str]:
    if edge.source not in nodes and edge.source != START:
        cure = nearest(edge.source, nodes)
        yield f"{_in_words(edge)}: there is no node {edge.source}; {cure}"
    # A send starts a node, so it cannot lead to END.
    is_end = edge.target == END and edge.kind != "send"
    if edge.target not in nodes and not is_end:
        cure = nearest(edge.target, nodes)
        yield f"{_in_words(edge)}: there is no node {edge.target}; {cure}"
    # The first superstep puts a token on each of them without asking any router.
    if edge.source == START and (edge.kind != "edge" or edge.when):
        yield f"{_in_words(edge)}: from START lead plain edges only"


def _faults_of_outcome(edge: Edge, nodes: Mapping[str, Node]) -> Iterator[str]:
    if edge.when is None:
        return
    if edge.when not in OUTCOMES:
        choices = ", ".join(OUTCOMES)
        yield f"{_in_words(edge)}: when={edge.when!r} is none of {choices}"
        return
    # Any node can fail, gated or not; an unknown source has a fault already.
    if edge.kind == "error" or edge.source not in nodes:
        return
    source = nodes[edge.source]
    # People who are asked again about what it acts on may reject that it runs.
    if source.authority and edge.when == REJECTED:
        return
    if not source.gated:
        yield f"{_in_words(edge)}: when={edge.when!r} needs a gate at {edge.source}"


def faults_of_coverage(node: Node, edges: Collection[Edge]) -> Iterator[str]:
    """Yield a fault if a node leads nowhere, or if a gated one has no edge for an
    outcome with which people may let it pass.
    """
    leading_on = _edges_leading_on(node, edges)
    if not leading_on:
        yield f"node {node.name} leads nowhere; add edge({node.name!r}, END)"
        return
    if not node.gated:
        yield from _faults_of_ways_after_rejection(node, leading_on)
        return
    yield from _faults_of_ways_after_skip(node, leading_on)
    outcomes = {edge.when for edge in leading_on}
    # A rejection needs no edge: without one only its token ends.
    missing = [outcome for outcome in (APPROVED, PARTIAL) if outcome not in outcomes]
    if any(edge.when is None and edge.kind != "send" for edge in leading_on):
        # An edge without an outcome is taken after each.
        missing = []
    if missing:
        yield (
            f"node {node.name} has a gate but no edge for the outcome "
            f"{' and '.join(missing)}"
        )


def _faults_of_ways_after_rejection(
    node: Node, leading_on: Collection[Edge]
) -> Iterator[str]:
    if all(edge.when == REJECTED for edge in leading_on):
        yield f"node {node.name} leads nowhere once it has run"


def _faults_of_ways_after_skip(
    node: Node, leading_on: Collection[Edge]
) -> Iterator[str]:
    """Yield a fault if a run that skips the node's call would end there: what was not
    run names no goto and sends nothing.
    """
    if not _may_be_skipped(node):
        return
    followed = {edge.when for edge in leading_on if edge.kind in ("edge", "branch")}
    # Of several calls some may be rejected, and none of them have run.
    if None in followed or followed >= {APPROVED, PARTIAL}:
        return
    yield (
        f"node {node.name} has skip=True, but leads nowhere once its call is skipped; "
        f"add edge({node.name!r}, ..., when=('approved', 'partial'))"
    )


def _edges_leading_on(node: Node, edges: Collection[Edge]) -> list[Edge]:
    leading_on: list[Edge] = []
    for edge in edges:
        # An error edge replaces going on, so it does not count as a way on.
        if edge.source == node.name and edge.kind != "error":
            leading_on.append(edge)
    return leading_on


def faults_of_gate(
    graph: Definition,
    node: Node,
    channels: Collection[str],
) -> Iterator[str]:
    """Yield the faults of a node's gate."""
    at = f"node {node.name}"
    yield from _faults_of_call(node)
    if node.gate is None:
        yield from _faults_of_missing_gate(node)
        return
    # The checks after this one read the parts of the gate, so their shapes come first.
    misshapen = list(_misshapen_parts(node.gate))
    if misshapen:
        yield from (f"{at}: {fault}" for fault in misshapen)
        return
    if node.approve is None:
        yield f"{at}: a gate needs effect='human', approve='writes' or approve='call'"
    elif node.approve == "writes" and node.journaled:
        yield (
            f"{at}: approve='writes' is for pure, read and human nodes; "
            f"{node.effect} acts before people see it; write approve='call'"
        )
    yield from (f"{at}: {fault}" for fault in _faults_of_skip(node, node.gate))
    # Before a node runs there are no writes: people decide on its arguments alone.
    writable = (CALL,) if node.calls else channels
    for fault in _faults_of_gate_parts(node.gate, graph, channels, writable):
        yield f"{at}: {fault}"


def _faults_of_skip(node: Node, gate: Gate) -> Iterator[str]:
    if not isinstance(gate.skip, bool):
        yield "skip must be True or False"
    elif gate.skip and not node.calls:
        yield (
            "skip=True goes with approve='call': what a node has proposed is approved, "
            "edited or rejected"
        )


def _faults_of_call(node: Node) -> Iterator[str]:
    """Yield the faults of what a node proposes before it runs."""
    at = f"node {node.name}"
    if not node.calls:
        for option in ("args", "prepare"):
            if getattr(node, option) is not None:
                yield f"{at}: {option}= goes with approve='call'"
        return
    if node.effect == HUMAN:
        yield f"{at}: approve='call' is for nodes that act; effect='human' proposes"
    if not _is_class_of(BaseModel, node.args):
        yield f"{at}: approve='call' needs args=, a pydantic model class"
    elif not _has_schema(node.args):
        yield f"{at}: args= has a type without a JSON Schema"
    if not callable(node.prepare) or not takes_two(node.prepare):
        yield (
            f"{at}: approve='call' needs prepare=, a function of (state, ctx) "
            "that returns the arguments"
        )


def _has_schema(model: type[BaseModel]) -> bool:
    try:
        schema_of(model)
    except InvalidValue:
        return False
    return True


def faults_of_authority(graph: Definition, node: Node) -> Iterator[str]:
    """Yield the faults of the gates on whose authority a node acts, and of a recheck
    that nothing would ever ask.
    """
    at = f"node {node.name}"
    nodes = {other.name: other for other in graph.nodes}
    if node.authority and not node.journaled:
        yield f"{at}: authority= is for write and external nodes; others do not act"
    yield from _faults_of_recheck(graph, node)
    for name in node.authority:
        if name not in nodes:
            yield f"{at}: authority= names {name!r}, which is no node; {nearest(str(name), nodes)}"
        elif not nodes[name].gated:
            yield f"{at}: authority= names {name}, which has no gate"
        elif name != node.name and _may_be_skipped(nodes[name]):
            yield (
                f"{at}: authority= names {name}, whose call may be skipped: then nothing "
                "is approved there to act on; leave out skip=True, or the authority"
            )


def _may_be_skipped(node: Node) -> bool:
    return isinstance(node.gate, Gate) and node.gate.skip is True


def _faults_of_recheck(graph: Definition, node: Node) -> Iterator[str]:
    at = f"node {node.name}"
    gate = node.gate
    if not isinstance(gate, Gate) or gate.recheck is None:
        return
    if not callable(gate.recheck) or not takes_two(gate.recheck):
        yield f"{at}: recheck must be a function of (state, proposal)"
    if not any(node.name in other.authority for other in graph.nodes):
        yield (
            f"{at}: nothing acts on the authority of its gate, so its recheck would "
            f"never be asked; write authority={node.name!r} at the node that acts"
        )


def faults_of_silence(
    graph: Definition,
    node: Node,
    edges: Collection[Edge],
) -> Iterator[str]:
    """Yield a fault if the deadline of a node's gate could approve something that acts:
    if a write or external node can be reached before another gate.
    """
    if not isinstance(node.gate, Gate) or node.gate.on_deadline != "approve":
        return
    nodes = {other.name: other for other in graph.nodes}
    reached = dict.fromkeys([node.name, *_reached_ungated(node, nodes, edges)])
    acting = [name for name in reached if nodes[name].journaled]
    if acting:
        yield (
            f"node {node.name}: on_deadline='approve' would let {', '.join(acting)} "
            "act although nobody signed; take 'reject' or 'fail', or put another gate between"
        )


def _reached_ungated(
    node: Node,
    nodes: Mapping[str, Node],
    edges: Collection[Edge],
) -> list[str]:
    """Return the nodes that can run once a node's gate has approved, and before people
    decide at any other gate.
    """
    reached: list[str] = []
    begun: set[str] = set()
    pending: list[Edge] = []
    for edge in edges:
        # A call runs after its approval, and may fail then.
        is_taken = edge.kind != "error" or node.calls
        if edge.source == node.name and edge.when != REJECTED and is_taken:
            pending.append(edge)
    while pending:
        target = nodes.get(pending.pop().target)
        # An unknown node has a fault already.
        if target is None or target.name in begun:
            continue
        begun.add(target.name)
        if not _surely_asks(target):
            reached.append(target.name)
        pending += _edges_without_people(target, edges)
    return reached


def _surely_asks(node: Node) -> bool:
    """Return whether nothing of a node passes without people. A gate with its own rule
    may answer that nobody needs to be asked.
    """
    if not node.gated:
        return False
    if not isinstance(node.gate, Gate):
        return True
    asks_alone = node.gate.auto is None and not node.gate.standing
    return asks_alone and node.gate.needs_approval is None


def _edges_without_people(node: Node, edges: Collection[Edge]) -> list[Edge]:
    """Return the edges on which a run can leave a node though nobody decided there."""
    leaving = [edge for edge in edges if edge.source == node.name]
    if _surely_asks(node):
        # It can fail before anybody is asked.
        return [edge for edge in leaving if edge.kind == "error"]
    return [edge for edge in leaving if edge.when != REJECTED]


def _faults_of_missing_gate(node: Node) -> Iterator[str]:
    if node.approve is None:
        return
    option = f"approve={node.approve!r}"
    if node.effect == HUMAN:
        option = f"effect={node.effect!r}"
    yield (
        f"node {node.name}: {option} needs a gate; "
        "write gate=Gate(reviewers=['group:...'])"
    )


def _faults_of_gate_parts(
    gate: Gate,
    graph: Definition,
    channels: Collection[str],
    writable: Collection[str],
) -> Iterator[str]:
    # A gate that names nobody is a mistake; one that says nothing asks the graph's.
    reviewers = graph.reviewers if gate.reviewers is None else gate.reviewers
    if gate.terms is None or reviewers is not None:
        yield from _faults_of_reviewers(reviewers)
    yield from faults_of_terms(gate)
    for option in ("quorum", "reject_quorum"):
        if not is_whole(getattr(gate, option)):
            yield f"{option} must be a whole number from 1"
    yield from _faults_of_deadline(gate)
    yield from faults_of_confirmation(gate)
    yield from faults_of_consideration(gate)
    yield from faults_of_claims(gate)
    yield from faults_of_tiers(gate)
    yield from faults_of_auto(gate)
    yield from faults_of_standing(gate)
    yield from faults_of_window(gate)
    yield from faults_of_veto(gate)
    yield from _faults_of_names(gate, "shows", channels)
    yield from _faults_of_names(gate, "writes", writable)
    yield from _faults_of_changes(gate)
    for channel, show in gate.writes.items():
        for fault in faults_of_limits(show.limits):
            yield f"Show for {channel}: {fault}"
    yield from _faults_of_needs(gate)


def _faults_of_names(
    gate: Gate, option: str, allowed: Collection[str]
) -> Iterator[str]:
    for channel in getattr(gate, option):
        if channel not in allowed:
            fault = f"the gate's {option} name {channel}, which is no channel"
            yield f"{fault}; {nearest(channel, allowed)}"


def _faults_of_needs(gate: Gate) -> Iterator[str]:
    needs: dict[str, list[str]] = {}
    for channel, show in gate.writes.items():
        needs[channel] = list(show.needs)
        for needed in show.needs:
            # Writes of one request can be rejected together; others belong to others.
            if needed not in gate.writes:
                yield (
                    f"needs= of Show for {channel} names {needed!r}, which is none of "
                    f"the gate's writes; {nearest(str(needed), gate.writes)}"
                )
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        yield f"needs= leads in a circle: {' needs '.join(reversed(error.args[1]))}"


def _faults_of_deadline(gate: Gate) -> Iterator[str]:
    if gate.on_deadline not in ON_DEADLINE:
        choices = ", ".join(ON_DEADLINE)
        yield f"on_deadline={gate.on_deadline!r} is none of {choices}"
    if gate.deadline is None:
        if gate.on_deadline != "reject":
            yield "on_deadline= needs a deadline="
        return
    if isinstance(gate.deadline, timedelta):
        if not timedelta(0) < gate.deadline <= LONGEST_DEADLINE:
            yield "deadline must be longer than 0 and at most a hundred years"
    elif not takes_two(gate.deadline):
        yield (
            f"deadline={gate.deadline!r} is neither a timedelta nor a function "
            "of (now, state) that returns a datetime"
        )


def _faults_of_changes(gate: Gate) -> Iterator[str]:
    for channel, show in gate.writes.items():
        if show.change is not None and not _are_two_keys(show.change):
            yield (
                f"change= of Show for {channel} must name two keys, "
                "what was and what becomes of it"
            )


def _misshapen_parts(gate: Any) -> Iterator[str]:
    """Yield a fault for every value that should be a gate, or one of its lists, and is
    not.
    """
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
                yield (
                    f"writes has {show!r} for {channel}; write {{{channel!r}: Show(...)}}"
                )
            else:
                yield from _misshapen_options(channel, show)
    yield from _faults_of_fact_list(gate.facts)


def _misshapen_options(channel: str, show: Any) -> Iterator[str]:
    if not isinstance(show.limits, Mapping):
        yield (
            f"limits={show.limits!r} of Show for {channel} is no dict; "
            "write limits={path: Limit(...)}"
        )
    needs = show.needs
    # A text is a sequence of its letters.
    is_list = isinstance(needs, Sequence) and not isinstance(needs, str)
    if not is_list or not all(isinstance(name, str) for name in needs):
        yield (
            f"needs={show.needs!r} of Show for {channel} is no list; "
            "write needs=[channel]"
        )


def _faults_of_reviewers(reviewers: Any) -> Iterator[str]:
    # Whom a function names is known only on a state.
    if callable(reviewers):
        return
    if isinstance(reviewers, str) and reviewers:
        yield (
            f"reviewers={reviewers!r} is text; write a list, reviewers=[{reviewers!r}]"
        )
        return
    if not reviewers:
        yield (
            "the gate has no reviewers; give a list such as ['group:claims'], "
            "or a function of the state"
        )
        return
    for reviewer in reviewers:
        kind, _, name = str(reviewer).partition(":")
        if kind not in ("user", "group", "perm") or not name:
            yield (
                f"reviewer {reviewer!r} is neither user:<name>, group:<name> "
                "nor perm:<app.codename>"
            )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(NAME.fullmatch(value))


def _is_class_of(base: type, value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def _is_above_zero(value: Any) -> bool:
    return is_number(value) and value > 0


def _are_two_keys(keys: Any) -> bool:
    """Return whether these are two different texts."""
    if not isinstance(keys, tuple | list):
        return False
    if not all(isinstance(key, str) for key in keys):
        return False
    return len(keys) == len(set(keys)) == 2
