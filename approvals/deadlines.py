"""Deadlines of requests: what a deadline decides when it has come, as a signature of the
system under the run's lock. Its job calls this, and `runs.advance`.

Like `approvals.reviews` it locks the run, then the request. Whoever has the run's lock
first wins: a deadline that comes second finds nothing left to decide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals.answers.windows import put_off_windows
from approvals.drafts import forget_drafts
from approvals.gates.deadline_faults import verdict_of_deadline, was_approved
from approvals.gates.deadline_jobs import (
    KIND,
    TIMED,
    add_missing_jobs,
    replace_jobs,
)
from approvals.gates.edited_texts import has_other_texts, request_texts
from approvals.gates.request_state import (
    load_states,
)
from approvals.models import (
    BY_DEADLINE,
    ApprovalRequest,
    Decision,
    RequestStatus,
)
from approvals.signing import signed_decision, texts_changed_events
from approvals.silence.moments import Passing, act_when_due
from approvals.silence.tiers import meet_tiers
from checkpoints import timeline, versions
from checkpoints.audit import lines as audit_log
from checkpoints.db import query_cache, statements
from checkpoints.db.clock import kept_now, read_now
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run, pending_writes
from checkpoints.models import PendingWrite, Run
from checkpoints.queue import notify
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import decrypted
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values.ops import same

GRACE = timedelta(minutes=30)
"""The time that people have, from the resume of a restored run, before a deadline acts
that came, or a window ends that was over, while they could not look.
"""


def meet_deadline(run_id: UUID, request_id: UUID) -> bool:
    """Decide by its deadline what people have left open in a request, and wake the run.
    Returns whether it decided anything: it does nothing to a request that is closed, or
    in a run in which nothing can be decided now, and before the request's job is due:
    people may have been given time beyond the deadline.

    A deadline that is still to come gets a new job. A row that does not verify leaves
    the run tampered.
    """
    return act_when_due(KIND, run_id, request_id, _meet)


def meet_due_deadlines(run_id: UUID) -> bool:
    """Apply the deadlines and tiers of a run that are due, as their jobs would. Returns
    whether any did. One query where none has.
    """
    # Most runs have none, and a look whose query is kept costs less.
    if not query_cache.exists(_query_due, run_id):
        return False
    has_acted = False
    for request in list(_query_due(run_id)):
        if request.deadline is not None:
            has_acted |= meet_deadline(run_id, request.id)
        if request.tier_at is not None:
            has_acted |= meet_tiers(run_id, request.id)
    return has_acted


def _query_due(run: UUID) -> "QuerySet[ApprovalRequest]":
    has_come = Q(deadline__lte=kept_now()) | Q(tier_at__lte=kept_now())
    due = ApprovalRequest.objects.filter(has_come, run=run, status=RequestStatus.OPEN)
    return due.order_by("deadline", "id").only("id", "deadline", "tier_at")


def go_on(run: Run, *, was_restored: bool = False, was_closed: bool = False) -> None:
    """Add the jobs that are missing of the deadlines and tiers of a locked, stopped run
    that goes on: they may have come while nothing could be decided. If it
    `was_restored`, people get `GRACE` first, and the jobs that `restored` paused end. No
    window ends within `GRACE` either, nor if the run `was_closed` to decisions. One query
    where there is neither a deadline nor a tier nor, after such a stop, a window.
    """
    requests = ApprovalRequest.objects.filter(
        TIMED, run=run.id, status=RequestStatus.OPEN
    )
    if was_restored:
        replace_jobs(run.id, requests, earliest=read_now() + GRACE)
    else:
        add_missing_jobs(run.id, requests)
    if was_restored or was_closed:
        put_off_windows(run.id, earliest=read_now() + GRACE)


def _meet(passing: Passing) -> bool:
    if not passing.undecided:
        return False
    _decide(passing)
    return True


def _decide(passing: Passing) -> None:
    """Write a decision for each open write, with events, the audit line and the run's
    row; settle the request, and wake the run. A gate whose deadline fails the run
    decides nothing: its request is closed.
    """
    verdict = passing.request.policy["on_deadline"]
    if verdict == "fail":
        _expire(passing)
        return
    rows = passing.undecided
    if verdict == "approve":
        rows = _without_edits(passing)
    # Nobody saw them; each is bound to its revision as a person's decision is.
    decisions: list[Decision] = []
    events: list[NewEvent] = []
    for row in rows:
        decision, event = signed_decision(
            passing.request,
            row,
            _verdict_on(passing, row),
            at=passing.at,
            by_name=BY_DEADLINE,
            proposed_value=decrypted(row, "value"),
        )
        decisions.append(decision)
        events.append(event)
    before = {row.write: row.revision for row in passing.undecided}
    revised = [row for row in rows if row.revision > before[row.write]]
    # The events of the decisions come first, so that their numbers are known.
    for seq, decision in enumerate(decisions, start=passing.run.event_seq + 1):
        decision.event_seq = seq
    statements.insert_rows(
        Decision, sealed_rows.seal_and_encrypt(decisions, passing.protection)
    )
    [state] = load_states([passing.request], passing.protection)
    outcome = state.outcome
    events += texts_changed_events(revised)
    last_seq = _append_events(passing, decisions, events, str(outcome))
    statements.update_rows(
        ApprovalRequest,
        {"id": passing.request.id},
        outcome=outcome,
        status=RequestStatus.SETTLED,
        settled_at=passing.at,
        settled_seq=last_seq,
    )
    writes = [row.write for row in state.writes]
    forget_drafts(passing.run, None, signed=[], settled=writes)
    notify.notify_workers()


def _verdict_on(passing: Passing, row: PendingWrite) -> str:
    """Return what a deadline decides on an open write. What it approved before, and a
    veto kept open, it rejects, so that nothing stays open past its deadline.
    """
    if was_approved(passing.state, row):
        return "reject"
    return verdict_of_deadline(passing.request, row.position)


def _expire(passing: Passing) -> None:
    """Close the request, and wake the run, so that its worker fails it. A run that has
    failed already asks again when it is resumed.
    """
    run = passing.run
    request = passing.request
    event = NewEvent(
        "request_expired",
        {"request": str(request.id)},
        node=request.node,
        task=request.task,
        actor=BY_DEADLINE,
    )
    seq = locked_run.append_locked(run, [event], at=passing.at, **notify.woken())
    audit_log.record_act(
        "request_expired", run, actor=None, seq=seq, request=request.id
    )
    statements.update_rows(
        ApprovalRequest, {"id": request.id}, status=RequestStatus.EXPIRED
    )
    writes = [row.write for row in passing.state.writes]
    forget_drafts(run, None, signed=[], settled=writes)
    notify.notify_workers()


def _without_edits(passing: Passing) -> list[PendingWrite]:
    """Return the open writes as their nodes proposed them: a write that was edited, and
    then signed by too few people, gets another revision with the proposal.
    """
    edited = [row.write for row in passing.undecided if row.author_id is not None]
    if not edited:
        return passing.undecided
    firsts = PendingWrite.objects.filter(write__in=edited, revision=1)
    first_by_write = {first.write: first for first in firsts}
    sealed_rows.verify_rows(first_by_write.values(), passing.protection)
    texts = _texts_without_edits(passing, list(first_by_write.values()))
    _restore_texts(passing, texts)

    rows: list[PendingWrite] = []
    revised: list[PendingWrite] = []
    for row in passing.undecided:
        first = first_by_write.get(row.write)
        if first is not None:
            current = pending_writes.restored(
                row, first, at=passing.at, protection=passing.protection
            )
            pending_writes.put_texts(current, texts, passing.protection)
        elif has_other_texts(row, texts):
            current = pending_writes.retold(
                row, texts=texts, at=passing.at, protection=passing.protection
            )
        else:
            rows.append(row)
            continue
        rows.append(current)
        revised.append(current)
    statements.insert_rows(
        PendingWrite, sealed_rows.seal_and_encrypt(revised, passing.protection)
    )
    return rows


def _texts_without_edits(
    passing: Passing, firsts: Sequence[PendingWrite]
) -> dict[str, Any]:
    """Return title and facts of a request after the writes of these proposals are put
    back to them. One query or more if an edit of another write stays.
    """
    state = passing.state
    has_edits = _has_settled_edits(passing)
    compiled = versions.graph_for(passing.run) if has_edits else None
    if compiled is not None:
        # The proposal's own texts would show the old value beside an edit that counts.
        proposals = {
            first.write: sealed_columns.read_value(first, "value") for first in firsts
        }
        # A deadline acts, even where the terms of the gate fail now.
        with suppress(InvalidValue):
            return request_texts(
                passing.request,
                compiled,
                state.writes,
                proposals,
                lambda: timeline.head_state(passing.run.id),
            )
    shown = sealed_columns.read_value(firsts[0], "shown") or {}
    return {name: shown[name] for name in ("title", "facts") if name in shown}


def _has_settled_edits(passing: Passing) -> bool:
    """Return whether a settled write of the request was edited."""
    open_writes = {row.write for row in passing.undecided}
    return any(
        row.author_id is not None and row.write not in open_writes
        for row in passing.state.writes
    )


def _restore_texts(passing: Passing, texts: Mapping[str, Any]) -> None:
    """Give a request the texts of its proposal back, if an edit changed them."""
    request = passing.request
    packed: dict[str, bytes] = {}
    for name, text in texts.items():
        if not same(sealed_columns.read_value(request, name), text):
            packed[name] = pack_json(text)
    if packed:
        changed = sealed_rows.seal_again(request, passing.protection, **packed)
        request.save(update_fields=changed)


def _append_events(
    passing: Passing,
    decisions: Sequence[Decision],
    about_writes: Sequence[NewEvent],
    outcome: str,
) -> int:
    """Append the events to the run's log, with its wake, and one line to the audit log.
    Return the number of the last event.
    """
    run = passing.run
    request = passing.request
    first_seq = run.event_seq + 1
    settled = {"request": str(request.id), "outcome": outcome}
    event = NewEvent("request_settled", settled, node=request.node, task=request.task)
    last_seq = locked_run.append_locked(
        run,
        [*about_writes, event],
        at=passing.at,
        decisions=run.decisions + len(decisions),
        **notify.woken(),
    )
    audit_log.record_act(
        "deadline_passed",
        run,
        actor=None,
        seq=first_seq,
        # There is no receipt, so the line finds its decisions by their numbers.
        last=first_seq + len(decisions) - 1,
        request=request.id,
        verdicts=dict(Counter(decision.verdict for decision in decisions)),
    )
    return last_seq
