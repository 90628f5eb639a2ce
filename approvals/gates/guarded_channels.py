"""Guarded channels: a value that comes round a gate (an output given when settling, a patch) needs that gate's
signatures too.

A channel is guarded if a gate declares it in `writes=`, or a gated node has written it on this line, its ancestors or
origins.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.lines import Stretch, past
from checkpoints.models import PendingWrite
from orchestrator.engine.compile import Compiled
from orchestrator.engine.held_patch import PATCH


def guards(run: UUID, line: int, compiled: Compiled, channels: Iterable[str]) -> set[str]:
    """The nodes whose gates guard any of these: of each channel its last writer, else the first that declares it."""
    return set(guard_of_each(past(run, line), compiled, channels).values())


def guard_of_each(stretches: Sequence[Stretch], compiled: Compiled, channels: Iterable[str]) -> dict[str, str]:
    """Of those of these channels that are guarded, the node whose gate does, on the way that `stretches` tell."""
    gates = [(node.name, node.gate) for node in compiled.nodes.values() if node.gate]
    if not gates:
        return {}
    wrote = _writers(stretches)
    declared = {channel: node for node, gate in reversed(gates) for channel in gate.writes}
    found = {channel: _gate_node(compiled, wrote.get(channel), declared.get(channel)) for channel in channels}
    return {channel: node for channel, node in found.items() if node}


def _gate_node(compiled: Compiled, wrote: str | None, declared: str | None) -> str | None:
    """A writer that the graph does not know any more, and a patch, guard what they wrote by the first gate there is."""
    if wrote is None or (wrote in compiled.nodes and compiled.nodes[wrote].gate):
        return wrote or declared
    return declared or next(node.name for node in compiled.nodes.values() if node.gate)


def _writers(stretches: Sequence[Stretch]) -> dict[str, str]:
    """The gated node that wrote each channel last, the oldest stretch first."""
    found: dict[str, str] = {}
    for one in reversed(stretches):
        found |= _writers_on(one.run, one.line)
    return found


def _writers_on(run: UUID, line: int) -> dict[str, str]:
    applied = ApprovalRequest.objects.filter(run=run, line=line, status=RequestStatus.APPLIED)
    tasks = {(r.node, r.visit, r.index): r.settled_seq or 0 for r in applied.order_by("settled_seq")}
    if not tasks:
        return {}
    rows = PendingWrite.objects.filter(run=run, line=line, node__in={task[0] for task in tasks}, revision=1)
    named = rows.values_list("node", "visit", "index", "channel")
    ordered = sorted((tasks[n, v, i], channel, n) for n, v, i, channel in named if (n, v, i) in tasks)
    return {channel: node for _, channel, node in ordered if node != PATCH}
