"""What the runner asks about gates: which are settled, what applying them means, which held writes a commit re-bases.

Called inside the runner's slice, never by faces. Nothing is written before `insert`, which rides in the commit.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.gates.request_state import RequestState, load_states, require_all_decisions
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.base import Base
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.frozen import frozen
from orchestrator.engine.reduce import Settled, WriteValue
from orchestrator.engine.requests import WaitingRequest, as_settled, moved_writes, settle_requests

State = dict[str, dict[str, Any]]
WAITING = (RequestStatus.OPEN, RequestStatus.SETTLED)


@frozen
class Rebasing:
    """Held writes whose bound base a commit moves: their next revisions, and the requests that are open again."""

    rows: list[PendingWrite] = field(default_factory=list)
    reopened: list[UUID] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def insert(self) -> None:
        """In the caller's transaction. An edit that came in between collides on (write, revision)."""
        if self.rows:
            statements.insert_rows(PendingWrite, self.rows)
        if self.reopened:
            again = {"status": RequestStatus.OPEN, "outcome": "", "settled_at": None, "settled_seq": None}
            ApprovalRequest.objects.filter(id__in=self.reopened).update(**again)


@frozen
class Settlement:
    """The gates that a settlement applies, in the order in which their last decisions are numbered."""

    settled: list[Settled]
    requests: list[ApprovalRequest]

    def insert(self) -> None:
        """Mark the requests as applied, in the caller's transaction."""
        ids = [request.id for request in self.requests]
        ApprovalRequest.objects.filter(id__in=ids).update(status=RequestStatus.APPLIED)


def waiting_requests(lease: Lease, tasks: Collection[Task]) -> list[RequestState]:
    """The requests of the current line that no settlement has applied, as they stand: at least those of these tasks,
    which wait for people. Four queries, two if there are none. Raises `TamperedRow` and `WrongKey`.
    """
    require_all_decisions(lease.id, lease.decisions)
    rows = ApprovalRequest.objects.filter(run=lease.id, line=lease.line, status__in=WAITING).order_by("id")
    asked = load_states(list(rows), lease.protection)
    _require_asked(lease, set(tasks) - {one.task for one in asked})
    return asked


def _require_asked(lease: Lease, tasks: Collection[Task]) -> None:
    """Raise where a waiting task's request is gone or says that it was applied. A withdrawn or expired one is over."""
    if not tasks:
        return
    closed = (RequestStatus.WITHDRAWN, RequestStatus.EXPIRED)
    rows = ApprovalRequest.objects.filter(run=lease.id, line=lease.line, status__in=closed)
    there = {Task(*one) for one in rows.values_list("node", "visit", "index")}
    for task in sorted(set(tasks) - there):
        what = f"{task} of run {lease.key} waits for people"
        raise TamperedRow(f"{what}, and its request is gone or says that it was applied", task=str(task))


def settle_gates(
    asked: Sequence[RequestState], compiled: Compiled, frontier: Frontier, state: State, protection: Protection
) -> Settlement:
    """The settled gates that apply. Left out is one whose base an earlier one moves: re-basing opens it again.

    `asked` has been verified by whoever read it. Raises `TamperedRow` where a request only says that it is settled.
    """
    ready = [one for one in asked if one.request.status == RequestStatus.SETTLED]
    for one in ready:
        _require_outcome(one)
    settled = settle_requests([_waiting(one, protection) for one in ready], compiled, frontier, state)
    tasks = {one.task for one in settled}
    return Settlement(settled, [one.request for one in ready if one.task in tasks])


@frozen
class _StoredRevision:
    """The newest revision of a held write, as its row has it."""

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
        version = pending_writes.base_of(row).version
        return WriteValue(row.channel, sealed_columns.read_value(row, "value"), row.label or None, version)


def _waiting(one: RequestState, protection: Protection) -> WaitingRequest[_StoredRevision]:
    return WaitingRequest(one.task, [_StoredRevision(row, protection) for row in one.writes], one.standings)


def settled_of(one: RequestState, protection: Protection) -> Settled:
    """A settled request as its settlement applies it. Raises `TamperedRow` where its decisions do not settle it."""
    _require_outcome(one)
    return as_settled(_waiting(one, protection))


def _require_outcome(one: RequestState) -> None:
    if one.outcome is None:
        raise TamperedRow(
            "a request is marked settled, but its decisions do not settle it", request=str(one.request.id)
        )


def rebase_writes(
    asked: Sequence[RequestState], compiled: Compiled, state: State, *, at: datetime, protection: Protection
) -> Rebasing:
    """The re-basing of held writes that `state`, about to be committed, asks for. A rejected write stays rejected."""
    result = Rebasing()
    if not asked:
        return result
    for one in asked:
        moved = moved_writes(_waiting(one, protection), compiled, state)
        for revision in moved:
            row = revision.row
            base = pending_writes.Base.read(compiled, state, row.channel, shows=revision.shows)
            fresh = pending_writes.rebased(row, base=base, at=at, protection=protection)
            result.rows.append(fresh)
            facts = {"write": str(row.write), "revision": fresh.revision, "channel": row.channel}
            result.events.append(NewEvent("write_rebased", facts, node=row.node, task=row.task))
        if moved and one.request.status == RequestStatus.SETTLED:
            result.reopened.append(one.request.id)
    sealed_rows.seal_and_encrypt(result.rows, protection)
    return result
