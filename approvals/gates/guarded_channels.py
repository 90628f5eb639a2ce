"""Guarded channels: a value that comes round a gate (an output given when settling, a patch) needs that gate's
signatures too.

A channel is guarded if a gate declares it in `writes=`, a gated node has written it on this line, its ancestors or
origins, or a gate that these have asked bound it by `shows=` or read it to say whether it asks, and whom.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.gates.asked_gates import asked_gates, runs_on
from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.lines import Stretch, logged_until, past
from checkpoints.models import PendingWrite
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.requests import covers


def guards(run: UUID, line: int, compiled: Compiled, channels: Iterable[str]) -> set[str]:
    """The nodes whose gates guard any of these, as `guards_of_each` tells."""
    found = guards_of_each(past(run, line), compiled, channels)
    return {node for nodes in found.values() for node in nodes}


def guards_of_each(
    stretches: Sequence[Stretch], compiled: Compiled, channels: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Of those of these channels that are guarded, the nodes whose gates do. First the one that wrote the channel, as
    `guard_of_each` tells; then each that bound it or read it to say whom it asks, unless an earlier one asks the same
    people for as much.

    Raises as `guard_of_each` does, and `TamperedRow`, `WrongKey`.
    """
    named = list(channels)
    wrote = guard_of_each(stretches, compiled, named)
    gated = [node.name for node in compiled.nodes.values() if node.gate]
    if not named or not gated:
        return {channel: (node,) for channel, node in wrote.items()}
    asked = asked_gates(runs_on(stretches), compiled.structure)
    guards: dict[str, tuple[str, ...]] = {}
    for channel in named:
        readers = [_gate_node(compiled, gate.node) for gate in asked if gate.guards(channel)]
        nodes = [wrote[channel], *readers] if channel in wrote else readers
        if nodes:
            guards[channel] = _necessary(compiled, nodes)
    return guards


def _necessary(compiled: Compiled, nodes: Sequence[str]) -> tuple[str, ...]:
    """The first of these nodes, and those whose gates ask for more than the ones before them."""
    necessary: list[str] = []
    for node in dict.fromkeys(nodes):
        if not any(_covers(compiled, earlier, node) for earlier in necessary):
            necessary.append(node)
    return tuple(necessary)


def _covers(compiled: Compiled, node: str, other: str) -> bool:
    gate, others = compiled.nodes[node].gate, compiled.nodes[other].gate
    return gate is not None and others is not None and covers(compiled, gate, others)


def guard_of_each(stretches: Sequence[Stretch], compiled: Compiled, channels: Iterable[str]) -> dict[str, str]:
    """Of those of these channels that gates decide, the node whose gate does: the one that wrote the channel last on
    the way that `stretches` tell, else the first that declares it, else one that wrote it later on one of these lines.

    Raises `InvalidValue` for a channel that was signed, where this version of the graph has no gate to ask at.
    """
    named = list(channels)
    if not named:
        return {}
    gates = [(node.name, node.gate) for node in compiled.nodes.values() if node.gate]
    before, after = _writers(stretches)
    if not gates:
        _require_unsigned(compiled, named, {**after, **before})
        return {}
    declared = {channel: node for node, gate in reversed(gates) for channel in gate.writes}
    known = [{channel: _gate_node(compiled, node) for channel, node in wrote.items()} for wrote in (before, after)]
    found = {name: known[0].get(name) or declared.get(name) or known[1].get(name) for name in named}
    return {channel: node for channel, node in found.items() if node}


def _require_unsigned(compiled: Compiled, channels: list[str], wrote: Mapping[str, str]) -> None:
    for channel in channels:
        if channel in wrote:
            said = f"{channel} was signed at the gate of node {wrote[channel]}"
            message = (
                f"{said}, and version {compiled.version} of {compiled.name} has no gate where it could be signed anew"
            )
            raise InvalidValue(message, path=channel, gate=wrote[channel])


def signed_channels(stretches: Sequence[Stretch], structure: Mapping[str, Any]) -> dict[str, str]:
    """Each channel that is guarded on the way that `stretches` tell, whatever version it goes on with, and the node
    whose gate does: the one that wrote it last, else the first that declares it in this structure, else one that bound
    it or read it to say whom it asks. Two queries a stretch, and three.
    """
    before, after = _writers(stretches)
    gated = [(node["name"], node["gate"]) for node in structure["nodes"] if node["gate"]]
    declared = {channel: node for node, gate in reversed(gated) for channel in gate["writes"]}
    read: dict[str, str] = {}
    for asked in reversed(asked_gates(runs_on(stretches), structure)):
        read |= dict.fromkeys([*(asked.reads or ()), *asked.shows], asked.node)
    return {**read, **after, **declared, **before}


def _gate_node(compiled: Compiled, wrote: str) -> str:
    """The writer; where the graph does not know its gate any more, the first gate that there is."""
    if wrote in compiled.nodes and compiled.nodes[wrote].gate:
        return wrote
    return next(node.name for node in compiled.nodes.values() if node.gate)


def _writers(stretches: Sequence[Stretch]) -> tuple[dict[str, str], dict[str, str]]:
    """The gated node that wrote each channel last: on the stretches, and behind them on the same lines."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for one in reversed(stretches):
        until = logged_until(one)
        for seq, channel, node in sorted([*_applied_on(one), *_passed_on(one)]):
            (before if until is None or seq <= until else after)[channel] = node
    return before, after


def _applied_on(one: Stretch) -> list[tuple[int, str, str]]:
    """(number of the decision that settled it in the log, channel, node) of what settlements applied on a line."""
    applied = ApprovalRequest.objects.filter(run=one.run, line=one.line, status=RequestStatus.APPLIED)
    named = applied.values_list("node", "visit", "index", "settled_seq", "policy__gate")
    # What a patch set was signed at the gate that its request names; older requests name none.
    gates = {(node, visit, index): gate or node for node, visit, index, _, gate in named}
    tasks = {
        (node, visit, index): seq or 0 for node, visit, index, seq, _ in named if gates[node, visit, index] != PATCH
    }
    if not tasks:
        return []
    nodes = {task[0] for task in tasks}
    rows = PendingWrite.objects.filter(run=one.run, line=one.line, node__in=nodes, revision=1)
    writes = rows.values_list("node", "visit", "index", "channel")
    return [(tasks[n, v, i], channel, gates[n, v, i]) for n, v, i, channel in writes if (n, v, i) in tasks]


def _passed_on(one: Stretch) -> list[tuple[int, str, str]]:
    """The same of what gates let through that needed nobody."""
    rows = Decision.objects.filter(run=one.run, line=one.line, verdict=VERDICT)
    named = rows.values_list("event_seq", "channel", "task")
    return [(seq, channel, Task.parse(task).node) for seq, channel, task in named]
