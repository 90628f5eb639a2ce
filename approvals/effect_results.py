"""What came of what people decided: the effects behind a decided request, as far as the
next gate, and how each ended, as the journal has it. Reads only, and no payload but the
error of an effect that failed.

Which nodes are behind a gate is read from the graph. An effect belongs to the newest
request of its gate that was asked before it, on the same line of the run.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Q

from approvals.gates.approved_calls import CALL_KIND
from approvals.gates.nodes_behind import nodes_behind
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints import versions
from checkpoints.core.status import ENDS, Status
from checkpoints.models import TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.step.held_patch import PATCH

DONE = "done"
FAILED = "failed"
UNKNOWN = "unknown"
UNDER_WAY = "under way"
NOT_YET = "not yet"
NOT_REACHED = "not reached"
GRAVEST_FIRST = (UNKNOWN, FAILED, UNDER_WAY, NOT_YET, NOT_REACHED, DONE)
ENDED = {
    Outcome.OPEN: UNDER_WAY,
    Outcome.DONE: DONE,
    Outcome.NOT_DONE: FAILED,
    Outcome.FAILED: FAILED,
    Outcome.UNKNOWN: UNKNOWN,
}
"""The word for an effect, by the outcome of its newest attempt."""
JOURNALED = ("write", "external")
_OWN_TASK = (CALL_KIND, AUTHORITY_KIND)
"""The kinds of requests that a node's own task waits for."""


@dataclass(slots=True)
class EffectResult:
    """What came of one node behind a gate: how many of its tasks ended in which way
    (a fan-out has several), and when the last of them did. `failed` is the row of a
    task that failed, if one did.
    """

    node: str
    effect: str
    counts: dict[str, int] = field(default_factory=dict)
    at: datetime | None = None
    failed: int | None = None

    @property
    def status(self) -> str:
        """The gravest of its words."""
        return next(word for word in GRAVEST_FIRST if word in self.counts)

    @property
    def is_bad(self) -> bool:
        """Return whether somebody should look at it."""
        return self.status in (FAILED, UNKNOWN)

    @property
    def words(self) -> str:
        """How it ended, for people: "done", or "98 done, 2 failed"."""
        if list(self.counts.values()) == [1]:
            return self.status
        parts: list[str] = []
        for word in reversed(GRAVEST_FIRST):
            if word in self.counts:
                parts.append(f"{self.counts[word]:,} {word}")
        return ", ".join(parts)


def effect_results(
    requests: Sequence[ApprovalRequest],
) -> dict[UUID, list[EffectResult]]:
    """Return what came of each of these requests, in the order of the graph's edges;
    nothing of a request that is not decided, that is about a patch, or whose graph is
    not here. Two queries, whatever the number of requests; none if nothing acts behind
    them. Each has its run loaded.
    """
    nodes: dict[UUID, list[Node]] = {}
    for request in requests:
        nodes[request.id] = _acting_nodes(request)
    acting = [request for request in requests if nodes[request.id]]
    attempts: list[_Attempt] = []
    asked: dict[_Gate, list[int]] = {}
    if acting:
        attempts = _attempts(acting, nodes)
        asked = _asked_in(acting)
    results: dict[UUID, list[EffectResult]] = {}
    for request in requests:
        until = _asked_next(request, asked)
        own = [attempt for attempt in attempts if attempt.follows(request, until)]
        is_over = until < sys.maxsize or _is_over(request)
        results[request.id] = _results_of(nodes[request.id], own, is_over=is_over)
    return results


def failure_in_words(request: ApprovalRequest, result: EffectResult) -> str:
    """Return the error of an effect that failed, as its sealed row says it; empty if
    none did or nothing was recorded. One query.

    Raises `TamperedRow` and `WrongKey`.
    """
    if result.failed is None:
        return ""
    row = TaskResult.objects.get(id=result.failed)
    sealed_rows.verify_row(row, protection_of(request.run))
    error = read_value(row, "error") or {}
    return str(error.get("message") or error.get("type") or "")


_Gate = tuple[UUID, int, str]
"""A gate on one line: run, line, node."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The newest attempt of a task that acts, in columns."""

    id: int
    run: UUID
    line: int
    task: Task
    superstep: int
    outcome: str
    at: datetime | None

    def follows(self, request: ApprovalRequest, until: int) -> bool:
        """Return whether it ran behind this request, and before the superstep in which
        the gate asked again.
        """
        if (self.run, self.line) != (request.run_id, request.line):
            return False
        # A node that waits for its own call may not be asked about before it is tried.
        if self.task.node == request.node and request.kind in _OWN_TASK:
            return self.task == _task_of(request)
        return request.superstep < self.superstep <= until


def _task_of(request: ApprovalRequest) -> Task:
    return Task(request.node, request.visit, request.index)


def _acting_nodes(request: ApprovalRequest) -> list[Node]:
    """Return the nodes that change something in the world behind a decided request."""
    if request.status != RequestStatus.APPLIED or request.node == PATCH:
        return []
    compiled = versions.graph_for(request.run)
    if compiled is None or request.node not in compiled.nodes:
        return []
    acting = [*_own_node(compiled, request)]
    for node in nodes_behind(compiled, request.node, request.outcome):
        if node.effect in JOURNALED:
            acting.append(node)
    # Some act on the authority of this gate behind a later one.
    names = {node.name for node in acting}
    for node in compiled.nodes.values():
        names_gate = request.node in node.authority and request.node != node.name
        if names_gate and node.name not in names and request.outcome != "rejected":
            acting.append(node)
    return acting


def _own_node(compiled: Compiled, request: ApprovalRequest) -> list[Node]:
    """Return the node whose own task waited for a request, if it was let begin."""
    if request.kind in _OWN_TASK and request.outcome != "rejected":
        return [compiled.nodes[request.node]]
    return []


def _attempts(
    requests: Iterable[ApprovalRequest], nodes: Mapping[UUID, Collection[Node]]
) -> list[_Attempt]:
    """Return the newest attempt of each task of these nodes, on the lines of the
    requests. One query of columns.
    """
    condition = Q()
    for request in requests:
        names = [node.name for node in nodes[request.id]]
        condition |= Q(
            run=request.run_id,
            line=request.line,
            node__in=names,
            superstep__gte=request.superstep,
        )
    columns = (
        "id",
        "run_id",
        "line",
        "node",
        "visit",
        "index",
        "superstep",
        "outcome",
        "result_at",
    )
    newest: dict[tuple[UUID, int, Task], _Attempt] = {}
    rows = TaskResult.objects.filter(condition).order_by("attempt")
    for id, run, line, *task, superstep, outcome, at in rows.values_list(*columns):
        attempt = _Attempt(id, run, line, Task(*task), superstep, outcome, at)
        # They are in order, so a later attempt replaces an earlier one.
        newest[run, line, attempt.task] = attempt
    return list(newest.values())


def _asked_in(requests: Iterable[ApprovalRequest]) -> dict[_Gate, list[int]]:
    """Return the supersteps in which the gates of these requests asked, on the same
    lines. One query.
    """
    condition = Q()
    for request in requests:
        condition |= Q(run=request.run_id, line=request.line, node=request.node)
    rows = ApprovalRequest.objects.filter(condition)
    asked: dict[_Gate, list[int]] = {}
    for run, line, node, superstep in rows.order_by("superstep").values_list(
        "run_id", "line", "node", "superstep"
    ):
        asked.setdefault((run, line, node), []).append(superstep)
    return asked


def _asked_next(request: ApprovalRequest, asked: Mapping[_Gate, Sequence[int]]) -> int:
    """Return the superstep in which the gate of a request asked the next time."""
    gate = (request.run_id, request.line, request.node)
    later = [
        superstep for superstep in asked.get(gate, ()) if superstep > request.superstep
    ]
    return min(later, default=sys.maxsize)


def _results_of(
    nodes: Sequence[Node], attempts: Sequence[_Attempt], *, is_over: bool
) -> list[EffectResult]:
    """Return what came of these nodes. `is_over`: those that did not begin will not."""
    results: list[EffectResult] = []
    for node in nodes:
        result = EffectResult(node.name, node.effect)
        own = [attempt for attempt in attempts if attempt.task.node == node.name]
        for attempt in own:
            _add(result, attempt)
        if not own:
            result.counts[NOT_REACHED if is_over else NOT_YET] = 1
        results.append(result)
    return results


def _add(result: EffectResult, attempt: _Attempt) -> None:
    word = ENDED[Outcome(attempt.outcome)]
    result.counts[word] = result.counts.get(word, 0) + 1
    if attempt.at is not None and (result.at is None or attempt.at > result.at):
        result.at = attempt.at
    if word == FAILED:
        result.failed = attempt.id


def _is_over(request: ApprovalRequest) -> bool:
    """Return whether nothing more comes of a request: its run ended or failed, or has
    left the line.
    """
    run = request.run
    ended = run.status in ENDS or run.status == Status.FAILED
    return ended or run.line != request.line
