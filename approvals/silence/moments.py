"""The moments at which silence acts on a request: the transaction under the run's lock
that deadlines and tiers share.

It locks the run, then the request, as `approvals.reviews` does. Whoever gets the run's
lock first wins; the second finds nothing left to do.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from approvals.gates.deadline_jobs import add_missing_jobs, is_due, moment_of
from approvals.gates.request_state import (
    RequestState,
    load_states,
    require_all_decisions,
)
from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.audit import lines as audit_log
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db import query_cache
from checkpoints.db.clock import read_now
from checkpoints.ledger import locked_run
from checkpoints.ledger.run_error import RESTORED
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.engine.errors import TamperedRow, UnknownThing


@dataclass(frozen=True, slots=True)
class Passing:
    """A moment that has come: its locked run and request, and the time."""

    run: Run
    state: RequestState
    at: datetime

    @property
    def request(self) -> ApprovalRequest:
        return self.state.request

    @property
    def protection(self) -> Protection:
        return protection_of(self.run)

    @property
    def undecided(self) -> list[PendingWrite]:
        """Return the writes that nobody has settled, by position."""
        standings = self.state.standings
        return [row for row in self.state.writes if not standings[row.write].settled]


def act_when_due(
    kind: str, run_id: UUID, request_id: UUID, act: Callable[[Passing], bool]
) -> bool:
    """Act on a request whose moment has come, by a job of this kind. Returns whether
    anything was done. Nothing is done if the request is closed, if nothing in its run
    can be decided now, or before its job is due: people may have been granted more
    time.

    A moment that is still to come gets a new job. A row that does not verify leaves the
    run tampered.
    """
    try:
        with transaction.atomic():
            passing = _passing(kind, run_id, request_id)
            return passing is not None and act(passing)
    except UnknownThing:
        # Retention has removed the run.
        return False
    except TamperedRow as fault:
        # The transaction is rolled back by now, so these lines outlive it.
        locked_run.mark_tampered(run_id, fault)
        row = str(fault.facts.get("row", ""))
        audit_log.record("refused_tampered", actor=None, run=run_id, row=row)
        return False


def _passing(kind: str, run_id: UUID, request_id: UUID) -> Passing | None:
    """Return the moment of this kind that has come in a request; None if none has."""
    run = locked_run.lock_run(run_id)
    # When such a run goes on, its open requests get new jobs.
    if run.cancel_at or run.status in CLOSED_TO_DECISIONS:
        return None
    # People may have signed in the time that a restored copy lacks.
    if run.error_code == RESTORED:
        return None
    if not is_due(run_id, request_id, kind=kind):
        return None
    requests = query_cache.select_locked(
        ApprovalRequest, _query_open, run_id, request_id
    )
    require_all_decisions(run.id, run.decisions, exactly=True)
    states = load_states(requests, protection_of(run))
    if not states:
        return None
    moment = moment_of(kind, states[0].request)
    if moment is None:
        return None
    at = read_now()
    # Only the request's own moment is sealed; that of the job is not.
    if moment > at:
        add_missing_jobs(run_id, requests)
        return None
    return Passing(run, states[0], at)


def _query_open(run: UUID, request: UUID) -> "QuerySet[ApprovalRequest]":
    requests = ApprovalRequest.objects.filter(
        id=request, run=run, status=RequestStatus.OPEN
    )
    return requests.order_by("id").select_for_update()
