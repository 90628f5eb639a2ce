"""Reports of what came of approved items, by whoever acts on them. Each is a line of the
run's log, which is written once and never changed.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser

from approvals.notice_rows import OUTCOME_REPORTED, write_notices
from approvals.results.reports import LETS_ACT, OutcomeReport
from checkpoints.conf import conf
from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import unknown_thing
from checkpoints.core.outcome_lines import (
    DONE,
    FAILED,
    RESULTS,
    UNKNOWN,
    ReportedOn,
)
from checkpoints.db.clock import read_now
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from orchestrator.asking.approval import Approval, ItemStanding, approval_of
from orchestrator.asking.verbs import LONGEST_ID
from orchestrator.engine.errors import (
    AlreadyReported,
    InvalidValue,
    StaleProposal,
    WrongStatus,
)
from orchestrator.engine.graphs.effect import APPROVED
from orchestrator.graphs import NAME
from orchestrator.run_access.act import locked, name_of, run_to_act_on
from orchestrator.runs.start_for_user import require

MOST_OUTCOMES = 1000
MOST_BAD_REPORTS = 20
"""The most reports about one item before the last, which says that it is done."""
LONGEST_DETAIL = 2000
_NEEDED = {"item", "result", "hash"}
_MEMBERS = {*_NEEDED, "detail"}


class ItemOutcome(NamedTuple):
    """The outcome of one item, as the caller has it. `hash` is that of what it acted on,
    so that no report is taken for one on what was signed later.
    """

    item: str
    result: str
    detail: str
    hash: str


def report(
    id_or_key: UUID | str,
    outcomes: Sequence[Mapping[str, Any]],
    *,
    by: AbstractBaseUser | None = None,
) -> Approval:
    """Record what came of approved items, and return the approval as it stands then.
    `outcomes` are {item, hash, result: done, failed or unknown, detail?}. All of them
    are recorded or none; what is recorded already changes nothing. Where verbs check
    rights, only whoever asked reports, and who may reassign requests.

    Raises `InvalidValue` (names the place), `UnknownThing`, `Erased`, `WrongStatus` (an
    item is not approved, or others are open), `StaleProposal` (the hash is not that
    which was signed), and `AlreadyReported`: something else was. Only another result
    may follow, and none follows done: what failed may have been tried again.
    """
    reported = _checked(outcomes)
    run = run_to_act_on(by, "start_run", id_or_key)
    if run.graph != NAME:
        raise unknown_thing("approval", id_or_key)
    is_other = by is not None and run.started_by_id != by.pk
    if is_other and conf().verbs_ask_rights:
        require(by, "reassign", run=run.id)
    with locked(run.id, by=by) as run:
        approval = approval_of(run)
        new = _new_outcomes(approval, reported)
        if new:
            _record(approval, new, by)
    return approval_of(run) if new else approval


def _checked(outcomes: Any) -> list[ItemOutcome]:
    """Return what a caller says. Raises `InvalidValue`."""
    is_list = isinstance(outcomes, Sequence) and not isinstance(outcomes, str | bytes)
    if not is_list or not 1 <= len(outcomes) <= MOST_OUTCOMES:
        raise InvalidValue(f"outcomes: 1 to {MOST_OUTCOMES:,} of them", path="outcomes")
    by_item: dict[str, ItemOutcome] = {}
    for number, members in enumerate(outcomes):
        path = f"outcomes[{number}]"
        outcome = _checked_outcome(members, path)
        if outcome.item in by_item:
            raise InvalidValue(
                f"{path}.item: {outcome.item} is there twice", path=f"{path}.item"
            )
        by_item[outcome.item] = outcome
    return list(by_item.values())


def _checked_outcome(outcome: Any, path: str) -> ItemOutcome:
    if not isinstance(outcome, Mapping) or not _NEEDED <= {*outcome} <= _MEMBERS:
        names = ", ".join(sorted(_MEMBERS))
        raise InvalidValue(f"{path}: it is an object of {names}", path=path)
    checked_text(outcome["item"], f"{path}.item", most=LONGEST_ID)
    checked_text(outcome["hash"], f"{path}.hash", most=LONGEST_ID)
    checked_text(outcome.get("detail") or "", f"{path}.detail", most=LONGEST_DETAIL)
    if outcome["result"] not in RESULTS:
        raise InvalidValue(
            f"{path}.result: it is none of {', '.join(RESULTS)}", path=f"{path}.result"
        )
    return ItemOutcome(
        outcome["item"],
        outcome["result"],
        outcome.get("detail") or "",
        outcome["hash"],
    )


def _new_outcomes(
    approval: Approval, reported: Collection[ItemOutcome]
) -> list[tuple[ItemStanding, ItemOutcome]]:
    """Return the outcomes that nobody reported yet, with their items. Raises as `report`
    does.
    """
    items = {item.id: item for item in approval.items}
    new: list[tuple[ItemStanding, ItemOutcome]] = []
    for outcome in reported:
        item = items.get(outcome.item)
        if item is None:
            raise InvalidValue(
                f"item: the approval has no {outcome.item}",
                path="item",
                item=outcome.item,
            )
        _require_signed(approval, item, outcome)
        if _is_new(item, outcome):
            new.append((item, outcome))
    return new


def _require_signed(
    approval: Approval, item: ItemStanding, outcome: ItemOutcome
) -> None:
    # Nobody acts on a signed item as long as others are open.
    if approval.state not in LETS_ACT:
        raise WrongStatus(
            f"nobody may act on item {item.id}: its approval is {approval.state}",
            status=approval.run.status,
            item=item.id,
            verdict=item.verdict,
        )
    if item.verdict != APPROVED:
        raise WrongStatus(
            f"nobody may act on item {item.id}: it is {item.verdict or 'open'}",
            status=approval.run.status,
            item=item.id,
            verdict=item.verdict,
        )
    if outcome.hash != item.hash:
        raise StaleProposal(
            f"what people approved of item {item.id} is not what was acted on",
            item=item.id,
            hash=item.hash,
        )


def _is_new(item: ItemStanding, outcome: ItemOutcome) -> bool:
    """Return whether an outcome is to be recorded. Raises `AlreadyReported`."""
    earlier: OutcomeReport | None = item.outcome
    if earlier is None:
        return True
    if (earlier.result, earlier.detail) == (outcome.result, outcome.detail):
        return False
    is_other = earlier.result not in (DONE, outcome.result)
    # Whoever reads the approval reads every line.
    if is_other and (outcome.result == DONE or earlier.number < MOST_BAD_REPORTS):
        return True
    raise AlreadyReported(
        f"item {item.id} was reported as {earlier.result}",
        item=item.id,
        result=earlier.result,
        by=earlier.by,
        at=earlier.at.isoformat(),
    )


def _record(
    approval: Approval,
    new: Sequence[tuple[ItemStanding, ItemOutcome]],
    by: AbstractBaseUser | None,
) -> None:
    """Append a line for each outcome, and a notice if a person should look at it."""
    request = approval.request
    assert request is not None
    at = read_now()
    lines: list[NewEvent] = []
    for item, outcome in new:
        assert item.write is not None
        about = ReportedOn(request.id, item.write, outcome.result)
        facts = {
            "request": str(request.id),
            "write": str(item.write),
            "revision": item.revision,
            "hash": item.hash,
            "result": outcome.result,
            "detail": outcome.detail,
        }
        lines.append(
            NewEvent(
                "outcome_reported",
                facts,
                node=request.node,
                task=str(about),
                actor=name_of(by),
            )
        )
    locked_run.append_locked(approval.run, lines, at=at)
    worst = [result for result in (FAILED, UNKNOWN) if result in _results(new)]
    # Whoever approved is called where something went wrong, once for each report.
    if worst:
        write_notices(request, [(OUTCOME_REPORTED, None)], at=at, outcome=worst[0])


def _results(new: Sequence[tuple[ItemStanding, ItemOutcome]]) -> set[str]:
    return {outcome.result for _, outcome in new}
