"""An approval as whoever asked for it reads it: where it stands, and the verdict on each
item with the value that was signed.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from approvals.gates.request_state import RequestState, load_states
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.core.status import ENDS, STOPPED
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.graphs import REVIEW

OPENING = "opening"
OPEN = "open"
EXPIRED = "expired"


@frozen
class ItemStanding:
    """One item. `verdict` is approved, rejected, or empty as long as it is open; `value`
    the one that the newest revision has, which its `hash` binds. `write` and `hash` are
    empty before people are asked.
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


def approval_of(run: Run) -> Approval:
    """Return the approval of a run of the shipped graph. Four queries at most, however
    many items it has. Raises `TamperedRow`, `WrongKey`: nothing is shown that is not as
    it was written.
    """
    question = read_value(run, "input")
    request = newest_requests([run.id]).get(run.id)
    if request is None:
        items = tuple(_unasked(item) for item in question["items"])
        return Approval(run, state_of(run, None), question, items)
    # The row of the run is read once.
    request.run = run
    [state] = load_states([request], protection_of(run))
    return Approval(
        run, state_of(run, request), question, _items(question, state), request
    )


def newest_requests(runs: Sequence[UUID]) -> dict[UUID, ApprovalRequest]:
    """Return the request that counts for each of these runs: that of its newest line,
    and there the one that asked last. One query.
    """
    rows = ApprovalRequest.objects.filter(run__in=runs, node=REVIEW)
    newest: dict[UUID, ApprovalRequest] = {}
    for row in rows.order_by("line", "ordinal"):
        newest[row.run_id] = row
    return newest


def state_of(run: Run, request: ApprovalRequest | None) -> str:
    """Return the state of an approval in one word, from columns of its rows."""
    if request is not None and request.outcome:
        return request.outcome
    if request is not None and request.status == RequestStatus.EXPIRED:
        return EXPIRED
    if run.status in ENDS | STOPPED:
        return run.status
    if request is not None and request.status == RequestStatus.OPEN:
        return OPEN
    return OPENING


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
    question: Mapping[str, Any], state: RequestState
) -> tuple[ItemStanding, ...]:
    """Return the items with their standings; each is the write at its position."""
    decisions: dict[UUID, list[Decision]] = {}
    for row in sorted(state.decisions, key=_number):
        decisions.setdefault(row.write, []).append(row)
    items = []
    for item, write in zip(question["items"], state.writes, strict=True):
        verdict = state.standings[write.write].verdict
        items.append(_standing(item, write, verdict, decisions.get(write.write, [])))
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
        str((read_value(row, "shown") or {}).get("label") or row.label),
        item["effect"],
        item["value_schema"],
        proposed=item["value"],
        value=read_value(row, "value"),
        write=row.write,
        hash=row.hash,
        verdict=verdict,
        edited=verdict == APPROVED and row.author_id is not None,
        decisions=tuple(decisions),
    )
