"""Signing: one act, in one transaction, over any open writes of a run. Pages, API and
commands call `sign` and `decide`.

The reviewer is the caller's user, never a field of what was posted. Locks are taken in
this order: the run, then its requests by id. A settled gate wakes the run in the same
transaction. `approvals.signing` does the arithmetic; this module holds the transaction.
"""

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import cache, partial
from operator import attrgetter
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, transaction
from django.db.models import Exists, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from approvals import passkey_challenges, signing
from approvals.confirmation import Confirmation, Site
from approvals.drafts import forget_drafts
from approvals.gates.request_state import (
    RequestState,
    load_states,
    query_count,
    require_all_decisions,
    require_count,
)
from approvals.gates.withdrawal import who_asked
from approvals.models import (
    ApprovalRequest,
    Decision,
    Draft,
    Receipt,
    RequestClaim,
    RequestStatus,
)
from approvals.people import claims
from approvals.people.acts import record_refusal, record_tampering
from approvals.people.claims import assign, claim, release
from approvals.people.comments import comment
from approvals.people.standing_in import delegate, revoke_delegation
from approvals.people.standing_policies import (
    make_standing_policy,
    revoke_standing_policy,
)
from approvals.results import decision_times
from approvals.signing import Item, Signing
from checkpoints import event_log
from checkpoints.audit import lines as audit_log
from checkpoints.core import traces
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.core.ids import uuid_of
from checkpoints.core.status import CLOSED_TO_DECISIONS
from checkpoints.db import query_cache, statements
from checkpoints.db.clock import kept_now, moment_of_kept
from checkpoints.db.rows import mark_stored
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.models import PendingWrite, Run
from checkpoints.queue import notify
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import (
    ConfirmationRequired,
    CountersignError,
    InvalidValue,
    KeyConflict,
    NotAReviewer,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.standing_policy import signs_by_itself

__all__ = [
    "assign",
    "claim",
    "comment",
    "decide",
    "delegate",
    "make_standing_policy",
    "passkey_challenge",
    "release",
    "revoke_delegation",
    "revoke_standing_policy",
    "sign",
]


@frozen
class _Beside:
    """Drafts of decisions, and claims on open requests: whether a run has any, and when they
    were read by the database's clock.
    """

    at: datetime
    has_drafts: bool = False
    has_claims: bool = False


def sign(
    run_id: UUID | str,
    decisions: Sequence[Mapping[str, Any]],
    *,
    by: AbstractBaseUser,
    idempotency_key: str | None = None,
    confirmation: Confirmation | None = None,
) -> Receipt:
    """Decide writes of a run, and return the receipt, which says for each write whether
    the decision counted, was kept, was excluded, came back (and why), or came too late
    because others had settled the write. Under four eyes an edit is kept but counts for
    nobody, and its author is excluded from deciding that write.

    Each decision is {"write", "hash", "verdict": "approve" | "reject" | "edit" | "skip",
    "value", "reason"}; `hash` is that of what was on the screen. The same
    `idempotency_key` with the same decisions returns the same receipt again. Where a gate
    asks for it, `confirmation` says how this person has just shown who they are.

    Raises, having changed nothing: `InvalidValue` (names the write and what is wrong),
    `UnknownThing`, `NotAReviewer` (and leaves an audit line), `WrongStatus`, `Claimed`
    (under an exclusive gate, by another person), `NotConsidered` (names the writes, and
    what is left), `ConfirmationRequired` (names how, and the writes),
    `IncompatibleGraph` (no worker could go on with the run once it is signed),
    `KeyConflict`, `WrongKey`,
    `TamperedRow` (the run is tampered from then on, with an audit line); and if nothing
    counted, `StaleProposal` or `AlreadyDecided`.
    """
    run_uuid = uuid_of(run_id, "run")
    by = checked_person(by, "by")
    if idempotency_key is not None:
        checked_text(idempotency_key, "idempotency_key", least=1, most=200)
    if not isinstance(confirmation, Confirmation | None):
        raise InvalidValue("confirmation must be a Confirmation", path="confirmation")
    items = signing.parse_decisions(decisions)
    # Whoever configured tracing has imported its API.
    traced: Any = nullcontext()
    if traces.SDK in sys.modules:
        traced = _signing_span(run_uuid)
    try:
        with traced, transaction.atomic():
            return _sign(
                run_uuid,
                items,
                by=by,
                idempotency_key=idempotency_key,
                confirmation=confirmation,
            )
    except IntegrityError as error:
        if idempotency_key is None:
            raise
        # The key belongs to a receipt of another run that was being signed at the same
        # moment.
        raise KeyConflict(
            "this idempotency key was used at the same time",
            idempotency_key=idempotency_key,
        ) from error
    # The transaction is rolled back by now, so the audit lines below outlive the act.
    except ConfirmationRequired as refusal:
        _record_unconfirmed(run_uuid, by, refusal)
        raise
    except NotAReviewer as refusal:
        record_refusal(run_uuid, by, refusal)
        raise
    except TamperedRow as fault:
        record_tampering(run_uuid, by, fault)
        raise


def _signing_span(run_id: UUID) -> Any:
    """Return the span of a signature: in the trace of the request in which it is made,
    and linked to the trace in which the run was started. One query.
    """
    tracer = traces.tracer()
    if tracer is None:
        return nullcontext()
    attributes = {"countersign.run": str(run_id)}
    linked_to = ""
    with suppress(CountersignError):
        linked_to = event_log.trace_of(run_id)
    return traces.span(tracer, "countersign.sign", attributes, linked_to=linked_to)


def decide(
    request_id: UUID | str,
    decisions: Sequence[Mapping[str, Any]],
    *,
    by: AbstractBaseUser,
    idempotency_key: str | None = None,
) -> Receipt:
    """Decide writes of one request, as `sign` does for a run.

    Raises `InvalidValue` if a write belongs to another request.
    """
    checked_person(by, "by")
    request = ApprovalRequest.objects.filter(id=uuid_of(request_id, "request")).first()
    if request is None:
        raise UnknownThing(f"there is no request {request_id}", request=str(request_id))
    writes_of_request = PendingWrite.objects.filter(
        run=request.run_id,
        line=request.line,
        node=request.node,
        visit=request.visit,
        index=request.index,
    ).values_list("write", flat=True)
    # Checked before `sign`, which takes writes of any request of the run.
    signing.require_own(
        signing.parse_decisions(decisions), set(writes_of_request), request=request.id
    )
    return sign(request.run_id, decisions, by=by, idempotency_key=idempotency_key)


def passkey_challenge(
    run_id: UUID | str,
    decisions: Sequence[Mapping[str, Any]],
    *,
    by: AbstractBaseUser,
    site: Site,
    session: str,
    idempotency_key: str | None = None,
) -> dict[str, Any]:
    """Return what the browser of this person needs to sign these decisions with a
    passkey: {"challenge": its id, "options"}, or {} if no gate asks for it, or `sign`
    has a receipt for them under this key already. Nothing is decided yet. `session` is
    the hash of the session in which the answer has to come.

    Raises what `sign` raises for decisions that cannot be signed as they are, and
    `InvalidValue` if the person has no passkey for this site.
    """
    run_uuid = uuid_of(run_id, "run")
    by = checked_person(by, "by")
    if idempotency_key is not None:
        checked_text(idempotency_key, "idempotency_key", least=1, most=200)
    checked_text(session, "session", least=64, most=64)
    if not isinstance(site, Site):
        raise InvalidValue("site must be a Site", path="site")
    items = signing.parse_decisions(decisions)
    with transaction.atomic():
        run = locked_run.lock_run(run_uuid)
        # What was signed when its answer was lost is posted again, and only answered.
        body_hash = signing.body_hash(run.id, items, protection_of(run))
        if _receipt_of_key(by, idempotency_key, body_hash):
            return {}
        _require_open_to_decisions(run)
        requests_by_write, beside = _lock_requests(run, items)
        act = Signing(
            run=run,
            by=by,
            at=beside.at,
            requests_by_write=requests_by_write,
        )
        if beside.has_claims:
            act.claims = claims.verified_claims(act.requests)
        lines = signing.signed_lines(act, signing.weigh_decisions(act, items))
        # Below their limits gates ask for none, and a person may have none.
        if not any(signing.needed_confirmations(act).values()):
            return {}
        return passkey_challenges.issue_challenge(
            run, by, lines, site=site, session=session, at=act.at
        )


def _record_unconfirmed(run_id: UUID, by: Any, refusal: ConfirmationRequired) -> None:
    # A person who was not asked to confirm yet has not failed to.
    if "reason" in refusal.facts:
        audit_log.record(
            "refused_confirmation",
            actor=by,
            run=run_id,
            method=refusal.facts["method"],
            reason=refusal.facts["reason"],
        )


def _sign(
    run_id: UUID,
    items: Sequence[Item],
    *,
    by: Any,
    idempotency_key: str | None,
    confirmation: Confirmation | None,
) -> Receipt:
    run = locked_run.lock_run(run_id)
    # A repeated call gets its receipt even if the run has ended since.
    body_hash = signing.body_hash(run_id, items, protection_of(run))
    earlier_receipt = _receipt_of_key(by, idempotency_key, body_hash)
    if earlier_receipt:
        return earlier_receipt

    _require_open_to_decisions(run)
    requests_by_write, beside = _lock_requests(run, items)
    act = Signing(
        run=run,
        by=by,
        at=beside.at,
        requests_by_write=requests_by_write,
        confirmation=confirmation,
    )
    if beside.has_claims:
        act.claims = claims.verified_claims(act.requests)
    signing.apply_decisions(act, items)
    if not act.counted:
        raise signing.refusal(act)

    receipt = Receipt(
        run=run,
        by=by,
        at=act.at,
        idempotency_key=idempotency_key,
        body_hash=body_hash,
        assertion=act.assertion,
    )
    _write(act, receipt, has_drafts=beside.has_drafts)
    return receipt


def _receipt_of_key(by: Any, key: str | None, body_hash: str) -> Receipt | None:
    """Return the receipt that this person got for the same call before, if any."""
    if key is None:
        return None
    receipt = Receipt.objects.filter(by=by, idempotency_key=key).first()
    if receipt and receipt.body_hash != body_hash:
        raise KeyConflict(
            "this idempotency key was used with other decisions", idempotency_key=key
        )
    return receipt


def _require_open_to_decisions(run: Run) -> None:
    # A worker that holds the run changes its status only with its next commit.
    if run.cancel_at:
        canceller = who_asked(run.id) or "the system"
        raise WrongStatus(
            f"run {run.key} was cancelled by {canceller}; "
            "nothing is decided in it any more",
            status=run.status,
            by=[canceller],
        )
    if run.status in CLOSED_TO_DECISIONS:
        raise WrongStatus(
            f"run {run.key} is {run.status}; nothing is decided in it any more",
            status=run.status,
        )


def _lock_requests(
    run: Run, items: Sequence[Item]
) -> tuple[dict[UUID, RequestState], _Beside]:
    """Lock the requests of these writes in order of id. Return them by write, with the
    run's drafts and claims. Raises `TamperedRow` where the run has another number of
    decisions than its row says.
    """
    writes = query_cache.padded({item.write for item in items})
    records = query_cache.select_values(_query_of_writes, run.id, *writes)
    if not records:
        require_all_decisions(run.id, run.decisions, exactly=True)
        return {}, _Beside(timezone.now())
    *_, count, has_drafts, has_claims, moment = records[0]
    require_count(run.id, count, run.decisions, exactly=True)

    tasks = {record[:4] for record in records}
    by_line: dict[int, list[ApprovalRequest]] = {}
    # When several requests asked about the same writes, the last one counts. Their ids
    # come from the clocks of several hosts.
    candidates = _lock_candidates(run.id, tasks)
    for request in sorted(candidates, key=attrgetter("line", "ordinal")):
        if (request.line, request.node, request.visit, request.index) in tasks:
            by_line.setdefault(request.line, []).append(request)

    protection = protection_of(run)
    requests_by_write: dict[UUID, RequestState] = {}
    for requests in by_line.values():
        for state in load_states(requests, protection):
            for row in state.writes:
                requests_by_write[row.write] = state
    beside = _Beside(moment_of_kept(moment), bool(has_drafts), bool(has_claims))
    return requests_by_write, beside


def _lock_candidates(
    run: UUID, tasks: Collection[tuple[int, str, int, int]]
) -> list[ApprovalRequest]:
    """Lock the requests of these tasks (line, node, visit, index), in order of id, and
    some more: each list of the query on its own also meets tasks that nobody named.
    """
    lines = query_cache.padded({line for line, *_ in tasks})
    nodes = query_cache.padded({node for _, node, _, _ in tasks})
    visits = query_cache.padded({visit for *_, visit, _ in tasks})
    query = _query_at_visits(len(lines), len(nodes))
    return query_cache.select_locked(
        ApprovalRequest, query, run, *lines, *nodes, *visits
    )


def _query_of_writes(run: UUID, *writes: UUID) -> "QuerySet[Any, Any]":
    rows = PendingWrite.objects.filter(run=run, write__in=writes).order_by()
    # Without the status it would look at each request that the run ever had.
    claimed = RequestClaim.objects.filter(
        request__run=run, request__status=RequestStatus.OPEN
    )
    with_counts = rows.annotate(
        decided=Coalesce(Subquery(query_count(run)), 0),
        drafted=Exists(Draft.objects.filter(run=run)),
        claimed=Exists(claimed),
        # Sightings are by this clock, and signatures are compared with them.
        moment=kept_now(),
    )
    columns = ("line", "node", "visit", "index", "decided", "drafted", "claimed")
    return with_counts.values_list(*columns, "moment")


@cache
def _query_at_visits(lines: int, nodes: int) -> query_cache.Query:
    """Return the builder of the query for the requests of so many lines and nodes, and
    of visits. A loop may have asked very often: only these are read, by their index.
    """

    def query(run: UUID, *values: Any) -> "QuerySet[ApprovalRequest]":
        requests = ApprovalRequest.objects.filter(
            run=run,
            line__in=values[:lines],
            node__in=values[lines : lines + nodes],
            visit__in=values[lines + nodes :],
        )
        return requests.order_by("id").select_for_update()

    return query


def _write(act: Signing, receipt: Receipt, *, has_drafts: bool) -> None:
    """Write receipt, revisions, decisions, log lines and the run's row; and wake the
    run if a gate is settled.
    """
    # First, because it also completes the lines of the receipt, which is sealed below.
    settled, events = signing.request_outcome(act)
    _save_texts(act)
    _insert_rows(act, receipt)
    wakes = notify.woken() if settled or _asks_policy(act) else {}
    last_seq = _append_events(act, receipt, events, wakes)
    for request, outcome in settled:
        statements.update_rows(
            ApprovalRequest,
            {"id": request.id},
            outcome=outcome,
            status=RequestStatus.SETTLED,
            settled_at=act.at,
            settled_seq=last_seq,
        )
        if decision_times.histogram is not None:
            waited = act.at - request.opened_at
            transaction.on_commit(partial(decision_times.add, waited))
    if has_drafts:
        forget_drafts(
            act.run,
            act.by,
            signed=[decision.write for decision in act.decisions],
            settled=act.settled,
        )
    # A person who has signed is no longer working on it.
    if act.claims:
        claims.end_claims(act.claims, act.by, signed=_requests_signed(act))
    if wakes:
        notify.notify_workers()


def _asks_policy(act: Signing) -> bool:
    """Return whether an edit has made a revision that a gate's policy may sign."""
    requests = [act.requests_by_write[write].request for write in act.revised]
    return any(signs_by_itself(request.policy) for request in requests)


def _requests_signed(act: Signing) -> set[UUID]:
    """Return the requests of the writes on which a decision counts."""
    return {act.requests_by_write[item.write].request.id for item in act.counted}


def _save_texts(act: Signing) -> None:
    """Save the new titles and facts of requests of which a write was edited."""
    for state in act.requests:
        request = state.request
        if request.id not in act.texts:
            continue
        texts = act.texts[request.id]
        packed = {name: pack_json(text) for name, text in texts.items()}
        changed_columns = sealed_rows.seal_again(request, act.protection, **packed)
        request.save(update_fields=changed_columns)


def _insert_rows(act: Signing, receipt: Receipt) -> None:
    """Seal and insert the receipt, the next revisions and the decisions."""
    receipt.lines = act.receipt
    sealed_rows.seal(receipt, act.protection)
    statements.insert_rows(Receipt, [receipt])
    mark_stored(receipt)

    revisions = list(act.revised.values())
    statements.insert_rows(
        PendingWrite, sealed_rows.seal_and_encrypt(revisions, act.protection)
    )

    # `request_outcome` puts the events of the decisions first, so the number that each
    # decision's event will have is known.
    for seq, decision in enumerate(act.decisions, start=act.run.event_seq + 1):
        decision.receipt = receipt
        decision.event_seq = seq
    statements.insert_rows(
        Decision, sealed_rows.seal_and_encrypt(act.decisions, act.protection)
    )


def _append_events(
    act: Signing,
    receipt: Receipt,
    events: Sequence[NewEvent],
    wakes: Mapping[str, Any],
) -> int:
    """Append the events to the run's log and one line to the audit log. Return the
    number of the last event.
    """
    first_seq = act.run.event_seq + 1
    last_seq = locked_run.append_locked(
        act.run,
        events,
        at=act.at,
        decisions=act.run.decisions + len(act.decisions),
        **wakes,
    )
    verdicts = Counter(decision.verdict for decision in act.decisions)
    facts: dict[str, Any] = {"receipt": str(receipt.id), "verdicts": dict(verdicts)}
    if act.used:
        names = {decision.delegator_name for decision in act.decisions}
        facts["delegators"] = sorted(names.difference([""]))
    audit_log.record_act("signed", act.run, actor=act.by, seq=first_seq, **facts)
    return last_seq
