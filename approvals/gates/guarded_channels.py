"""Guarded channels: a value that gets round a gate (an output given when settling, a
patch) needs that gate's signatures too.

A channel is guarded if a gate declares it in `writes=`, if a gated node has written it
on this line, its ancestors or origins, or if a gate that these have asked bound it by
`shows=` or read it to determine whether it asks, and whom.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTextTransform

from approvals.gates.asked_gates import asked_gates, queries_of_asked
from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.db.query_cache import padded, pairs_in
from checkpoints.db.together import KeptQuery, select_together
from checkpoints.lines import Stretch, ends_of, past, query_of_ends
from checkpoints.models import PendingWrite
from orchestrator.engine import Task
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.gates.requests import covers
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.held_patch import PATCH

AT_ONCE = 100
"""The most stretches named in one query, because a database limits its depth."""
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
    if not names:
        return {}
    records = _records_of(stretches)
    deciding = _guard_of_each(_writers(stretches, records), compiled, names)
    if not _gated_nodes(compiled):
        return {}

    gates = asked_gates(records, compiled.structure)
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
    writers = _writers(stretches, _records_of(stretches))
    return _guard_of_each(writers, compiled, names)


def _guard_of_each(
    writers: "_Writers",
    compiled: Compiled,
    names: list[str],
) -> dict[str, str]:
    before, after = writers
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
    gate bound it or read it to determine whom it asks. One query.
    """
    records = _records_of(stretches)
    before, after = _writers(stretches, records)
    declaring = _declaring_nodes(
        {
            node["name"]: node["gate"]["writes"]
            for node in structure["nodes"]
            if node["gate"]
        }
    )
    # If several gates read a channel, the first in the structure represents them.
    reading: dict[str, str] = {}
    for gate in asked_gates(records, structure):
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


_Records = Mapping[str, Sequence[Sequence[Any]]]
"""What was read of the way to a point, by the names of the queries."""
_Writers = tuple[dict[str, str], dict[str, str]]
"""The gated node that wrote each channel last: on a way, and after the ends of its
stretches on the same lines.
"""


def _records_of(stretches: Sequence[Stretch]) -> _Records:
    """Read what passed gates on the lines of a way, and which gates its runs asked. One
    query for each `AT_ONCE` stretches.
    """
    records: dict[str, list[Sequence[Any]]] = defaultdict(list)
    for first in range(0, len(stretches), AT_ONCE):
        part = stretches[first : first + AT_ONCE]
        places: list[Any] = []
        for stretch in padded(part):
            places += (stretch.run, stretch.line)
        runs = list(dict.fromkeys(stretch.run for stretch in part))
        queries: dict[str, KeptQuery] = {
            "settled": (_query_of_settled, places),
            "settled_writes": (_query_of_settled_writes, places),
            "waived": (_query_of_waived, places),
            **queries_of_asked(runs),
        }
        ends = ends_of(part)
        if ends:
            queries["ends"] = (query_of_ends, ends)
        for name, of_part in select_together(**queries).items():
            records[name] += of_part
    return records


def _writers(
    stretches: Sequence[Stretch],
    records: _Records,
) -> _Writers:
    writes_by_line: dict[tuple[UUID, int], list[GatedWrite]] = defaultdict(list)
    for run, line, write in _gated_writes(records):
        writes_by_line[run, line].append(write)
    logged = {(run, seq): event_seq for run, seq, event_seq in records["ends"]}

    before: dict[str, str] = {}
    after: dict[str, str] = {}
    # The newest stretch comes first, and the newest write has to win.
    for stretch in reversed(stretches):
        until = None
        if stretch.last is not None:
            until = logged.get((stretch.run, stretch.last), 0)
        for seq, channel, node in sorted(writes_by_line[stretch.run, stretch.line]):
            if until is None or seq <= until:
                before[channel] = node
            else:
                after[channel] = node
    return before, after


def _gated_writes(records: _Records) -> Iterator[tuple[UUID, int, GatedWrite]]:
    """Yield the writes that settlements applied, and those that gates let through because
    nobody was needed, each with its run and line.
    """
    passed: dict[tuple[Any, ...], tuple[int, str]] = {}
    for *task, seq, gate in records["settled"]:
        # What a patch set was signed at the gate that its request names; older requests
        # name none.
        gate_node = gate or task[-1]
        if gate_node != PATCH:
            passed[tuple(task)] = (seq or 0, gate_node)
    for *task, channel in records["settled_writes"]:
        if tuple(task) not in passed:
            continue
        run, line, *_ = task
        seq, gate_node = passed[tuple(task)]
        yield run, line, (seq, channel, gate_node)
    for run, line, seq, channel, waived in records["waived"]:
        node = Task.parse(waived).node
        yield run, line, (seq, channel, node)


def _on_lines(places: Sequence[Any]) -> Q:
    """Return the filter for rows on these lines: runs, each with the number of a line."""
    on_lines = Q()
    for run, line in pairs_in(places):
        on_lines |= Q(run=run, line=line)
    return on_lines


_TASK = ("run", "line", "visit", "index", "node")


def _query_of_settled(*places: Any) -> "QuerySet[Any, Any]":
    gate = KeyTextTransform("gate", "policy")
    return _settled_requests(places).values_list(*_TASK, "settled_seq", gate)


def _query_of_settled_writes(*places: Any) -> "QuerySet[Any, Any]":
    # The first revisions are enough, because a write never changes its channel.
    writes = PendingWrite.objects.filter(
        _on_lines(places),
        node__in=_settled_requests(places).values("node"),
        revision=1,
    )
    return writes.order_by().values_list(*_TASK, "channel")


def _settled_requests(places: Sequence[Any]) -> "QuerySet[ApprovalRequest]":
    return ApprovalRequest.objects.filter(
        _on_lines(places), status=RequestStatus.APPLIED
    ).order_by()


def _query_of_waived(*places: Any) -> "QuerySet[Any, Any]":
    waived = Decision.objects.filter(_on_lines(places), verdict=VERDICT)
    return waived.order_by().values_list("run", "line", "event_seq", "channel", "task")
