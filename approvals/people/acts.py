"""An act of a person on one request, other than signing: the transaction, the locks of
run and request, and the lines of the audit log that a refusal leaves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from approvals import permissions
from approvals.models import ApprovalRequest
from checkpoints.audit import lines as audit_log
from checkpoints.core.ids import uuid_of
from checkpoints.db.clock import read_now
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    Forbidden,
    NotAReviewer,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)


@dataclass(frozen=True, slots=True)
class RequestAct:
    """One person's act on a request, which is locked with its run. `at` is by the
    database's clock.
    """

    run: Run
    request: ApprovalRequest
    by: Any
    at: datetime

    def record(self, kind: str, **facts: Any) -> None:
        """Write the act into the run's log and into the audit log, under one name.
        `facts` are ids and names.
        """
        request = self.request
        event = NewEvent(
            kind,
            {"request": str(request.id), **facts},
            node=request.node,
            task=request.task,
            actor=self.by.get_username(),
        )
        seq = locked_run.append_locked(self.run, [event], at=self.at)
        audit_log.record_act(
            kind, self.run, actor=self.by, seq=seq, request=request.id, **facts
        )


@contextmanager
def act_on(request_id: UUID | str, *, by: Any) -> Iterator[RequestAct]:
    """Lock an open request and its run for an act of this person, in one transaction.

    Raises `UnknownThing`, `WrongStatus` (nothing in it can be decided now),
    `TamperedRow`, `WrongKey`. What it raises, or the act itself, leaves an audit line
    where it is a refusal of the person, or shows a changed record.
    """
    request_uuid = uuid_of(request_id, "request")
    run_id = _run_of(request_uuid)
    try:
        with transaction.atomic():
            yield _locked_act(run_id, request_uuid, by)
    # The transaction is rolled back by now, so these lines outlive the act.
    except Forbidden as refusal:
        right = refusal.facts.get("right", "")
        audit_log.record("refused_right", actor=by, run=run_id, right=right)
        raise
    except NotAReviewer as refusal:
        record_refusal(run_id, by, refusal)
        raise
    except TamperedRow as fault:
        record_tampering(run_id, by, fault)
        raise


def _run_of(request: UUID) -> UUID:
    rows = ApprovalRequest.objects.filter(id=request)
    run_id: UUID | None = rows.values_list("run", flat=True).first()
    if run_id is None:
        raise UnknownThing(f"there is no request {request}", request=str(request))
    return run_id


def _locked_act(run_id: UUID, request_id: UUID, by: Any) -> RequestAct:
    run = locked_run.lock_run(run_id)
    request = ApprovalRequest.objects.select_for_update().get(id=request_id)
    # Otherwise it would read the run again, without its lock.
    request.run = run
    sealed_rows.verify_row(request, protection_of(run))
    require_open(request)
    return RequestAct(run, request, by, read_now())


def require_open(request: ApprovalRequest) -> None:
    """Raise `WrongStatus` if nothing in a request can be decided now. Reads
    `request.run`.
    """
    why_closed = permissions.closed(request)
    if request.run.cancel_at:
        why_closed = "The run was cancelled, so nothing can be decided in it."
    if why_closed:
        raise WrongStatus(why_closed, status=request.run.status)


def require_right(act: RequestAct, right: str) -> None:
    """Raise `Forbidden` if the person of an act lacks a right of `permissions.RIGHTS`."""
    if not permissions.may(act.by, right):
        raise Forbidden(f"you lack the right {right}", right=right)


def record_refusal(run_id: UUID, by: Any, refusal: NotAReviewer) -> None:
    """Leave the audit line of a person who may not decide what they tried to."""
    facts = dict(refusal.facts)
    # These are the lines of a receipt. They hold labels, which the audit log must not
    # have.
    facts.pop("events", None)
    audit_log.record("refused_not_a_reviewer", actor=by, run=run_id, **facts)


def record_tampering(run_id: UUID, by: Any, fault: TamperedRow) -> None:
    """Mark a run as tampered for what an act met, and leave an audit line."""
    locked_run.mark_tampered(run_id, fault)
    row = str(fault.facts.get("row", ""))
    audit_log.record("refused_tampered", actor=by, run=run_id, row=row)
