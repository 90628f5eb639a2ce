"""The question that a gate had asked before it asks again, who decided it, and what
came of it. A second asking is never shown as a first. Reads only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from approvals.gates.acted_on import states_of
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, Decision, RequestStatus
from approvals.results.effect_results import (
    EffectResult,
    are_sound,
    effect_results,
    failure_in_words,
)
from orchestrator.engine.graphs.effect import PARTIAL

MOST_LISTED = 20
"""The most requests of one run of which it is said what was asked before."""
MOST_FAILURES = 3
"""The most failed effects of one asking whose errors are read."""


@dataclass(frozen=True, slots=True)
class EffectEnding:
    """The end of one node, with the error if it failed. Unless `is_sound`, a row that
    says so is not as it was written.
    """

    result: EffectResult
    error: str = ""
    is_sound: bool = True

    @property
    def is_bad(self) -> bool:
        return self.result.is_bad or not self.is_sound


@dataclass(frozen=True, slots=True)
class EarlierAsking:
    """The newest decided request of the same gate and place in a fan-out, the decisions
    of people that count for how it ended, and what came of it.
    """

    request: ApprovalRequest
    decisions: list[Decision] = field(default_factory=list)
    endings: list[EffectEnding] = field(default_factory=list)


def earlier_askings(
    requests: Sequence[ApprovalRequest],
) -> dict[UUID, EarlierAsking | None]:
    """Return what was asked before, for those of these requests of one run that are not
    the first of their gate; None for more than `MOST_LISTED` of them. No query if the
    gates say that all are first; else eight, one for each further line, and two for
    each effect after them.

    Raises `TamperedRow` and `WrongKey`.
    """
    again = [request for request in requests if is_again(request)]
    earlier = _newest_decided(again) if again else {}
    read = set(list(earlier.values())[:MOST_LISTED])
    states = {state.request.id: state for state in states_of(read)}
    for state in states.values():
        # The run is the one that the callers have.
        state.request.run = again[0].run
    results = effect_results([state.request for state in states.values()])
    askings: dict[UUID, EarlierAsking | None] = {}
    for request_id, earlier_id in earlier.items():
        askings[request_id] = None
        if earlier_id in states:
            state = states[earlier_id]
            endings = endings_of(state.request, results[earlier_id])
            askings[request_id] = EarlierAsking(
                state.request, _deciding(state), endings
            )
    return askings


def is_again(request: ApprovalRequest) -> bool:
    """Return whether a gate may have asked before it asked this: on an earlier visit,
    for the same task, or on a line that was left.
    """
    return request.visit > 1 or request.ordinal > 0 or request.line > 1


def _newest_decided(requests: Sequence[ApprovalRequest]) -> dict[UUID, UUID]:
    """Return the id of the newest request of the same gate that was decided before each
    of these requests of one run was asked. One query of columns.
    """
    rows = ApprovalRequest.objects.filter(
        run=requests[0].run_id,
        node__in={request.node for request in requests},
        status=RequestStatus.APPLIED,
    )
    columns = ("node", "index", "kind", "settled_at", "id")
    by_place: dict[tuple[str, int, str], list[tuple[datetime, UUID]]] = {}
    for node, index, kind, settled_at, id in rows.order_by().values_list(*columns):
        if settled_at is not None:
            by_place.setdefault((node, index, kind), []).append((settled_at, id))
    newest: dict[UUID, UUID] = {}
    for request in requests:
        place = (request.node, request.index, request.kind)
        before = [
            decided
            for decided in by_place.get(place, ())
            if decided[0] < request.opened_at
        ]
        if before:
            newest[request.id] = max(before)[1]
    return newest


def _deciding(state: RequestState) -> list[Decision]:
    """Return the last decision of each whose signature counts for how a request ended,
    and that of the deadline if it ended it.
    """
    counting: set[int | None] = set()
    for standing in state.standings.values():
        if state.outcome in (standing.verdict, PARTIAL):
            counting.update(standing.by)
    last: dict[int | None, Decision] = {}
    for decision in state.decisions:
        if decision.voter in counting:
            last[decision.voter] = decision
    return list(last.values())


def endings_of(
    request: ApprovalRequest, results: Iterable[EffectResult]
) -> list[EffectEnding]:
    """Return what came of a request, with the errors of its first failed effects: three
    queries for each effect at most. What does not verify is said to be unreadable.
    """
    endings: list[EffectEnding] = []
    failures = 0
    for result in results:
        error = ""
        if result.has_failed and failures < MOST_FAILURES:
            failures += 1
            error = failure_in_words(request, result)
        endings.append(EffectEnding(result, error, is_sound=are_sound(request, result)))
    return endings
