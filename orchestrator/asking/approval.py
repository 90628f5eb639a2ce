"""An approval as whoever asked for it reads it: where it stands, and the verdict on each
item with the value that was signed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from approvals.gates.request_state import RequestState, load_states
from approvals.models import ApprovalRequest, Decision, RequestStatus
from approvals.results.reports import LETS_ACT, OutcomeReport, reports_on
from approvals.results.rounds import lines_of
from checkpoints.core.status import ENDS, STOPPED
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.run_row import input_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import Erased
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.graphs import REVIEW

OPENING = "opening"
OPEN = "open"
EXPIRED = "expired"
_OF_STATE = ("run", "line", "ordinal", "superstep", "status", "outcome")
"""The columns of a request that a list reads: none that has values of people."""


@frozen
class ItemStanding:
    """One item. `verdict` is approved, rejected, or empty as long as it is open; `value`
    the one that the newest revision has, which its `hash` binds. `write` and `hash` are
    empty before people are asked. `outcome` is the newest that the caller reported.
    """

    id: str
    label: str
    effect: str | None
    schema: Any
    proposed: Any
    value: Any
    write: UUID | None = None
    hash: str = ""
    verdict: str = ""
    edited: bool = False
    decisions: tuple[Decision, ...] = ()
    revision: int = 0
    outcome: OutcomeReport | None = None

    @property
    def reason(self) -> str:
        """Return the reason that the last decision gave."""
        reasons = [read_value(row, "reason") or "" for row in self.decisions]
        return reasons[-1] if reasons else ""


@frozen
class Approval:
    """An approval with its items, in the order in which they were named. `request` is
    None before people are asked.
    """

    run: Run
    state: str
    question: Mapping[str, Any]
    items: tuple[ItemStanding, ...]
    request: ApprovalRequest | None = None

    @property
    def reports(self) -> bool:
        """Return whether the caller said that they would report what came of it."""
        return bool(self.question.get("reports"))

    @property
    def is_decided(self) -> bool:
        """Return whether people are no longer asked."""
        return self.state not in (OPENING, OPEN)

    @property
    def is_reported(self) -> bool:
        """Return whether something was reported of each item on which the caller may
        act.
        """
        if self.state not in LETS_ACT:
            return True
        return all(item.outcome for item in self.items if item.verdict == APPROVED)


def approval_of(run: Run) -> Approval:
    """Return the approval of a run of the shipped graph. Six queries at most, however
    many items it has. Raises `Erased`, and `TamperedRow` or `WrongKey`: nothing is shown
    that is not as it was written.
    """
    _refuse_erased(run)
    question = input_of(run)
    request = newest_requests([run]).get(run.id)
    if request is None:
        items = tuple(_unasked(item) for item in question["items"])
        return Approval(run, state_of(run, None, outcome=None), question, items)
    # The row of the run is read once.
    request.run = run
    [state] = load_states([request], protection_of(run))
    reports = reports_on(request) if state.outcome in LETS_ACT else {}
    return Approval(
        run,
        # The column of the outcome has no seal, what people signed has.
        state_of(run, request, outcome=state.outcome),
        question,
        _items(question, state, reports),
        request,
    )


def listed_states(runs: Sequence[Run]) -> list[str]:
    """Return the state of each approval from columns of its rows, unverified. Two
    queries, however many there are.
    """
    requests = newest_requests(runs, only=_OF_STATE)
    states = []
    for run in runs:
        request = requests.get(run.id)
        outcome = None if request is None else request.outcome
        states.append(state_of(run, request, outcome=outcome))
    return states


def newest_requests(
    runs: Sequence[Run], *, only: Sequence[str] = ()
) -> dict[UUID, ApprovalRequest]:
    """Return the request that counts for each of these runs, by id: the one that asked
    last on the way to where the run stands now. `only` names the columns that are read,
    where not all are. Two queries.
    """
    ids = [run.id for run in runs]
    lines = lines_of(ids)
    reaches = {run.id: lines.past(run.id, run.line) for run in runs}
    rows = ApprovalRequest.objects.filter(run__in=ids, node=REVIEW)
    if only:
        rows = rows.only(*only)
    newest: dict[UUID, ApprovalRequest] = {}
    for row in rows.order_by("line", "ordinal"):
        # A rewind abandons what was asked after its departure.
        if row.superstep <= reaches[row.run_id].get(row.line, -1):
            newest[row.run_id] = row
    return newest


def state_of(run: Run, request: ApprovalRequest | None, *, outcome: str | None) -> str:
    """Return the state of an approval in one word. `outcome` is that of its request, if
    it has one.
    """
    if outcome:
        return outcome
    if request is not None and request.status == RequestStatus.EXPIRED:
        return EXPIRED
    if run.status in ENDS | STOPPED:
        return run.status
    if request is not None and request.status == RequestStatus.OPEN:
        return OPEN
    return OPENING


def _refuse_erased(run: Run) -> None:
    """Raise `Erased` if values of the run were erased: what people were asked can no
    longer be read.
    """
    if run.erasure is not None:
        raise Erased(
            f"values of approval {run.key} were erased",
            run=str(run.id),
            record=str(run.erasure),
        )


def _unasked(item: Mapping[str, Any]) -> ItemStanding:
    return ItemStanding(
        item["id"],
        item["label"] or item["id"],
        item["effect"],
        item["value_schema"],
        proposed=item["value"],
        value=item["value"],
    )


def _items(
    question: Mapping[str, Any],
    state: RequestState,
    reports: Mapping[UUID, OutcomeReport],
) -> tuple[ItemStanding, ...]:
    """Return the items with their standings; each is the write at its position."""
    decisions: dict[UUID, list[Decision]] = {}
    for row in sorted(state.decisions, key=_number):
        decisions.setdefault(row.write, []).append(row)
    items = []
    for item, write in zip(question["items"], state.writes, strict=True):
        verdict = state.standings[write.write].verdict
        standing = _standing(item, write, verdict, decisions.get(write.write, []))
        items.append(replace(standing, outcome=reports.get(write.write)))
    return tuple(items)


def _number(row: Decision) -> int:
    return row.event_seq


def _standing(
    item: Mapping[str, Any],
    row: PendingWrite,
    verdict: str,
    decisions: Sequence[Decision],
) -> ItemStanding:
    return ItemStanding(
        item["id"],
        item["label"] or item["id"],
        item["effect"],
        item["value_schema"],
        proposed=item["value"],
        value=read_value(row, "value"),
        write=row.write,
        hash=row.hash,
        verdict=verdict,
        edited=verdict == APPROVED and row.author_id is not None,
        decisions=tuple(decisions),
        revision=row.revision,
    )
