"""The state of a run's requests: their writes, decisions and verdicts, read together
and verified. Signing, settling, re-basing and the pages use it, so that nobody decides
on a row that was tampered with, and nothing applies one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from uuid import UUID

from django.db.models import Count, QuerySet

from approvals.gates.renewals import AUTHORITY_KIND, FIRST_POSITION
from approvals.models import (
    ANSWERS,
    VETO,
    ApprovalRequest,
    Decision,
    RequestStatus,
)
from checkpoints.core.visible_json import json_text
from checkpoints.db import query_cache
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.verdicts import (
    Given,
    Held,
    Policy,
    Standing,
    judge,
    outcome,
)

_DECIDES = (RequestStatus.OPEN, RequestStatus.SETTLED)
"""Statuses in which the decisions of a request count for what is held."""


@frozen
class RequestState:
    """One request with its writes as they stand, in order of position, and the
    decisions on them; apart from these the answers that count for nobody. Where verdicts
    were kept, `earlier` are the requests in which they were made, by id. `was_closed`:
    the request was closed after its row had been read, and its writes may be those of
    the one that replaced it.
    """

    request: ApprovalRequest
    writes: tuple[PendingWrite, ...]
    standings: dict[UUID, Standing]
    decisions: tuple[Decision, ...] = ()
    answers: tuple[Decision, ...] = ()
    was_closed: bool = False
    earlier: Mapping[UUID | None, ApprovalRequest] = field(default_factory=dict)

    def request_of(self, decision: Decision) -> ApprovalRequest:
        """Return the request in which one of the decisions was made."""
        return self.earlier.get(decision.request_id, self.request)

    @property
    def votes(self) -> list[Given]:
        """Return the decisions as the engine judges them."""
        vetoes = [row for row in self.answers if row.verdict == VETO]
        return [
            Given(
                row.write,
                row.revision,
                row.verdict,
                row.voter,
                row.event_seq,
                by_deadline=row.by_id is None and row.by_deadline,
                delegator=row.delegator_id,
            )
            for row in (*self.decisions, *vetoes)
        ]

    @property
    def task(self) -> Task:
        return Task(self.request.node, self.request.visit, self.request.index)

    @property
    def outcome(self) -> str | None:
        """Return approved, rejected or partial once each write is settled; None
        before.
        """
        return outcome(self.standings.values())


def policy_of(request: ApprovalRequest) -> Policy:
    """Return the rules that the request was opened under."""
    policy = request.policy
    return Policy(
        policy["quorum"],
        policy["reject_quorum"],
        policy["four_eyes"],
        policy["all_or_nothing"],
        # A request of an older version has none.
        policy.get("needs", {}),
        policy.get("skip", False),
    )


def why_of(request: ApprovalRequest) -> str:
    """Return why people were asked; empty where nothing says so. Raises `TamperedRow`,
    `WrongKey`.
    """
    why = sealed_columns.read_value(request, "why") or ""
    # A bundle may bring an error as an object.
    return why if isinstance(why, str) else json_text(why)


def load_states(
    requests: Sequence[ApprovalRequest],
    protection: Protection,
    *,
    decided: bool = True,
) -> list[RequestState]:
    """Return the state of these requests, all of one run and line. Two queries, however
    many there are, one if their run is known to have no decision (`decided`), and a
    further one if people were asked again about what was settled in part. One more for
    a request that was closed after its row had been read, and has its new status then.

    Raises `TamperedRow` and `WrongKey` if one of the rows is not as it was written.
    """
    if not requests:
        return []
    # Read before the writes: if an edit is signed in the meantime, its decision may be
    # missing here, but never its revision.
    decisions_by_request = _decisions_by_request(requests) if decided else {}

    keeping = [request for request in requests if request.policy.get("kept")]
    earlier = _earlier_decisions(keeping) if keeping else {}
    run_id = requests[0].run_id
    line = requests[0].line
    visits = [(request.node, request.visit) for request in requests]
    # Each renewal has the write at its own position; all others share the writes of
    # their task.
    writes_by_place: dict[tuple[str, int], list[PendingWrite]] = {}
    for row in pending_writes.of_tasks(run_id, line, visits):
        place = max(row.position, FIRST_POSITION - 1)
        writes_by_place.setdefault((row.task, place), []).append(row)

    states = []
    for request in requests:
        decisions = [
            *earlier.get(request.id, ()),
            *decisions_by_request.get(request.id, ()),
        ]
        states.append(_state_of(request, writes_by_place, decisions, protection))
    return states


def _decisions_by_request(
    requests: Sequence[ApprovalRequest],
) -> dict[UUID | None, list[Decision]]:
    decisions: dict[UUID | None, list[Decision]] = {}
    ids = query_cache.padded([request.id for request in requests])
    for decision in query_cache.select(Decision, _query_of_requests, *ids):
        decisions.setdefault(decision.request_id, []).append(decision)
    return decisions


def _earlier_decisions(
    keeping: Sequence[ApprovalRequest],
) -> dict[UUID, list[Decision]]:
    """Return the decisions of earlier requests that count in these, by the id of the
    request. Each of these keeps verdicts: the policy has the positions of the writes
    that were settled when a deadline closed the earlier one, and since which ordinal
    decisions count: those before a re-opening do not. Each has its request. One query.
    """
    rows = Decision.objects.select_related("request").filter(
        run=keeping[0].run_id,
        line=keeping[0].line,
        task__in={request.task for request in keeping},
        request__isnull=False,
    )
    rows = rows.order_by("event_seq")
    earlier: dict[UUID, list[Decision]] = {}
    for decision in rows:
        for request in keeping:
            if decision.task == request.task and _is_counted(decision, request):
                earlier.setdefault(request.id, []).append(decision)
    return earlier


def _is_counted(decision: Decision, request: ApprovalRequest) -> bool:
    """Return whether a decision in a request of a task counts in this later one of it."""
    first = kept_from(request.policy).get(decision.position)
    made_in = decision.request
    if first is None or made_in is None:
        return False
    return first <= made_in.ordinal < request.ordinal


def kept_from(policy: Mapping[str, Any]) -> dict[int, int]:
    """Return, by position of a write whose verdict a request keeps, the ordinal of the
    first request whose decisions on it count.
    """
    positions = policy.get("kept", ())
    # A policy of an older version has one ordinal for all, or none.
    same = [policy.get("kept_since", 0)] * len(positions)
    ordinals = policy.get("kept_from", same)
    return dict(zip(positions, ordinals, strict=False))


def _query_of_requests(*requests: UUID) -> "QuerySet[Decision]":
    return Decision.objects.filter(request__in=requests)


def _state_of(
    request: ApprovalRequest,
    writes_by_place: Mapping[tuple[str, int], Sequence[PendingWrite]],
    decisions: Sequence[Decision],
    protection: Protection,
) -> RequestState:
    place = FIRST_POSITION - 1
    if request.kind == AUTHORITY_KIND:
        place = FIRST_POSITION + request.ordinal
    writes = writes_by_place.get((request.task, place), [])
    earlier: dict[UUID | None, ApprovalRequest] = {}
    if request.policy.get("kept"):
        earlier = _earlier_requests(request, decisions)
    rows = [request, *writes, *decisions, *earlier.values()]
    sealed_rows.verify_rows(rows, protection)
    was_deciding = request.status in _DECIDES
    _require_whole(request, writes, decisions)
    was_closed = was_deciding and request.status not in _DECIDES
    signed = tuple(row for row in decisions if row.verdict not in ANSWERS)
    answers = tuple(row for row in decisions if row.verdict in ANSWERS)
    state = RequestState(
        request, tuple(writes), {}, signed, answers, was_closed, earlier
    )
    held = [Held(row.write, row.revision, row.author_id, row.channel) for row in writes]
    return replace(state, standings=judge(held, state.votes, policy_of(request)))


def _earlier_requests(
    request: ApprovalRequest, decisions: Iterable[Decision]
) -> dict[UUID | None, ApprovalRequest]:
    """Return the earlier requests in which some of these decisions were made, by id."""
    earlier: dict[UUID | None, ApprovalRequest] = {}
    for decision in decisions:
        # Its own decisions are read without it.
        if decision.request_id == request.id or decision.request is None:
            continue
        earlier[decision.request_id] = decision.request
    return earlier


def _require_whole(
    request: ApprovalRequest,
    writes: Sequence[PendingWrite],
    decisions: Iterable[Decision],
) -> None:
    """Raise `TamperedRow` if rows are missing: rows that verify can still be too few if
    a write, or a revision with a decision, was deleted.
    """
    name = sealed_rows.name_of(request)
    if len(writes) != request.writes:
        raise TamperedRow(
            f"{name} asks about {request.writes} writes, and {len(writes)} are there",
            row=name,
        )
    # Otherwise a request that was closed could be put back, and decide under its rules
    # what people are asked about under others.
    if request.status in _DECIDES:
        for row in writes:
            if row.policy_hash == request.policy_hash or _is_kept(request, row):
                continue
            if _note_closed(request):
                break
            raise TamperedRow(
                f"{name} has another policy than its write {row.write}", row=name
            )
    newest = {row.write: row.revision for row in writes}
    for decision in decisions:
        if decision.revision > newest.get(decision.write, 0):
            raise TamperedRow(
                f"{name} has a decision on revision {decision.revision} of write "
                f"{decision.write}, which is not there",
                row=name,
            )


def _note_closed(request: ApprovalRequest) -> bool:
    """Return whether a request was closed after its row had been read, and put its new
    status into the row. One query.
    """
    # The rows are read without a lock, so a re-opening may commit between the queries.
    now = ApprovalRequest.objects.filter(id=request.id).values_list("status", flat=True)
    status = now.first()
    if status is None or status in _DECIDES:
        return False
    request.status = status
    return True


def _is_kept(request: ApprovalRequest, row: PendingWrite) -> bool:
    """Return whether a write was settled under the policy of an earlier request."""
    return row.position in request.policy.get("kept", ())


def require_all_decisions(run: UUID, recorded: int, *, exactly: bool = False) -> None:
    """Raise `TamperedRow` if a run has fewer decisions than its row records, or
    (`exactly`, under its lock) more.
    """
    require_count(run, _count_decisions(run), recorded, exactly=exactly)


def require_count(
    run: UUID, count: int, recorded: int, *, exactly: bool = False
) -> None:
    """Raise as `require_all_decisions` does, for decisions that were counted."""
    # Without the lock, others may have signed since the run's row was read.
    if count < recorded or (exactly and count != recorded):
        raise TamperedRow(
            f"run {run} has {count} decisions, and its row says {recorded}",
            run=str(run),
        )


def _count_decisions(run: UUID) -> int:
    records = query_cache.select_values(query_count, run)
    return int(records[0][0]) if records else 0


def query_count(run: UUID) -> "QuerySet[Any, Any]":
    """Return the query for the number of a run's decisions: no row if it has none."""
    decisions = Decision.objects.filter(run=run).order_by().values("run")
    counts: QuerySet[Any, Any] = decisions.annotate(count=Count("id"))
    return counts.values_list("count")
