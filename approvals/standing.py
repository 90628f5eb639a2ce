"""How the requests of a run stand: their writes, decisions and verdicts, read together. Signing, settling and
re-basing use it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from approvals.core import Given, Held, Policy, Standing, judge, outcome
from approvals.models import ApprovalRequest, Decision
from checkpoints import writes
from checkpoints.models import PendingWrite
from orchestrator.engine import Task


@dataclass(frozen=True, slots=True)
class Asked:
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

    @property
    def last_seq(self) -> int:
        """The number of the decision that settled it."""
        return max((s.seq for s in self.standings.values()), default=0)


def policy_of(request: ApprovalRequest) -> Policy:
    """The rules that the request was opened under."""
    p = request.policy
    return Policy(p["quorum"], p["reject_quorum"], p["four_eyes"], p["all_or_nothing"])


def read(requests: Sequence[ApprovalRequest]) -> list[Asked]:
    """How these requests, all of one run and line, stand. Two queries, whatever their number."""
    if not requests:
        return []
    first = requests[0]
    rows = list(writes.of_tasks(first.run_id, first.line, [(r.node, r.visit) for r in requests]))
    decisions = Decision.objects.filter(request__in=requests).values_list(
        "request_id", "write", "revision", "verdict", "by_id", "event_seq"
    )
    by_request: dict[UUID, list[Given]] = {}
    for request_id, *given in decisions:
        by_request.setdefault(request_id, []).append(Given(*given))
    by_task: dict[str, list[PendingWrite]] = {}
    for row in rows:
        by_task.setdefault(row.task, []).append(row)
    return [_asked(r, by_task.get(r.task, []), by_request.get(r.id, [])) for r in requests]


def _asked(request: ApprovalRequest, rows: Sequence[PendingWrite], decisions: Iterable[Given]) -> Asked:
    held = [Held(row.write, row.revision, row.author_id) for row in rows]
    return Asked(request, tuple(rows), judge(held, decisions, policy_of(request)))
