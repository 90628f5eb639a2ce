"""Guarded channels: a value that comes round a gate (an output given when settling, a patch) needs that gate's
signatures too.

A channel is guarded if a gate declares it in `writes=`, or a gated node has written it on this line, its ancestors or
origins.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.lines import Stretch, logged_until, past
from checkpoints.models import PendingWrite
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.held_patch import PATCH


def guards(run: UUID, line: int, compiled: Compiled, channels: Iterable[str]) -> set[str]:
    """The nodes whose gates guard any of these: of each channel its last writer, else the first that declares it."""
    return set(guard_of_each(past(run, line), compiled, channels).values())


def guard_of_each(stretches: Sequence[Stretch], compiled: Compiled, channels: Iterable[str]) -> dict[str, str]:
    """Of those of these channels that are guarded, the node whose gate does: the one that wrote the channel last on the
    way that `stretches` tell, else the first that declares it, else one that wrote it later on one of these lines.

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
    whose gate does: the one that wrote it last, else the first that declares it in this structure. Two queries a
    stretch.
    """
    before, after = _writers(stretches)
    gated = [(node["name"], node["gate"]) for node in structure["nodes"] if node["gate"]]
    declared = {channel: node for node, gate in reversed(gated) for channel in gate["writes"]}
    return {**after, **declared, **before}


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
    named = applied.exclude(node=PATCH).values_list("node", "visit", "index", "settled_seq")
    tasks = {(node, visit, index): seq or 0 for node, visit, index, seq in named}
    if not tasks:
        return []
    nodes = {task[0] for task in tasks}
    rows = PendingWrite.objects.filter(run=one.run, line=one.line, node__in=nodes, revision=1)
    writes = rows.values_list("node", "visit", "index", "channel")
    return [(tasks[n, v, i], channel, n) for n, v, i, channel in writes if (n, v, i) in tasks]


def _passed_on(one: Stretch) -> list[tuple[int, str, str]]:
    """The same of what gates let through that needed nobody."""
    rows = Decision.objects.filter(run=one.run, line=one.line, verdict=VERDICT)
    named = rows.values_list("event_seq", "channel", "task")
    return [(seq, channel, Task.parse(task).node) for seq, channel, task in named]
