"""Guarded channels: a value that comes round a gate (an output given when settling) needs that gate's signatures too.

A channel is guarded if a gate declares it in `writes=`, or a gated node has written it on this line.
"""

from collections.abc import Iterable
from uuid import UUID

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.models import PendingWrite
from orchestrator.engine.compile import Compiled


def guards(run: UUID, line: int, compiled: Compiled, channels: Iterable[str]) -> set[str]:
    """The nodes whose gates guard any of these: of each channel its last writer, else the first that declares it."""
    wrote = _writers(run, line)
    gates = [(node.name, node.gate) for node in compiled.nodes.values() if node.gate]
    declared = {channel: node for node, gate in reversed(gates) for channel in gate.writes}
    found = {wrote.get(channel) or declared.get(channel) for channel in channels}
    return {node for node in found if node}


def _writers(run: UUID, line: int) -> dict[str, str]:
    """The gated node that wrote each channel last on this line."""
    applied = ApprovalRequest.objects.filter(run=run, line=line, status=RequestStatus.APPLIED)
    tasks = {(r.node, r.visit, r.index): r.settled_seq or 0 for r in applied.order_by("settled_seq")}
    rows = PendingWrite.objects.filter(run=run, line=line, node__in={task[0] for task in tasks}, revision=1)
    named = rows.values_list("node", "visit", "index", "channel")
    ordered = sorted((tasks[n, v, i], channel, n) for n, v, i, channel in named if (n, v, i) in tasks)
    return {channel: node for _, channel, node in ordered}
