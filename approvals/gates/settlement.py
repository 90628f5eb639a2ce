"""What the runner asks about gates: which are settled, what applying them means, and which held writes a commit
re-bases.

Called inside the runner's slice, never by faces. Nothing is written before `insert`, which rides in the commit.
"""

from collections.abc import Collection, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.core import APPROVED, REJECTED
from approvals.gates.request_state import Asked, read, require_all_decisions
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.db import statements as sql
from checkpoints.event_log import Draft
from checkpoints.ledger import pending_writes as writes
from checkpoints.models import PendingWrite
from checkpoints.queue.leases import Hold
from checkpoints.sealing import sealed_columns as packed
from checkpoints.sealing import sealed_rows as sealing
from checkpoints.sealing.sealed_rows import Cover
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.frozen import frozen
from orchestrator.engine.reduce import Settled, WriteValue, settleable

State = dict[str, dict[str, Any]]
WAITING = (RequestStatus.OPEN, RequestStatus.SETTLED)


@frozen
class Rebasing:
    """Held writes whose bound base a commit moves: their next revisions, and the requests that are open again."""

    rows: list[PendingWrite] = field(default_factory=list)
    reopened: list[UUID] = field(default_factory=list)
    lines: list[Draft] = field(default_factory=list)

    def insert(self) -> None:
        """In the caller's transaction. An edit that came in between collides on (write, revision)."""
        if self.rows:
            sql.insert(PendingWrite, self.rows)
        if self.reopened:
            ApprovalRequest.objects.filter(id__in=self.reopened).update(
                status=RequestStatus.OPEN, outcome="", settled_at=None, settled_seq=None
            )


@frozen
class Settlement:
    """The gates that a settlement applies, in the order in which their last decisions are numbered."""

    settled: list[Settled]
    requests: list[ApprovalRequest]

    def insert(self) -> None:
        """Mark the requests as applied, in the caller's transaction."""
        ids = [request.id for request in self.requests]
        ApprovalRequest.objects.filter(id__in=ids).update(status=RequestStatus.APPLIED)


def waiting(hold: Hold, tasks: Collection[Task]) -> list[Asked]:
    """The requests of the current line that no settlement has applied, as they stand: at least those of these tasks,
    which wait for people. Four queries, two if there are none. Raises `TamperedRow` and `WrongKey`.
    """
    require_all_decisions(hold.id, hold.decisions)
    rows = ApprovalRequest.objects.filter(run=hold.id, line=hold.line, status__in=WAITING).order_by("id")
    asked = read(list(rows), hold.cover)
    _require_asked(hold, set(tasks) - {one.task for one in asked})
    return asked


def _require_asked(hold: Hold, tasks: Collection[Task]) -> None:
    """Raise where the request of a waiting task is gone, or only says that it was applied: its approval would be lost.
    One that was withdrawn or has expired is closed in its own right.
    """
    if not tasks:
        return
    closed = (RequestStatus.WITHDRAWN, RequestStatus.EXPIRED)
    rows = ApprovalRequest.objects.filter(run=hold.id, line=hold.line, status__in=closed)
    there = {Task(*one) for one in rows.values_list("node", "visit", "index")}
    for task in sorted(set(tasks) - there):
        what = f"{task} of run {hold.key} waits for people"
        raise TamperedRow(f"{what}, and its request is gone or says that it was applied", task=str(task))


def settle(asked: Sequence[Asked], compiled: Compiled, frontier: Frontier, state: State, cover: Cover) -> Settlement:
    """The settled gates that apply. Left out is one whose base an earlier one moves: re-basing opens it again.

    `asked` has been verified by whoever read it. Raises `TamperedRow` where a request only says that it is settled.
    """
    ready = sorted((one for one in asked if one.request.status == RequestStatus.SETTLED), key=lambda o: o.last_seq)
    for one in ready:
        _require_outcome(one)
    current = [one for one in ready if not any(_base_moved(row, compiled, state, cover) for row in _approved(one))]
    settled, _ = settleable(compiled, frontier, state, [_settled(one) for one in current])
    tasks = {one.task for one in settled}
    return Settlement(list(settled), [one.request for one in current if one.task in tasks])


def _settled(one: Asked) -> Settled:
    values = tuple(_value(row) for row in _approved(one))
    shows = {name for row in _approved(one) for name in writes.base_of(row).shows}
    return Settled(one.task, values, str(one.outcome), tuple(sorted(shows)))


def _value(row: PendingWrite) -> WriteValue:
    return WriteValue(row.channel, packed.value(row, "value"), row.label or None, writes.base_of(row).version)


def _approved(one: Asked) -> list[PendingWrite]:
    return [row for row in one.writes if one.standings[row.write].verdict == APPROVED]


def _require_outcome(one: Asked) -> None:
    if one.outcome is None:
        raise TamperedRow(
            "a request is marked settled, but its decisions do not settle it", request=str(one.request.id)
        )


def _base_moved(row: PendingWrite, compiled: Compiled, state: State, cover: Cover) -> bool:
    return _base(row, compiled, state).hash(cover) != row.bound_hash


def _base(row: PendingWrite, compiled: Compiled, state: State) -> writes.Base:
    shows = writes.base_of(row).shows
    return writes.base_in(state, row.channel, bound=compiled.channels[row.channel].bound, shows=shows)


def rebase(asked: Sequence[Asked], compiled: Compiled, state: State, *, at: datetime, cover: Cover) -> Rebasing:
    """The re-basing of held writes that `state`, about to be committed, asks for. A rejected write stays rejected."""
    result = Rebasing()
    if not asked:
        return result
    for one in asked:
        moved = [
            row
            for row in one.writes
            if one.standings[row.write].verdict != REJECTED and _base_moved(row, compiled, state, cover)
        ]
        for row in moved:
            fresh = writes.rebased(row, base=_base(row, compiled, state), at=at, cover=cover)
            result.rows.append(fresh)
            facts = {"write": str(row.write), "revision": fresh.revision, "channel": row.channel}
            result.lines.append(Draft("write_rebased", facts, node=row.node, task=row.task))
        if moved and one.request.status == RequestStatus.SETTLED:
            result.reopened.append(one.request.id)
    sealing.finish(result.rows, cover)
    return result
