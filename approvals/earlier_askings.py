"""What a gate had asked before it asks again, who decided that, and what came of it. A
second asking is never shown as a first. Reads only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q

from approvals.effect_results import EffectResult, effect_results, failure_in_words
from approvals.gates.acted_on import states_of
from approvals.gates.request_state import RequestState
from approvals.models import ApprovalRequest, Decision, RequestStatus

MOST_FAILURES = 3
"""The most failed effects of one asking whose errors are read."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What came of one node, with the error if it failed."""

    result: EffectResult
    error: str = ""

    @property
    def is_bad(self) -> bool:
        return self.result.is_bad


@dataclass(frozen=True, slots=True)
class EarlierAsking:
    """The newest decided request of the same gate and place in a fan-out, the decisions
    of people that count for how it ended, and what came of it.
    """

    request: ApprovalRequest
    decisions: list[Decision] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)


def earlier_askings(requests: Sequence[ApprovalRequest]) -> dict[UUID, EarlierAsking]:
    """Return what was asked before, for those of these requests of one run that are not
    the first of their gate. No query if the gates say that all are first; else six, one
    for each further line, and one for each effect that failed.

    Raises `TamperedRow` and `WrongKey`.
    """
    again = [request for request in requests if is_again(request)]
    earlier = _newest_decided(again) if again else {}
    states = {state.request.id: state for state in states_of(set(earlier.values()))}
    # The run is the one that the callers have.
    for request in again:
        for state in states.values():
            state.request.run = request.run
    results = effect_results([state.request for state in states.values()])
    askings: dict[UUID, EarlierAsking] = {}
    for request in again:
        if request.id in earlier:
            state = states[earlier[request.id]]
            endings = endings_of(state.request, results[state.request.id])
            askings[request.id] = EarlierAsking(
                state.request, _deciding(state), endings
            )
    return askings


def is_again(request: ApprovalRequest) -> bool:
    """Return whether a gate may have asked before it asked this: on an earlier visit,
    for the same task, or on a line that was left.
    """
    return request.visit > 1 or request.ordinal > 0 or request.line > 1


def _newest_decided(requests: Iterable[ApprovalRequest]) -> dict[UUID, UUID]:
    """Return the id of the newest request of the same gate that was decided before each
    of these was asked. One query.
    """
    condition = Q()
    for request in requests:
        condition |= Q(run=request.run_id, node=request.node, index=request.index)
    rows = ApprovalRequest.objects.filter(condition, status=RequestStatus.APPLIED)
    columns = ("id", "node", "index", "kind", "opened_at")
    decided = list(rows.order_by("opened_at", "id").values_list(*columns))
    newest: dict[UUID, UUID] = {}
    for request in requests:
        place = (request.node, request.index, request.kind)
        for id, *own_place, opened_at in decided:
            # They are in order, so a later one replaces an earlier one.
            if tuple(own_place) == place and opened_at < request.opened_at:
                newest[request.id] = id
    return newest


def _deciding(state: RequestState) -> list[Decision]:
    """Return the last decision of each person who decided on the writes of a request."""
    last: dict[int | None, Decision] = {}
    for decision in state.decisions:
        last[decision.by_id] = decision
    return list(last.values())


def endings_of(
    request: ApprovalRequest, results: Iterable[EffectResult]
) -> list[Ending]:
    """Return what came of a request, with the errors of its first failed effects: one
    query for each of these. Raises `TamperedRow` and `WrongKey`.
    """
    endings: list[Ending] = []
    failures = 0
    for result in results:
        error = ""
        if result.failed is not None and failures < MOST_FAILURES:
            failures += 1
            error = failure_in_words(request, result)
        endings.append(Ending(result, error))
    return endings
