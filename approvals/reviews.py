"""Signing: one act, one transaction, over any open writes of a run. Pages, API and commands call `sign` and `decide`.

The reviewer is the caller's user, never a field of what was posted. Locks in order: run, requests by id. A settled gate
wakes the run in the same transaction. `approvals.signing` does the arithmetic; this module holds the act.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.utils import timezone

from approvals import signing
from approvals.drafts import forget_drafts
from approvals.gates.request_state import load_states, require_all_decisions
from approvals.gates.withdrawal import who_asked
from approvals.models import ApprovalRequest, Decision, Receipt, RequestStatus
from approvals.signing import Item, Signing
from checkpoints import audit_log
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.core.ids import uuid_of
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db import statements
from checkpoints.ledger import locked_run
from checkpoints.models import PendingWrite, Run
from checkpoints.queue import notify
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    KeyConflict,
    NotAReviewer,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)


def sign(
    run_id: UUID | str,
    decisions: Sequence[Mapping[str, Any]],
    *,
    by: AbstractBaseUser,
    idempotency_key: str | None = None,
) -> Receipt:
    """Decide writes of a run, and give the receipt: per write counted, kept, excluded, came back (why), or already
    settled (by whom). Under four eyes an edit is kept and counts for nobody; who made it is excluded from that write.

    Each decision is {"write", "hash", "verdict": "approve" | "reject" | "edit", "value", "reason"}; `hash` is that of
    what was on the screen. The same `idempotency_key` with the same decisions gives the same receipt again.

    Raises, having changed nothing: `InvalidValue` (names the write and what is wrong), `UnknownThing`, `NotAReviewer`
    (and leaves an audit line), `WrongStatus`, `IncompatibleGraph` (no worker could go on with the run once it is
    signed), `KeyConflict`, `WrongKey`, `TamperedRow` (the run is tampered from then on, with an audit line); and where
    nothing counted `StaleProposal` or `AlreadyDecided`.
    """
    run_uuid, by = uuid_of(run_id, "run"), checked_person(by, "by")
    if idempotency_key is not None:
        checked_text(idempotency_key, "idempotency_key", least=1, most=200)
    items = signing.parse_decisions(decisions)
    try:
        with transaction.atomic():
            return _sign(run_uuid, items, by=by, idempotency_key=idempotency_key)
    except IntegrityError as error:
        if idempotency_key is None:
            raise
        # The key belongs to a receipt of another run that was being signed at the same moment.
        raise KeyConflict("this idempotency key was used at the same time", idempotency_key=idempotency_key) from error
    except NotAReviewer as refused:
        facts = {name: fact for name, fact in refused.facts.items() if name != "events"}  # a receipt holds labels
        audit_log.record("refused_not_a_reviewer", actor=by, run=run_uuid, **facts)
        raise
    except TamperedRow as found:
        locked_run.mark_tampered(run_uuid, found)
        audit_log.record("refused_tampered", actor=by, run=run_uuid, row=str(found.facts.get("row", "")))
        raise


def decide(
    request_id: UUID | str,
    decisions: Sequence[Mapping[str, Any]],
    *,
    by: AbstractBaseUser,
    idempotency_key: str | None = None,
) -> Receipt:
    """`sign` for the writes of one request. Raises `InvalidValue` where a write belongs to another request."""
    checked_person(by, "by")
    request = ApprovalRequest.objects.filter(id=uuid_of(request_id, "request")).first()
    if request is None:
        raise UnknownThing(f"there is no request {request_id}", request=str(request_id))
    of_task = {"line": request.line, "node": request.node, "visit": request.visit, "index": request.index}
    own = PendingWrite.objects.filter(run=request.run_id, **of_task).values_list("write", flat=True)
    signing.require_own(signing.parse_decisions(decisions), set(own), request=request.id)
    return sign(request.run_id, decisions, by=by, idempotency_key=idempotency_key)


def _sign(run_id: UUID, items: Sequence[Item], *, by: Any, idempotency_key: str | None) -> Receipt:
    run = locked_run.lock_run(run_id)
    body_hash = signing.body_hash(run_id, items, protection_of(run))
    earlier = _earlier(by, idempotency_key, body_hash)
    if earlier:
        return earlier
    if run.cancel_at:
        who = who_asked(run.id) or "the system"
        message = f"run {run.key} was cancelled by {who}; nothing is decided in it any more"
        raise WrongStatus(message, status=run.status, by=[who])
    if run.status in CLOSED_TO_DECISIONS:
        raise WrongStatus(f"run {run.key} is {run.status}; nothing is decided in it any more", status=run.status)
    require_all_decisions(run.id, run.decisions, exactly=True)
    act = Signing(run=run, by=by, at=timezone.now(), asked=_asked(run, items))
    signing.apply_decisions(act, items)
    if not act.counted:
        raise signing.refusal(act)
    receipt = Receipt(run=run, by=by, at=act.at, idempotency_key=idempotency_key, body_hash=body_hash)
    _write(act, receipt)
    return receipt


def _earlier(by: Any, key: str | None, body_hash: str) -> Receipt | None:
    if key is None:
        return None
    receipt = Receipt.objects.filter(by=by, idempotency_key=key).first()
    if receipt and receipt.body_hash != body_hash:
        raise KeyConflict("this idempotency key was used with other decisions", idempotency_key=key)
    return receipt


def _asked(run: Run, items: Sequence[Item]) -> dict[UUID, Any]:
    """The requests of these writes, locked in order of id, by write."""
    wanted = PendingWrite.objects.filter(run=run, write__in={item.write for item in items})
    tasks = set(wanted.values_list("line", "node", "visit", "index"))
    candidates = ApprovalRequest.objects.filter(run=run, node__in={t[1] for t in tasks}).order_by("id")
    locked = [r for r in candidates.select_for_update() if (r.line, r.node, r.visit, r.index) in tasks]
    by_line: dict[int, list[ApprovalRequest]] = {}
    for request in locked:
        by_line.setdefault(request.line, []).append(request)
    protection = protection_of(run)
    return {row.write: one for line in by_line.values() for one in load_states(line, protection) for row in one.writes}


def _write(act: Signing, receipt: Receipt) -> None:
    """Receipt, revisions, decisions, lines and the run's row; and a wake where a gate is settled."""
    settled, events = signing.request_outcome(act)
    for request in (one.request for one in act.requests if one.request.id in act.texts):
        packed = {name: pack_json(value) for name, value in act.texts[request.id].items()}
        request.save(update_fields=sealed_rows.seal_again(request, act.protection, **packed))
    receipt.lines = act.receipt
    sealed_rows.seal(receipt, act.protection)
    receipt.save(force_insert=True)
    statements.insert_rows(PendingWrite, sealed_rows.seal_and_encrypt([*act.revised.values()], act.protection))
    first = act.run.event_seq + 1
    for offset, decision in enumerate(act.decisions):
        decision.receipt, decision.event_seq = receipt, first + offset
    statements.insert_rows(Decision, sealed_rows.seal_and_encrypt(act.decisions, act.protection))
    last = locked_run.append_locked(act.run, events, at=act.at, decisions=act.run.decisions + len(act.decisions))
    verdicts = dict(Counter(decision.verdict for decision in act.decisions))
    audit_log.record_act("signed", act.run, actor=act.by, seq=first, receipt=str(receipt.id), verdicts=verdicts)
    changed = {"status": RequestStatus.SETTLED, "settled_at": act.at, "settled_seq": last}
    for request, result in settled:
        ApprovalRequest.objects.filter(id=request.id).update(outcome=result, **changed)
    forget_drafts(act.run, act.by, signed=[one.write for one in act.decisions], settled=act.settled)
    if settled:
        notify.wake(act.run.id)
