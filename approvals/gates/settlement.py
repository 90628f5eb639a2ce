"""Settling gates in a runner's slice: which gates are settled, what applying them
means, and which held writes a commit re-bases.

Only the runner calls this, no page, API or command. Nothing is written before `insert`,
which rides in the commit.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, Subquery
from django.db.models.functions import Coalesce

from approvals.gates.deadline_jobs import add_missing_jobs
from approvals.gates.request_state import (
    RequestState,
    load_states,
    query_count,
    require_all_decisions,
    require_count,
)
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.db import query_cache, statements
from checkpoints.db.rows import attributes_of, fetch_rows
from checkpoints.event_log import NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.requests import (
    WaitingRequest,
    as_settled,
    moved_writes,
    settle_requests,
)
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.step.base import Base
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.reduce import Settled, StaysOpen, WriteValue

State = dict[str, dict[str, Any]]
WAITING = (RequestStatus.OPEN, RequestStatus.SETTLED)
CLOSED = (RequestStatus.WITHDRAWN, RequestStatus.EXPIRED)
"""Statuses of requests that are closed, though no settlement has applied them."""


@frozen
class Rebasing:
    """Held writes whose bound base a commit moves: their next revisions, and the
    requests that are open again.
    """

    rows: list[PendingWrite] = field(default_factory=list)
    reopened: list[ApprovalRequest] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def insert(self) -> None:
        """Insert the revisions and reopen the requests, in the caller's transaction. An
        edit that was signed meanwhile collides on (write, revision).
        """
        if self.rows:
            statements.insert_rows(PendingWrite, self.rows)
        reopen_requests(self.reopened)


def reopen_requests(requests: Sequence[ApprovalRequest]) -> None:
    """Open settled requests of a run again, in the caller's transaction."""
    if not requests:
        return
    ids = [request.id for request in requests]
    ApprovalRequest.objects.filter(id__in=ids).update(
        status=RequestStatus.OPEN,
        outcome="",
        settled_at=None,
        settled_seq=None,
    )
    # The jobs of their deadlines may have come, and found them settled.
    add_missing_jobs(requests[0].run_id, requests)


@frozen
class Settlement:
    """The gates that a settlement applies, in the order in which their last decisions
    are numbered.
    """

    settled: list[Settled]
    requests: list[ApprovalRequest]

    def insert(self) -> None:
        """Mark the requests as applied, in the caller's transaction."""
        ids = query_cache.padded([request.id for request in self.requests])
        applied = {"status": RequestStatus.APPLIED}
        query_cache.update_selected(
            ApprovalRequest, _query_of_applied, *ids, columns=applied
        )


def _query_of_applied(*ids: UUID) -> "QuerySet[Any, Any]":
    return ApprovalRequest.objects.filter(id__in=ids).order_by().values("id")


_DECIDED = "decisions_of_run"
"""The attribute of a request that holds how many decisions its run has."""


def _query_waiting(run: UUID, line: int) -> "QuerySet[ApprovalRequest]":
    waiting = ApprovalRequest.objects.filter(run=run, line=line, status__in=WAITING)
    decided = Coalesce(Subquery(query_count(run)), 0)
    return waiting.annotate(**{_DECIDED: decided}).order_by("id")


def _waiting_requests(lease: Lease) -> list[ApprovalRequest]:
    """Return the rows of `waiting_requests`. Raises `TamperedRow` if the run has fewer
    decisions than its row records. One query, two if there are none.
    """
    text, params = query_cache.compiled(_query_waiting, lease.id, lease.line)
    names = (*attributes_of(ApprovalRequest), _DECIDED)
    requests = fetch_rows(ApprovalRequest, names, text, params)
    # Each row that is left verifies, so only the count shows that one was deleted.
    if requests:
        decided: int = getattr(requests[0], _DECIDED)
        require_count(lease.id, decided, lease.decisions)
    else:
        require_all_decisions(lease.id, lease.decisions)
    return requests


def _waiting_states(lease: Lease) -> list[RequestState]:
    requests = _waiting_requests(lease)
    decided = any(getattr(request, _DECIDED) for request in requests)
    return load_states(requests, lease.protection, decided=decided)


def waiting_requests(lease: Lease, tasks: Collection[Task]) -> list[RequestState]:
    """Return the state of the requests of the current line that no settlement has
    applied: at least those of these tasks, which wait for people. Three queries, two if
    there are none or nothing was decided. Raises `TamperedRow` and `WrongKey`.
    """
    states = _waiting_states(lease)
    # A steward may re-open a request between the queries; then another one waits. The
    # next commit notices that the log has moved.
    while any(state.was_closed for state in states):
        states = _waiting_states(lease)
    # Without this check the run would wait forever for a request that was deleted.
    tasks_without_request = set(tasks) - {state.task for state in states}
    _require_closed(lease, tasks_without_request)
    return states


def _require_closed(lease: Lease, tasks: Collection[Task]) -> None:
    """Raise `TamperedRow` unless what these waiting tasks asked last was withdrawn or
    expired. Otherwise their request is gone, or its row claims that it was applied.
    """
    if not tasks:
        return
    rows = requests_of_tasks(lease, tasks).values_list(
        "node", "visit", "index", "status"
    )
    last_statuses: dict[Task, str] = {}
    for node, visit, index, status in rows:
        last_statuses[Task(node, visit, index)] = status
    for task in sorted(tasks):
        if last_statuses.get(task) not in CLOSED:
            raise TamperedRow(
                f"{task} of run {lease.key} waits for people, "
                "and its request is gone or says that it was applied",
                task=str(task),
            )


def requests_of_tasks(
    lease: Lease, tasks: Collection[Task]
) -> "QuerySet[ApprovalRequest]":
    """Return the query for the requests of the current line that these tasks opened, and
    perhaps others of their nodes: for each task the newest comes last.
    """
    rows = ApprovalRequest.objects.filter(
        run=lease.id,
        line=lease.line,
        node__in={task.node for task in tasks},
        visit__in={task.visit for task in tasks},
    )
    return rows.order_by("ordinal")


def settle_gates(
    states: Sequence[RequestState],
    compiled: Compiled,
    frontier: Frontier,
    state: State,
    protection: Protection,
    stays_open: StaysOpen | None = None,
) -> Settlement:
    """Return the settled gates that apply. A gate whose base is moved by an earlier one
    is left out, because re-basing opens it again; so is one that `stays_open` keeps open.

    `states` were verified when they were read. Raises `TamperedRow` if a request is
    marked as settled without being so.
    """
    ready = [
        request_state
        for request_state in states
        if request_state.request.status == RequestStatus.SETTLED
    ]
    # The status is not sealed, so the decisions have to bear it out.
    for request_state in ready:
        _require_outcome(request_state)
    waiting = [_waiting(request_state, protection) for request_state in ready]
    settled = settle_requests(waiting, compiled, frontier, state, stays_open)

    applied_tasks = {gate.task for gate in settled}
    requests = [
        request_state.request
        for request_state in ready
        if request_state.task in applied_tasks
    ]
    return Settlement(settled, requests)


@frozen
class _StoredRevision:
    """The newest revision of a held write, as its row has it. The engine reads it."""

    row: PendingWrite
    protection: Protection

    @property
    def write(self) -> UUID:
        return self.row.write

    @property
    def channel(self) -> str:
        return self.row.channel

    @property
    def shows(self) -> Iterable[str]:
        return pending_writes.base_of(self.row).shows

    def stands_on(self, base: Base) -> bool:
        return base.hash(self.protection) == self.row.bound_hash

    def applied(self) -> WriteValue:
        row = self.row
        value = sealed_columns.read_value(row, "value")
        # Signing refuses to approve it, so no decision that was made here can.
        if value is None and is_unanswered(sealed_columns.read_value(row, "shown")):
            raise TamperedRow(
                f"write {row.write} is approved, and nobody answered it",
                row=sealed_rows.name_of(row),
            )
        # A write to memory lands only on the version that it was made from.
        version = pending_writes.base_of(row).version
        return WriteValue(
            row.channel,
            value,
            row.label or None,
            version,
        )


def _waiting(
    state: RequestState, protection: Protection
) -> WaitingRequest[_StoredRevision]:
    revisions = [_StoredRevision(row, protection) for row in state.writes]
    return WaitingRequest(state.task, revisions, state.standings)


def settled_of(state: RequestState, protection: Protection) -> Settled:
    """Return a settled request as its settlement applies it. Raises `TamperedRow` if
    its decisions do not settle it.
    """
    _require_outcome(state)
    return as_settled(_waiting(state, protection))


def _require_outcome(state: RequestState) -> None:
    if state.outcome is None:
        raise TamperedRow(
            "a request is marked settled, but its decisions do not settle it",
            request=str(state.request.id),
        )


def rebase_writes(
    states: Sequence[RequestState],
    compiled: Compiled,
    state: State,
    *,
    at: datetime,
    protection: Protection,
) -> Rebasing:
    """Return the re-basing of held writes that `state`, about to be committed, makes
    necessary. A rejected write stays rejected.
    """
    rebasing = Rebasing()
    if not states:
        return rebasing
    for request_state in states:
        waiting = _waiting(request_state, protection)
        moved = moved_writes(waiting, compiled, state)
        for revision in moved:
            base = pending_writes.StoredBase.read(
                compiled, state, revision.channel, shows=revision.shows
            )
            rebased = pending_writes.rebased(
                revision.row, base=base, at=at, protection=protection
            )
            rebasing.rows.append(rebased)
            rebasing.events.append(_rebased_event(rebased))
        # People have to sign the moved writes again.
        if moved and request_state.request.status == RequestStatus.SETTLED:
            rebasing.reopened.append(request_state.request)
    sealed_rows.seal_and_encrypt(rebasing.rows, protection)
    return rebasing


def _rebased_event(rebased: PendingWrite) -> NewEvent:
    facts = {
        "write": str(rebased.write),
        "revision": rebased.revision,
        "channel": rebased.channel,
    }
    return NewEvent("write_rebased", facts, node=rebased.node, task=rebased.task)
