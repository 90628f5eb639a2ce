"""Tiers of requests: reminders and escalations while people have not decided. When its
time comes, a tier reminds the reviewers or asks more people, once, under the run's
lock.

Added reviewers stay until the request is closed.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from approvals.gates import deadline_jobs
from approvals.gates.reviewer_rows import reviewer_rows
from approvals.models import ApprovalRequest, RequestReviewer
from approvals.notice_rows import ESCALATED, REMINDED, write_notices
from approvals.people.claims import note_in_inboxes
from approvals.silence.moments import Passing, act_when_due
from checkpoints.audit import lines as audit_log
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.sealing import sealed_rows
from orchestrator.engine.graphs.tiers import (
    ESCALATE,
    escalated,
    next_tier_at,
    tiers_in,
    time_of,
)

EVENTS = {"remind": "request_reminded", "escalate": "request_escalated"}
"""What a tier does -> the type of its lines in the logs."""
_NOTICES = {"remind": REMINDED, "escalate": ESCALATED}

Tier = Mapping[str, Any]


def meet_tiers(run_id: UUID, request_id: UUID) -> bool:
    """Apply the due tiers of a request in order, each once. Returns whether any did.
    None acts if the request is closed, if nothing in its run can be decided now, before
    its job is due, or after its deadline, which decides instead.
    """
    return act_when_due(deadline_jobs.TIER_KIND, run_id, request_id, _act)


def _act(passing: Passing) -> bool:
    request = passing.request
    if request.deadline is not None and request.deadline <= passing.at:
        return False
    number = len(request.passed_tiers or ())
    acting: list[Tier] = []
    # The first tier is due, or the caller would have returned.
    next_at = request.tier_at
    while next_at is not None and next_at <= passing.at:
        acting.append(tiers_in(request.policy)[number + len(acting)])
        next_at = _next_after(request, number + len(acting), next_at)
    _ask_too(passing, acting)
    _record(passing, acting, number)
    _pass(passing, len(acting), next_at)
    return True


def _next_after(
    request: ApprovalRequest, passed: int, last_at: datetime
) -> datetime | None:
    """Return when the tier after the first `passed` acts; `last_at` is when the one
    before it was due.
    """
    last = tiers_in(request.policy)[passed - 1]
    opened_at = last_at - time_of(last)
    return next_tier_at(request.policy, passed, opened_at, request.deadline)


def _ask_too(passing: Passing, acting: Sequence[Tier]) -> None:
    """Add the principals to whom these tiers escalate to the reviewers of the request."""
    request = passing.request
    reviewers = set(request.reviewers_now)
    added: list[str] = []
    for name in escalated(acting):
        if name not in reviewers:
            added.append(name)
    if added:
        rows = reviewer_rows(request, added, status=passing.run.status)
        statements.insert_rows(RequestReviewer, rows)
        note_in_inboxes(request)


def _record(passing: Passing, acting: Sequence[Tier], number: int) -> None:
    """Record these tiers in both logs, with a notice for each. `number` is that of the
    first, from 0.
    """
    run = passing.run
    request = passing.request
    events: list[NewEvent] = []
    new_notices: list[tuple[str, int | None]] = []
    for tier in acting:
        act = tier["act"]
        events.append(_event(request, number, tier))
        new_notices.append((_NOTICES[act], number))
        number += 1
    seq = run.event_seq
    locked_run.append_locked(run, events, at=passing.at)
    for tier in acting:
        seq += 1
        _record_in_audit_log(passing, tier, seq)
    write_notices(request, new_notices, at=passing.at)


def _record_in_audit_log(passing: Passing, tier: Tier, seq: int) -> None:
    kind = EVENTS[tier["act"]]
    audit_log.record_act(
        kind,
        passing.run,
        actor=None,
        seq=seq,
        request=passing.request.id,
        **_named(tier),
    )


def _named(tier: Tier) -> dict[str, Any]:
    """Return the principals that a tier names, as a fact; no fact if it addresses the
    reviewers.
    """
    to = tier["to"]
    if to is None:
        return {}
    return {"to": to}


def _event(request: ApprovalRequest, number: int, tier: Tier) -> NewEvent:
    facts: dict[str, Any] = {
        "request": str(request.id),
        "tier": number,
        **_named(tier),
    }
    return NewEvent(
        EVENTS[tier["act"]],
        facts,
        node=request.node,
        task=request.task,
    )


def _pass(passing: Passing, count: int, next_at: datetime | None) -> None:
    """Seal into the request that these tiers have acted and when the next one is due,
    and queue its job.
    """
    request = passing.request
    moment = passing.at.isoformat()
    passed = list(request.passed_tiers or ())
    passed += [moment] * count
    changed = sealed_rows.seal_again(
        request,
        passing.protection,
        passed_tiers=passed,
        tier_at=next_at,
    )
    request.save(update_fields=changed)
    deadline_jobs.add_request_jobs(
        [request],
        kinds=[deadline_jobs.TIER_KIND],
    )


def escalations(request: ApprovalRequest) -> list[tuple[datetime, list[str]]]:
    """Return to whom the tiers of a request have escalated, and when, in order."""
    rows: list[tuple[datetime, list[str]]] = []
    tiers = tiers_in(request.policy)
    for at, tier in zip(request.passed_tiers or (), tiers, strict=False):
        if tier["act"] == ESCALATE:
            rows.append((datetime.fromisoformat(at), list(tier["to"])))
    return rows
