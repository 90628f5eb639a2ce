"""A receipt that leaves the house: one decision as a small signed file, tied by hash to the log of its run.

What it tells is read from rows that prove to be what was sealed. docs/bundles.md says what stands in it.
"""

from typing import Any
from uuid import UUID

from django.db.models import Model

from approvals import permissions
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints import audit_log
from checkpoints.bundle.envelope import sealed_envelope
from checkpoints.core.arguments import checked_actor
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.models import PendingWrite, Run, RunEvent
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import RemovedStretches, removed_history
from orchestrator.engine.errors import TamperedRow

TYPE = "countersign-receipt-1"
PAYLOAD_TYPE = "application/vnd.countersign.receipt+json"


def export_receipt(decision_id: UUID | str, *, by: Any = None) -> bytes:
    """The signed file of a decision, for who signed it and for who may read the audit log and see the run; `by` None
    means the system. Leaves an audit line.

    Raises `UnknownThing` also for whoever may not have it, `TamperedRow` and `WrongKey` where a row of it does not
    prove to be what was sealed, `TamperedRow` also where one is gone that was not removed on purpose.
    """
    decision, run, seen = find_exportable(decision_id, by=by)
    file = sealed_envelope(PAYLOAD_TYPE, _content(decision, run, hidden=run.encrypted or not seen))
    audit_log.record("receipt_exported", actor=by, run=run.id, decision=str(decision.id))
    return file


def find_exportable(decision_id: UUID | str, *, by: Any) -> tuple[Decision, Run, bool]:
    """A decision of which this person may have the file, its run, and whether they see that; nothing is exported.

    Raises `UnknownThing` also for whoever may not have it.
    """
    checked_actor(by, "by")
    decision = Decision.objects.select_related("request").filter(id=uuid_of(decision_id, "decision")).first()
    run = Run.objects.filter(id=decision.run).first() if decision else None
    if decision is None or run is None:
        raise unknown_thing("decision", decision_id)
    seen = by is None or permissions.may_see_run(by, run)
    if by is not None and decision.by_id != by.pk and not (seen and permissions.may(by, "view_audit")):
        raise unknown_thing("decision", decision_id)
    return decision, run, seen


def _content(decision: Decision, run: Run, *, hidden: bool) -> dict[str, Any]:
    run_row.verify_run_row(run)
    sealed_rows.verify_row(decision, protection_of(run))
    removed = removed_history(run.id, protection_of(run)).events
    return {
        "type": TYPE,
        "decision": {
            "id": str(decision.id),
            "verdict": decision.verdict,
            "at": decision.at.isoformat(),
            "by": decision.by_name,
            "reason": _value(decision, "reason", hidden),
            "revision": decision.revision,
            "seen_hash": decision.seen_hash,
        },
        "run": {
            "id": str(run.id),
            "key": run.key,
            "graph": run.graph,
            "version": run.version,
            "line": decision.line,
            "encrypted": run.encrypted,
        },
        "write": _write(decision, run, hidden),
        "request": _request(decision.request, run, hidden),
        "outcome": _outcome(decision.request, run, removed),
        "log": _line(run, gone=decision.event_seq in removed, seq=decision.event_seq),
    }


def _write(decision: Decision, run: Run, hidden: bool) -> dict[str, Any]:
    row = PendingWrite.objects.filter(write=decision.write, hash=decision.seen_hash).first()
    if row is not None:
        sealed_rows.verify_row(row, protection_of(run))
    elif decision.request_id is not None:
        raise TamperedRow(f"the revision that decision {decision.id} was about is gone", run=str(run.id))
    values = {name: _value(decision, name, hidden) for name in ("old_value", "proposed_value", "final_value")}
    told = {name: _value(row, name, hidden) if row else None for name in ("value", "shown")}
    return {
        "id": str(decision.write),
        "task": decision.task,
        "channel": decision.channel,
        "position": decision.position,
        "label": None if hidden or row is None else row.label,
        **values,
        "seen": {"revision": row.revision, **told} if row else None,
    }


def _request(request: ApprovalRequest | None, run: Run, hidden: bool) -> dict[str, Any] | None:
    if request is None:
        return None
    sealed_rows.verify_row(request, protection_of(run))
    return {
        "id": str(request.id),
        "title": _value(request, "title", hidden),
        "facts": _value(request, "facts", hidden),
        "policy": request.policy,
        "policy_hash": request.policy_hash,
    }


def _outcome(request: ApprovalRequest | None, run: Run, removed: RemovedStretches) -> dict[str, Any] | None:
    """What came of it: how the request ended, and the line of the log that says that it was applied."""
    if request is None:
        return None
    applied = None
    if request.status == RequestStatus.APPLIED:
        settled = request.settled_seq or 0
        gone = removed.last > settled
        applied = _line(run, gone=gone, type="gate_applied", task=request.task, seq__gt=settled)
    return {
        "status": request.status,
        "outcome": request.outcome,
        "settled_at": request.settled_at.isoformat() if request.settled_at else None,
        "applied": {name: applied[name] for name in ("seq", "hash")} if applied else None,
    }


def _line(run: Run, *, gone: bool, **wanted: Any) -> dict[str, Any] | None:
    """The first such line of the log; None where it is `gone` with a stretch that was removed on purpose."""
    row = RunEvent.objects.filter(run=run.id, **wanted).order_by("seq").first()
    if row is None and not gone:
        raise TamperedRow(f"a line of the log of run {run.key} is gone", run=str(run.id))
    if row is None:
        return None
    sealed_rows.verify_row(row, protection_of(run))
    return {"seq": row.seq, "hash": row.hash, "type": row.type, "at": row.at.isoformat()}


def _value(row: Model, column: str, hidden: bool) -> Any:
    return None if hidden else read_value(row, column)
