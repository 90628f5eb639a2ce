"""How the requests of a run stand: their writes, decisions and verdicts, read together and verified. Signing, settling
and re-basing use it, and whoever shows what is decided: nobody decides on, or applies, a row that was tampered with.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from approvals.models import ApprovalRequest, Decision
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.verdicts import Given, Held, Policy, Standing, judge, outcome


@frozen
class RequestState:
    """One request with its writes as they stand, in order of position."""

    request: ApprovalRequest
    writes: tuple[PendingWrite, ...]
    standings: dict[UUID, Standing]

    @property
    def task(self) -> Task:
        return Task(self.request.node, self.request.visit, self.request.index)

    @property
    def outcome(self) -> str | None:
        """approved, rejected or partial once each write is settled; None before."""
        return outcome(self.standings.values())


def policy_of(request: ApprovalRequest) -> Policy:
    """The rules that the request was opened under."""
    p = request.policy
    return Policy(p["quorum"], p["reject_quorum"], p["four_eyes"], p["all_or_nothing"])


def load_states(requests: Sequence[ApprovalRequest], protection: Protection) -> list[RequestState]:
    """How these requests, all of one run and line, stand. Two queries, whatever their number.

    Raises `TamperedRow` and `WrongKey` where one of the rows is not as it was written.
    """
    if not requests:
        return []
    first = requests[0]
    by_request: dict[UUID, list[Decision]] = {}
    # Before the writes: of an edit that is signed meanwhile the decision may be missing, but never the revision.
    for decision in Decision.objects.filter(request__in=requests):
        by_request.setdefault(decision.request_id, []).append(decision)
    rows = list(pending_writes.of_tasks(first.run_id, first.line, [(r.node, r.visit) for r in requests]))
    by_task: dict[str, list[PendingWrite]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    return [_state_of(r, by_task.get(r.task, []), by_request.get(r.id, []), protection) for r in requests]


def _state_of(
    request: ApprovalRequest, rows: Sequence[PendingWrite], decisions: Sequence[Decision], protection: Protection
) -> RequestState:
    sealed_rows.verify_rows([request, *rows, *decisions], protection)
    _require_whole(request, rows, decisions)
    held = [Held(row.write, row.revision, row.author_id) for row in rows]
    given = [Given(d.write, d.revision, d.verdict, d.by_id, d.event_seq) for d in decisions]
    return RequestState(request, tuple(rows), judge(held, given, policy_of(request)))


def _require_whole(request: ApprovalRequest, rows: Sequence[PendingWrite], decisions: Iterable[Decision]) -> None:
    """Rows that verify can still be too few: a write, or the revision that somebody decided on, was deleted."""
    what = sealed_rows.name_of(request)
    if len(rows) != request.writes:
        raise TamperedRow(f"{what} asks about {request.writes} writes, and {len(rows)} are there", row=what)
    newest = {row.write: row.revision for row in rows}
    for decision in decisions:
        if decision.revision > newest.get(decision.write, 0):
            gone = f"revision {decision.revision} of write {decision.write}"
            raise TamperedRow(f"{what} has a decision on {gone}, which is not there", row=what)


def require_all_decisions(run: UUID, known: int, *, exactly: bool = False) -> None:
    """Raise `TamperedRow` where a run has fewer decisions than its row says, or (`exactly`, under its lock) more."""
    count = Decision.objects.filter(run=run).count()
    if count < known or (exactly and count != known):
        raise TamperedRow(f"run {run} has {count} decisions, and its row says {known}", run=str(run))
