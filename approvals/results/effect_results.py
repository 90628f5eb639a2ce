"""Results of decisions: the effects that follow a decided request, up to the next gate,
and how each ended, as the journal has it. Reads only.

Which nodes come after a gate is read from the graph. An effect belongs to the newest
round of its gate that asked before it, on the way to where it happened: so what is done
after a rewind belongs to the approval that the new line went on from.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from approvals.gates.approved_calls import CALL_KIND
from approvals.gates.nodes_behind import nodes_behind, nodes_reached
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.models import ApprovalRequest, RequestStatus
from approvals.results import reports
from approvals.results.reports import (
    ListedReports,
    are_sound_lines,
    failures_in_words,
    listed_reports,
)
from approvals.results.rounds import Lines, Round, lines_of, newest_before, rounds_of
from checkpoints import versions
from checkpoints.core.outcome_lines import DONE, FAILED, UNKNOWN
from checkpoints.core.status import ENDS, Status
from checkpoints.models import TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.errors import UNREADABLE
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import EXTERNAL, SKIPPED
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.step.held_patch import PATCH

UNDER_WAY = "under way"
NOT_YET = "not yet"
NOT_REACHED = "not reached"
AS_DECIDED = "not run, as decided"
NOT_REPORTED = "not reported yet"
LATER = "counted with a later question"
GRAVEST_FIRST = (
    UNKNOWN,
    FAILED,
    UNDER_WAY,
    NOT_REPORTED,
    NOT_YET,
    NOT_REACHED,
    LATER,
    AS_DECIDED,
    DONE,
)
JOURNALED = ("write", "external")
CALLER = "The caller"
"""Stands for a node: whoever asked without a graph acts on what people approved."""
MOST_ATTEMPTS = 5_000
"""The most attempts that are counted; of more nothing is said."""
MOST_VERIFIED = 20
"""The most attempts of a node whose rows are verified before they are shown."""
_OWN_TASK = (CALL_KIND, AUTHORITY_KIND)
"""The kinds of requests that a node's own task waits for."""


@dataclass(slots=True)
class EffectResult:
    """The end of one node after a gate: how many of its tasks ended in which way (a
    fan-out has several, and so has a run that went back), and when the last of them
    did. `attempts` are the rows that say so, `failed` that of one that failed. Of what
    whoever asked did elsewhere, `reported` has the lines of the log that say so.
    """

    node: str
    effect: str
    counts: dict[str, int] = field(default_factory=dict)
    at: datetime | None = None
    failed: int | None = None
    attempts: list[int] = field(default_factory=list)
    reported: ListedReports | None = None

    @property
    def status(self) -> str:
        """The gravest of its words."""
        return next(word for word in GRAVEST_FIRST if word in self.counts)

    @property
    def is_bad(self) -> bool:
        """Return whether a person should look at it."""
        return self.status in (FAILED, UNKNOWN)

    @property
    def words(self) -> str:
        """The end in words: "done", or "98 done, 2 failed"."""
        if list(self.counts.values()) == [1]:
            return self.status
        parts: list[str] = []
        for word in reversed(GRAVEST_FIRST):
            if word in self.counts:
                parts.append(f"{self.counts[word]:,} {word}")
        return ", ".join(parts)

    @property
    def has_failed(self) -> bool:
        """Return whether something can be read of why it failed."""
        return self.failed is not None or (self.reported is not None and self.is_bad)

    @property
    def sentence(self) -> str:
        """The end in words, with who acted: "pay: done", "the caller reported: failed"."""
        if self.reported is None:
            return f"{self.node}: {self.words}"
        if not self.reported.lines:
            return f"{self.node} has {NOT_REPORTED}"
        sentence = f"{self.node} reported: {self.words}"
        if self.reported.reason:
            sentence += f": {self.reported.reason}"
        return sentence


def effect_results(
    requests: Sequence[ApprovalRequest],
) -> dict[UUID, list[EffectResult]]:
    """Return what came of each of these requests, in the order of the graph's edges;
    nothing of a request that is not decided, is about a patch, or has a graph that this
    process lacks. Three queries of columns, however many requests there are; none if
    nothing acts behind them; and one for what was asked with no graph. Each has its run
    loaded.
    """
    results: dict[UUID, list[EffectResult]] = {request.id: [] for request in requests}
    behind = _behind(requests)
    acting = [request for request in requests if request.id in behind]
    journal = _read_journal(acting, behind) if acting else None
    if journal is not None:
        for request in acting:
            results[request.id] = journal.results_of(request, behind[request.id])
    for request_id, listed in listed_reports(requests).items():
        results[request_id].append(_as_reported(listed))
    return results


def read_reasons(
    requests: Iterable[ApprovalRequest], results: Mapping[UUID, list[EffectResult]]
) -> None:
    """Add to the results of a list why whoever asked failed. One query at most."""
    listed: dict[UUID, ListedReports] = {}
    for id, of_request in results.items():
        for result in of_request:
            if result.reported is not None:
                listed[id] = result.reported
    reports.read_reasons(requests, listed)


def _as_reported(listed: ListedReports) -> EffectResult:
    counts = dict(listed.counts)
    if listed.awaited:
        counts[NOT_REPORTED] = listed.awaited
    return EffectResult(CALLER, EXTERNAL, counts, listed.at, reported=listed)


def _read_journal(
    requests: Sequence[ApprovalRequest], behind: Mapping[UUID, Sequence[Node]]
) -> "_Journal | None":
    """Return the rows about what followed these requests; None if there are too many."""
    runs = {request.run_id for request in requests}
    names: set[str] = set()
    for nodes in behind.values():
        names.update(node.name for node in nodes)
    attempts = _attempts(runs, names)
    if attempts is None:
        return None
    gates = {request.node for request in requests}
    return _Journal(lines_of(runs), rounds_of(runs, gates), attempts)


def _behind(requests: Iterable[ApprovalRequest]) -> dict[UUID, list[Node]]:
    """Return the nodes after each request, of those that have some."""
    behind: dict[UUID, list[Node]] = {}
    for request in requests:
        nodes = _reached(request)
        if nodes:
            behind[request.id] = nodes
    return behind


def failure_in_words(request: ApprovalRequest, result: EffectResult) -> str:
    """Return the error of an effect that failed, as its sealed row says it; empty if
    none did or nothing was recorded, a sentence if it cannot be read. One query, two for
    what was reported.
    """
    if result.reported is not None:
        return failures_in_words(request, result.reported)
    if result.failed is None:
        return ""
    row = TaskResult.objects.filter(id=result.failed).first()
    if row is None:
        return ""
    try:
        sealed_rows.verify_row(row, protection_of(request.run))
        error = read_value(row, "error") or {}
    except UNREADABLE:
        return "its error cannot be read"
    return str(error.get("message") or error.get("type") or "")


def are_sound(request: ApprovalRequest, result: EffectResult) -> bool:
    """Return whether the rows verify that say what came of a node; of more than
    `MOST_VERIFIED` that is left to the verification of the run. One query.
    """
    if result.reported is not None:
        return are_sound_lines(request, result.reported)
    if not 0 < len(result.attempts) <= MOST_VERIFIED:
        return True
    rows = list(TaskResult.objects.filter(id__in=result.attempts))
    try:
        sealed_rows.verify_rows(rows, protection_of(request.run))
    except UNREADABLE:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The newest attempt of a task on one line, in columns. `is_listed`: a checkpoint
    has it, so that it is not tried again.
    """

    id: int
    run: UUID
    line: int
    task: Task
    superstep: int
    outcome: str
    at: datetime | None
    is_listed: bool


def _attempts(runs: Collection[UUID], nodes: Collection[str]) -> list[_Attempt] | None:
    """Return the newest attempt of each task of these nodes on each line, None if there
    are too many. One query.
    """
    columns = (
        "attempt",
        "id",
        "run_id",
        "line",
        "node",
        "visit",
        "index",
        "superstep",
        "outcome",
        "result_at",
        "seq",
    )
    rows = TaskResult.objects.filter(run__in=runs, node__in=nodes).order_by()
    read = list(rows.values_list(*columns)[: MOST_ATTEMPTS + 1])
    if len(read) > MOST_ATTEMPTS:
        return None
    newest: dict[tuple[UUID, int, Task], _Attempt] = {}
    for _, id, run, line, *task, superstep, outcome, at, seq in sorted(read):
        attempt = _Attempt(
            id, run, line, Task(*task), superstep, outcome, at, seq is not None
        )
        # They are in order, so a later attempt replaces an earlier one.
        newest[run, line, attempt.task] = attempt
    return list(newest.values())


def _reached(request: ApprovalRequest) -> list[Node]:
    """Return the nodes after a decided request that may have changed something in the
    world, whatever its outcome.
    """
    if request.status != RequestStatus.APPLIED or request.node == PATCH:
        return []
    compiled = versions.graph_for(request.run)
    if compiled is None or request.node not in compiled.nodes:
        return []
    reached: dict[str, Node] = {}
    if request.kind in _OWN_TASK:
        reached[request.node] = compiled.nodes[request.node]
    for node in nodes_reached(compiled, request.node):
        if node.effect in JOURNALED:
            reached[node.name] = node
    for node in _acting_on(compiled, request.node):
        reached[node.name] = node
    return list(reached.values())


def _acting_on(compiled: Compiled, gate: str) -> list[Node]:
    """Return the nodes that act on the authority of a gate but come after a later one."""
    return [
        node
        for node in compiled.nodes.values()
        if gate in node.authority and gate != node.name
    ]


def _expected(request: ApprovalRequest, outcome: str) -> set[str]:
    """Return the names of the nodes that this outcome of the visit leads to."""
    compiled: Compiled | None = versions.graph_for(request.run)
    if compiled is None or not outcome:
        return set()
    names = {node.name for node in nodes_behind(compiled, request.node, outcome)}
    if request.kind in _OWN_TASK and request.outcome != "rejected":
        names.add(request.node)
    # No effect rests on a skip.
    if outcome != "rejected" and request.outcome != SKIPPED:
        names.update(node.name for node in _acting_on(compiled, request.node))
    return names


def _is_skipped(request: ApprovalRequest, node: Node) -> bool:
    return request.outcome == SKIPPED and node.name == request.node


@dataclass(frozen=True, slots=True)
class _Journal:
    """The rows that were read of some runs: lines, rounds of gates, and attempts."""

    lines: Lines
    rounds: Sequence[Round]
    attempts: Sequence[_Attempt]

    def results_of(
        self, request: ApprovalRequest, reached: Iterable[Node]
    ) -> list[EffectResult]:
        """Return what came of a request: the nodes that were tried, and those that its
        outcome leads to.
        """
        gate: list[Round] = []
        own: Round | None = None
        for candidate in self.rounds:
            if (candidate.run, candidate.node) != (request.run_id, request.node):
                continue
            gate.append(candidate)
            if (candidate.line, candidate.visit) == (request.line, request.visit):
                own = candidate
        assert own is not None
        expected = _expected(request, own.outcome)
        results: list[EffectResult] = []
        for node in reached:
            result = EffectResult(node.name, node.effect)
            for attempt in self._own_attempts(request, node, gate, own):
                _add(result, attempt, request)
            if not result.counts and node.name in expected:
                word = AS_DECIDED
                if not _is_skipped(request, node):
                    word = self._word_without(request, node, gate, own)
                result.counts[word] = 1
            if result.counts:
                results.append(result)
        return results

    def _own_attempts(
        self,
        request: ApprovalRequest,
        node: Node,
        gate: Sequence[Round],
        own: Round,
    ) -> list[_Attempt]:
        attempts: list[_Attempt] = []
        for attempt in self._of(request, node):
            reach = self.lines.past(request.run_id, attempt.line)
            # What a round let through runs in a later superstep; its own call at once.
            last = attempt.superstep
            if node.name != request.node:
                last -= 1
            owner = newest_before(gate, reach, last)
            # Visits that were asked in one superstep cannot be distinguished.
            is_own = owner is not None and (owner.line, owner.superstep) == (
                own.line,
                own.superstep,
            )
            if is_own:
                attempts.append(attempt)
        return attempts

    def _of(self, request: ApprovalRequest, node: Node) -> list[_Attempt]:
        """Return the attempts of a node in the run; of a call those of its task alone."""
        task = Task(request.node, request.visit, request.index)
        is_own = node.name == request.node
        return [
            attempt
            for attempt in self.attempts
            if attempt.run == request.run_id
            and attempt.task.node == node.name
            and (not is_own or attempt.task == task)
        ]

    def _word_without(
        self,
        request: ApprovalRequest,
        node: Node,
        gate: Sequence[Round],
        own: Round,
    ) -> str:
        """Return the word for a node that was not tried in the request's round."""
        was_tried = bool(self._of(request, node))
        if was_tried and any(_overlaps(later, own) for later in gate):
            return LATER
        run = request.run
        past = self.lines.past(run.id, run.line)
        was_left = own.superstep > past.get(own.line, -1)
        is_over = run.status in ENDS or run.status == Status.FAILED
        # The next round was decided, so nothing more comes of this one.
        is_followed = any(
            later.superstep > own.superstep and later.outcome for later in gate
        )
        return NOT_REACHED if was_left or is_over or is_followed else NOT_YET


def _overlaps(later: Round, own: Round) -> bool:
    """Return whether a round was asked while this one was not decided yet."""
    is_later = later.superstep > own.superstep
    return is_later and own.settled_at is not None and later.opened_at < own.settled_at


def _add(result: EffectResult, attempt: _Attempt, request: ApprovalRequest) -> None:
    word = _word(attempt, request)
    result.counts[word] = result.counts.get(word, 0) + 1
    result.attempts.append(attempt.id)
    if attempt.at is not None and (result.at is None or attempt.at > result.at):
        result.at = attempt.at
    if word == FAILED:
        result.failed = attempt.id


def _word(attempt: _Attempt, request: ApprovalRequest) -> str:
    """Return the word for the newest attempt of a task."""
    run = request.run
    # A line that was left goes on no more.
    stopped = run.status in {*ENDS, Status.FAILED} or attempt.line != run.line
    if attempt.outcome == Outcome.DONE:
        return DONE
    if attempt.outcome == Outcome.UNKNOWN:
        return UNKNOWN
    if attempt.outcome == Outcome.OPEN:
        # Nobody will learn how it ended once its run has stopped.
        return UNKNOWN if stopped else UNDER_WAY
    # It is tried again, unless a checkpoint has it or the run has stopped.
    return FAILED if attempt.is_listed or stopped else UNDER_WAY
