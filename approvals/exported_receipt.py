"""An exported receipt: one decision as a small signed file, tied by hash to the log of
its run.

Its content is read from rows that verify. docs/bundles.md describes it.
"""

from typing import Any
from uuid import UUID

from django.db.models import Model

from approvals import permissions
from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.audit import lines as audit_log
from checkpoints.bundle.envelope import sealed_envelope
from checkpoints.bundle.receipt_verifier import PAYLOAD_TYPE, TYPE
from checkpoints.core.arguments import checked_actor
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.models import PendingWrite, Run, RunEvent
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import RemovedStretches, removed_history
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.graphs.auto import window_by


def export_receipt(decision_id: UUID | str, *, by: Any = None) -> bytes:
    """Return the signed file of a decision, for its signer and for those who may read
    the audit log and see the run; `by` None means the system. Leaves an audit line.

    Raises `UnknownThing`, including for users who may not have it, `TamperedRow` and
    `WrongKey` if a row of it does not verify, `TamperedRow` also where one is gone that
    was not removed on purpose.
    """
    decision, run, may_see = find_exportable(decision_id, by=by)
    # An encrypted graph's values do not leave the installation.
    content = _content(decision, run, hidden=run.encrypted or not may_see)
    file = sealed_envelope(PAYLOAD_TYPE, content)
    audit_log.record(
        "receipt_exported", actor=by, run=run.id, decision=str(decision.id)
    )
    return file


def find_exportable(decision_id: UUID | str, *, by: Any) -> tuple[Decision, Run, bool]:
    """Return a decision whose file this user may have, its run, and whether the user
    sees that; nothing is exported.

    Raises `UnknownThing`, including for users who may not have it.
    """
    checked_actor(by, "by")
    decisions = Decision.objects.select_related("request")
    decision = decisions.filter(id=uuid_of(decision_id, "decision")).first()
    run = Run.objects.filter(id=decision.run).first() if decision else None
    if decision is None or run is None:
        raise unknown_thing("decision", decision_id)
    if by is None:
        return decision, run, True
    may_see = permissions.may_see_run(by, run)
    # The signer gets it in any case, other people only with both rights.
    if decision.by_id != by.pk and not (may_see and permissions.may(by, "view_audit")):
        raise unknown_thing("decision", decision_id)
    return decision, run, may_see


def _content(decision: Decision, run: Run, *, hidden: bool) -> dict[str, Any]:
    # First, because the run's row says how the other rows are protected.
    run_row.verify_run_row(run)
    sealed_rows.verify_row(decision, protection_of(run))
    removed = removed_history(run.id, protection_of(run)).events
    # An edit was made on one revision and counts for the next one, which it made.
    seen = _revision(decision, run, hash=decision.seen_hash)
    return {
        "type": TYPE,
        "hidden": hidden,
        "decision": {
            "id": str(decision.id),
            "verdict": decision.verdict,
            "at": decision.at.isoformat(),
            "by": decision.by_name,
            "reason": _value(decision, "reason", hidden),
            "revision": decision.revision,
            "seen_hash": decision.seen_hash,
            "confirmed_by": decision.confirmed_by,
            "delegator": decision.delegator_name,
            **_standing(decision),
        },
        "run": {
            "id": str(run.id),
            "key": run.key,
            "graph": run.graph,
            "version": run.version,
            "line": decision.line,
            "encrypted": run.encrypted,
        },
        "write": _write(decision, run, seen, hidden),
        "request": _request(decision.request, run, seen, hidden),
        "outcome": _outcome(decision.request, run, removed),
        "verdict": _verdict_on_write(decision, run),
        "assertion": _assertion(decision, run),
        "log": _event(
            run,
            may_be_removed=decision.event_seq in removed,
            seq=decision.event_seq,
        ),
    }


def _standing(decision: Decision) -> dict[str, Any]:
    """Return what is recorded of the standing policy that signed; nothing where none did:
    such a receipt is what it was before there were any.
    """
    return {"standing": decision.standing} if decision.standing else {}


def _assertion(decision: Decision, run: Run) -> dict[str, Any] | None:
    """Return what the signer's passkey signed. It holds ids and hashes, no value."""
    receipt = decision.receipt
    if receipt is None or not decision.confirmed_by:
        return None
    sealed_rows.verify_row(receipt, protection_of(run))
    assertion: dict[str, Any] | None = receipt.assertion
    return assertion


def _write(
    decision: Decision, run: Run, seen: PendingWrite | None, hidden: bool
) -> dict[str, Any]:
    signed = _revision(decision, run, revision=decision.revision)
    signed_json = _revision_json(signed, hidden)
    if signed is not None and signed_json is not None and _had_window(decision):
        # From then on nobody but people signed it, until its window was over.
        signed_json["staged_at"] = signed.staged_at.isoformat()
    return {
        "id": str(decision.write),
        "task": decision.task,
        "channel": decision.channel,
        "position": decision.position,
        "label": None if hidden or seen is None else seen.label,
        "old_value": _value(decision, "old_value", hidden),
        "proposed_value": _value(decision, "proposed_value", hidden),
        "final_value": _value(decision, "final_value", hidden),
        "seen": _revision_json(seen, hidden),
        "signed": signed_json,
    }


def _had_window(decision: Decision) -> bool:
    """Return whether a policy signed after a window in which only people did."""
    request = decision.request
    if request is None or decision.verdict != "approve" or not decision.by_policy:
        return False
    return window_by(request.policy) is not None


def _revision(decision: Decision, run: Run, **which: Any) -> PendingWrite | None:
    """Return a revision of the write that was decided; None if nothing was held."""
    row = PendingWrite.objects.filter(write=decision.write, **which).first()
    if row is not None:
        sealed_rows.verify_row(row, protection_of(run))
    # Without a request nothing was held, so there was never a revision.
    elif decision.request_id is not None:
        raise TamperedRow(
            f"the revision that decision {decision.id} was about is gone",
            run=str(run.id),
        )
    return row


def _revision_json(row: PendingWrite | None, hidden: bool) -> dict[str, Any] | None:
    """Return what a receipt has of a revision: everything that its hash is over, except
    for the place of the write.
    """
    if row is None:
        return None
    return {
        "revision": row.revision,
        "hash": row.hash,
        "bound_hash": row.bound_hash,
        "policy_hash": row.policy_hash,
        "value": _value(row, "value", hidden),
        "shown": _value(row, "shown", hidden),
    }


def _request(
    request: ApprovalRequest | None,
    run: Run,
    seen: PendingWrite | None,
    hidden: bool,
) -> dict[str, Any] | None:
    if request is None:
        return None
    sealed_rows.verify_row(request, protection_of(run))
    return {
        "id": str(request.id),
        "title": _text(request, seen, "title", hidden),
        "facts": _text(request, seen, "facts", hidden),
        "policy": request.policy,
        "policy_hash": request.policy_hash,
        "passed_tiers": request.passed_tiers or [],
    }


def _text(
    request: ApprovalRequest, seen: PendingWrite | None, name: str, hidden: bool
) -> Any:
    """Return title or facts as they stood beside the write when it was decided: a later
    edit may have changed those of the request.
    """
    shown = None if seen is None else _value(seen, "shown", hidden)
    if shown and name in shown:
        return shown[name]
    return _value(request, name, hidden)


def _verdict_on_write(decision: Decision, run: Run) -> dict[str, Any] | None:
    """Return where the write stands now: approved, rejected or empty, and the write
    with which it was rejected. Whoever approved it may have been outvoted.
    """
    if decision.request is None:
        return None
    (state,) = load_states([decision.request], protection_of(run))
    standing = state.standings[decision.write]
    return {
        "settled": standing.verdict,
        "rejected_with": str(standing.cause) if standing.cause else None,
    }


def _outcome(
    request: ApprovalRequest | None, run: Run, removed: RemovedStretches
) -> dict[str, Any] | None:
    """Return how the request ended, and the event that records that it was applied."""
    if request is None:
        return None
    applied = None
    if request.status == RequestStatus.APPLIED:
        # Other lines of the run may have the same task; the first event after the
        # settlement belongs to this one.
        settled = request.settled_seq or 0
        event = _event(
            run,
            may_be_removed=removed.last > settled,
            type="gate_applied",
            task=request.task,
            seq__gt=settled,
        )
        if event:
            applied = {"seq": event["seq"], "hash": event["hash"]}
    return {
        "status": request.status,
        "outcome": request.outcome,
        "settled_at": request.settled_at.isoformat() if request.settled_at else None,
        "applied": applied,
    }


def _event(
    run: Run, *, may_be_removed: bool, **conditions: Any
) -> dict[str, Any] | None:
    """Return the first such event of the log; None if it was removed on purpose. Raises
    `TamperedRow` if it is missing otherwise.
    """
    row = RunEvent.objects.filter(run=run.id, **conditions).order_by("seq").first()
    if row is None:
        if may_be_removed:
            return None
        raise TamperedRow(
            f"a line of the log of run {run.key} is gone", run=str(run.id)
        )
    sealed_rows.verify_row(row, protection_of(run))
    return {
        "seq": row.seq,
        "hash": row.hash,
        "type": row.type,
        "at": row.at.isoformat(),
    }


def _value(row: Model, column: str, hidden: bool) -> Any:
    return None if hidden else read_value(row, column)
