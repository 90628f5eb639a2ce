"""Guarded channels: a value that gets round a gate (an output given when settling, a
patch) needs that gate's signatures too.

A channel is guarded if a gate declares it in `writes=`, if a gated node has written it
on this line, its ancestors or origins, or if a gate that these have asked bound it by
`shows=` or read it to determine whether it asks, and whom.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform

from approvals.gates.asked_gates import asked_gates, runs_on
from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.db import query_cache
from checkpoints.lines import Stretch, logged_until, past
from checkpoints.models import PendingWrite
from orchestrator.engine import Task
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.gates.requests import covers
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.held_patch import PATCH

GatedWrite = tuple[int, str, str]
"""A write that passed a gate: the number in the log of what let it through, its
channel, and the node whose gate it was.
"""


def guards(
    run: UUID, line: int, compiled: Compiled, channels: Iterable[str]
) -> set[str]:
    """Return the nodes whose gates guard any of these channels, as `guards_of_each`
    determines them.
    """
    nodes_by_channel = guards_of_each(past(run, line), compiled, channels)
    guarding: set[str] = set()
    for nodes in nodes_by_channel.values():
        guarding.update(nodes)
    return guarding


def guards_of_each(
    stretches: Sequence[Stretch], compiled: Compiled, channels: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return the guarded ones of these channels, each with the nodes whose gates guard
    it. First comes the node that `guard_of_each` returns; then each whose gate bound
    the channel or read it to determine whom it asks, unless an earlier one asks the
    same people for as much.

    Raises as `guard_of_each` does, and `TamperedRow`, `WrongKey`.
    """
    names = list(channels)
    deciding = guard_of_each(stretches, compiled, names)
    if not names or not _gated_nodes(compiled):
        return {channel: (node,) for channel, node in deciding.items()}

    gates = asked_gates(runs_on(stretches), compiled.structure)
    guards: dict[str, tuple[str, ...]] = {}
    for channel in names:
        nodes = [deciding[channel]] if channel in deciding else []
        for gate in gates:
            if gate.guards(channel):
                nodes.append(_node_to_ask_at(compiled, gate.node))
        if nodes:
            guards[channel] = _necessary(compiled, nodes)
    return guards


def _gated_nodes(compiled: Compiled) -> list[str]:
    return [node.name for node in compiled.nodes.values() if node.gate]


def _necessary(compiled: Compiled, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the first of these nodes, and those whose gates ask for more than the ones
    before them.
    """
    necessary: list[str] = []
    for node in dict.fromkeys(nodes):
        if not any(_covers(compiled, earlier, node) for earlier in necessary):
            necessary.append(node)
    return tuple(necessary)


def _covers(compiled: Compiled, node: str, other_node: str) -> bool:
    gate = compiled.nodes[node].gate
    other_gate = compiled.nodes[other_node].gate
    if gate is None or other_gate is None:
        return False
    return covers(compiled, gate, other_gate)


def guard_of_each(
    stretches: Sequence[Stretch], compiled: Compiled, channels: Iterable[str]
) -> dict[str, str]:
    """Return the channels among these that gates decide, each with the node whose gate
    does: the node that wrote the channel last on the way that `stretches` describe,
    else the first that declares it, else one that wrote it later on one of these lines.

    Raises `InvalidValue` for a channel that was signed, if this version of the graph
    has no gate at which people could be asked.
    """
    names = list(channels)
    if not names:
        return {}
    before, after = _writers(stretches)
    if not _gated_nodes(compiled):
        _require_unsigned(compiled, names, {**after, **before})
        return {}

    declaring = _declaring_nodes(
        {node.name: node.gate.writes for node in compiled.nodes.values() if node.gate}
    )
    guard: dict[str, str] = {}
    for channel in names:
        if channel in before:
            guard[channel] = _node_to_ask_at(compiled, before[channel])
        elif channel in declaring:
            guard[channel] = declaring[channel]
        elif channel in after:
            guard[channel] = _node_to_ask_at(compiled, after[channel])
    return guard


def _declaring_nodes(writes_of_gates: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return each channel that a gate declares in `writes=`, with the first node that
    does. The gates are in the order of their graph.
    """
    declaring: dict[str, str] = {}
    for node, channels in writes_of_gates.items():
        for channel in channels:
            declaring.setdefault(channel, node)
    return declaring


def _require_unsigned(
    compiled: Compiled, channels: list[str], writers: Mapping[str, str]
) -> None:
    for channel in channels:
        if channel in writers:
            node = writers[channel]
            raise InvalidValue(
                f"{channel} was signed at the gate of node {node}, and version "
                f"{compiled.version} of {compiled.name} has no gate where it could "
                "be signed anew",
                path=channel,
                gate=node,
            )


def signed_channels(
    stretches: Sequence[Stretch], structure: Mapping[str, Any]
) -> dict[str, str]:
    """Return each channel that is guarded on the way that `stretches` describe,
    whatever version it goes on with, and the node whose gate guards it: the node that
    wrote it last, else the first that declares it in this structure, else one whose
    gate bound it or read it to determine whom it asks. Two queries a stretch, and
    three.
    """
    before, after = _writers(stretches)
    declaring = _declaring_nodes(
        {
            node["name"]: node["gate"]["writes"]
            for node in structure["nodes"]
            if node["gate"]
        }
    )
    # If several gates read a channel, the first in the structure represents them.
    reading: dict[str, str] = {}
    for gate in asked_gates(runs_on(stretches), structure):
        for channel in (*(gate.reads or ()), *gate.shows):
            reading.setdefault(channel, gate.node)
    return {**reading, **after, **declaring, **before}


def _node_to_ask_at(compiled: Compiled, writer: str) -> str:
    """Return the writer; or the first node with a gate, if this graph no longer has a
    gate at the writer.
    """
    if writer in compiled.nodes and compiled.nodes[writer].gate:
        return writer
    return _gated_nodes(compiled)[0]


def _writers(stretches: Sequence[Stretch]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the gated node that wrote each channel last: on the stretches, and after
    their ends on the same lines.
    """
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    # The newest stretch comes first, and the newest write has to win.
    for stretch in reversed(stretches):
        until = logged_until(stretch)
        writes = [*_signed_writes(stretch), *_unsigned_writes(stretch)]
        for seq, channel, node in sorted(writes):
            if until is None or seq <= until:
                before[channel] = node
            else:
                after[channel] = node
    return before, after


def _signed_writes(stretch: Stretch) -> list[GatedWrite]:
    """Return the writes that settlements applied on a line."""
    passed: dict[tuple[str, int, int], tuple[int, str]] = {}
    for node, visit, index, seq, gate in query_cache.select_values(
        _query_of_settled, stretch.run, stretch.line
    ):
        # What a patch set was signed at the gate that its request names; older requests
        # name none.
        gate_node = gate or node
        if gate_node != PATCH:
            passed[node, visit, index] = (seq or 0, gate_node)
    if not passed:
        return []

    writes: list[GatedWrite] = []
    for node, visit, index, channel in query_cache.select_values(
        _query_of_settled_writes, stretch.run, stretch.line
    ):
        if (node, visit, index) in passed:
            seq, gate_node = passed[node, visit, index]
            writes.append((seq, channel, gate_node))
    return writes


def _query_of_settled(run: UUID, line: int) -> "QuerySet[Any, Any]":
    gate = KeyTextTransform("gate", "policy")
    return _settled_requests(run, line).values_list(
        "node", "visit", "index", "settled_seq", gate
    )


def _query_of_settled_writes(run: UUID, line: int) -> "QuerySet[Any, Any]":
    # The first revisions are enough, because a write never changes its channel.
    return PendingWrite.objects.filter(
        run=run,
        line=line,
        node__in=_settled_requests(run, line).values("node"),
        revision=1,
    ).values_list("node", "visit", "index", "channel")


def _settled_requests(run: UUID, line: int) -> "QuerySet[ApprovalRequest]":
    return ApprovalRequest.objects.filter(
        run=run, line=line, status=RequestStatus.APPLIED
    )


def _unsigned_writes(stretch: Stretch) -> list[GatedWrite]:
    """Return the writes that gates let through on a line because nobody was needed."""
    rows = query_cache.select_values(_query_of_waived, stretch.run, stretch.line)
    return [(seq, channel, Task.parse(task).node) for seq, channel, task in rows]


def _query_of_waived(run: UUID, line: int) -> "QuerySet[Any, Any]":
    return Decision.objects.filter(run=run, line=line, verdict=VERDICT).values_list(
        "event_seq", "channel", "task"
    )
