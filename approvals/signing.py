"""The arithmetic of one signing: reads what was posted, and weighs each item against
the write as it stands.

Builds rows, but writes none. `approvals.reviews` calls it under the locks of the run
and its requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from approvals import permissions
from approvals.confirmation import (
    Confirmation,
    needed_for,
    own_assertion,
    require_confirmation,
)
from approvals.gates.edited_texts import (
    has_other_texts,
    request_texts,
    shown_after_edit,
)
from approvals.gates.lost_version import require_signable
from approvals.gates.request_state import RequestState, policy_of
from approvals.models import (
    BY_DEADLINE,
    NO_AUTO,
    VETO,
    ApprovalRequest,
    Decision,
    Delegation,
    RequestClaim,
    RequestStatus,
)
from approvals.passkey_challenges import verified_assertion
from approvals.people import claims, fresh_logins
from approvals.people.parts import others_who_took_part
from approvals.people.sightings import Revision, require_considered
from checkpoints import timeline, versions
from checkpoints.conf import conf
from checkpoints.core.ids import uuid7, uuid_of
from checkpoints.core.strict_json import shown_key
from checkpoints.event_log import NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite, Run
from checkpoints.models.pending_write import RevisionReason
from checkpoints.sealing.sealed_columns import pack_json, read_bytes, read_value
from checkpoints.sealing.sealed_rows import Protection, decrypted, protection_of
from orchestrator.engine.errors import (
    AlreadyDecided,
    ConfirmationRequired,
    CountersignError,
    IncompatibleGraph,
    InvalidValue,
    NotAReviewer,
    PayloadTooLarge,
    StaleProposal,
    UnknownThing,
)
from orchestrator.engine.gates.verdicts import (
    EXCLUDED,
    NOT_SKIPPABLE,
    Given,
    Held,
    Standing,
    excludes,
    judge,
    outcome,
)
from orchestrator.engine.graphs.call import is_authority
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.confirmation import LOG_IN
from orchestrator.engine.graphs.effect import REJECTED
from orchestrator.engine.graphs.question import NOT_ANSWERED, is_unanswered
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.values import canonical

VERDICTS = ("approve", "reject", "edit", "skip")
DECIDES_NO_VALUE = ("reject", "skip", VETO, NO_AUTO)
"""The verdicts after which no value is applied."""
LONGEST_REASON = 10_000
NOBODY_LEFT = (
    "Those for whom you decide have decided this already, or may not decide it, so your "
    "signature would count for nobody."
)
_FIELDS = {"write", "hash", "verdict", "value", "reason"}


@dataclass(frozen=True, slots=True)
class Item:
    """One posted decision."""

    write: UUID
    hash: str
    verdict: str
    value: Any
    reason: str


@dataclass(slots=True)
class Signing:
    """One signing under way.

    `requests_by_write` are the requests of all writes that it decides. `counted` are
    the items that count, in their order; `revised` the next revisions that it makes, by
    write; `texts` the new title and facts of requests, by id; `checked` the requests
    whose reviewer the signer is known to be; `passed_on` the delegations by which the
    signer decides requests for others, by request, and `used` the one that counts for a
    write; `claims` those on these requests, by request; `settled` the writes that are no
    longer open; `confirmation` is how the signer has just shown who they are; `confirmed_by`
    the method of it that was accepted, empty if none was; `assertion` what their
    passkey signed.
    """

    run: Run
    by: Any
    at: datetime
    requests_by_write: dict[UUID, RequestState]
    claims: Mapping[UUID, RequestClaim] = field(default_factory=dict)
    confirmation: Confirmation | None = None
    confirmed_by: str = ""
    assertion: dict[str, Any] | None = None
    counted: list[Item] = field(default_factory=list)
    revised: dict[UUID, PendingWrite] = field(default_factory=dict)
    texts: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    receipt: list[dict[str, Any]] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    checked: set[UUID] = field(default_factory=set)
    passed_on: dict[UUID, tuple[Delegation, ...]] = field(default_factory=dict)
    used: dict[UUID, Delegation] = field(default_factory=dict)
    settled: set[UUID] = field(default_factory=set)

    @property
    def requests(self) -> list[RequestState]:
        by_id = {state.request.id: state for state in self.requests_by_write.values()}
        return list(by_id.values())

    @property
    def protection(self) -> Protection:
        return protection_of(self.run)


# Reading what was posted.


def parse_decisions(decisions: Sequence[Mapping[str, Any]]) -> list[Item]:
    """Return the posted decisions, checked for form. Raises `InvalidValue` naming the
    place, e.g. `decisions[2].verdict`.
    """
    # In Python, a text is a sequence too.
    is_list = isinstance(decisions, Sequence) and not isinstance(decisions, str | bytes)
    if not is_list or not decisions:
        raise InvalidValue(
            "decisions must be a list with at least one decision", path="decisions"
        )
    items = [
        _parse_item(f"decisions[{index}]", posted)
        for index, posted in enumerate(decisions)
    ]
    if len({item.write for item in items}) < len(items):
        raise InvalidValue("one act decides each write once", path="decisions")
    return items


def _parse_item(path: str, posted: Any) -> Item:
    if not isinstance(posted, Mapping):
        raise InvalidValue(f"{path} must be an object", path=path)
    _require_known_fields(path, posted)
    verdict = posted.get("verdict")
    if verdict not in VERDICTS:
        raise _invalid(path, "verdict", "must be approve, reject, edit or skip")
    shown_hash = posted.get("hash")
    if not isinstance(shown_hash, str) or not shown_hash:
        raise _invalid(path, "hash", "must be the hash of what was shown")
    reason = posted.get("reason") or ""
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise _invalid(
            path, "reason", f"must be text of at most {LONGEST_REASON:,} characters"
        )
    _require_value_with_edit(path, verdict, posted)
    item = Item(
        write=uuid_of(posted.get("write"), "write"),
        hash=shown_hash,
        verdict=verdict,
        value=posted.get("value"),
        reason=reason,
    )
    _require_json(path, item)
    return item


def _require_known_fields(path: str, posted: Mapping[Any, Any]) -> None:
    unknown = sorted(shown_key(str(name)) for name in set(posted) - _FIELDS)
    if unknown:
        raise InvalidValue(
            f"{path} has unknown fields: {', '.join(unknown)}",
            path=f"{path}.{unknown[0]}",
        )


def _require_value_with_edit(
    path: str, verdict: str, posted: Mapping[Any, Any]
) -> None:
    if verdict != "edit" and posted.get("value") is not None:
        raise _invalid(path, "value", "goes with an edit only")
    # An edit may well set null, but it has to say so.
    if verdict == "edit" and "value" not in posted:
        raise _invalid(path, "value", "is missing: an edit brings a value")


def _invalid(path: str, name: str, fault: str) -> InvalidValue:
    return InvalidValue(f"{path}.{name} {fault}", path=f"{path}.{name}")


def _require_json(path: str, item: Item) -> None:
    """Raise `InvalidValue`, naming write and place, if what was posted has no canonical
    form.
    """
    for name in ("value", "reason"):
        try:
            canonical.dumps(getattr(item, name))
        except InvalidValue as error:
            reason = str(error.facts["reason"])
            place = _place_inside(f"{path}.{name}", str(error.facts["path"]))
            raise InvalidValue(
                f"{place} {reason}", path=place, reason=reason, write=str(item.write)
            ) from error


def _place_inside(path: str, inner: str) -> str:
    if not inner or inner.startswith("["):
        return f"{path}{inner}"
    return f"{path}.{inner}"


def require_own(items: Sequence[Item], own: set[UUID], *, request: UUID) -> None:
    """Raise `UnknownThing` unless each write belongs to the request."""
    for item in items:
        if item.write not in own:
            raise UnknownThing(
                f"request {request} has no write {item.write}", write=str(item.write)
            )


def body_hash(run: UUID, items: Sequence[Item], protection: Protection) -> str:
    """Return the hash of what was posted, whatever the order of its keys."""
    body = [
        [str(item.write), item.hash, item.verdict, item.value, item.reason]
        for item in items
    ]
    # With the run, so that a key that is used again for another run is a conflict.
    return protection.digest(canonical.dumps([str(run), body]))


# Weighing each decision against its write as it stands.


@dataclass(frozen=True, slots=True)
class _ItemResult:
    """An item and its write as it stands. `result` is empty if the item counts; else
    `facts` say why it does not.
    """

    item: Item
    row: PendingWrite
    result: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        return not self.result


def apply_decisions(act: Signing, items: Sequence[Item]) -> None:
    """Count each decision, or note why it does not count. Raises if the whole act must
    be undone.
    """
    results = weigh_decisions(act, items)
    states = act.requests_by_write.values()
    # Most gates ask for nothing, and then no sighting is read.
    if any("considered" in state.request.policy for state in states):
        require_considered(act.run, act.by, _to_be_considered(act))
    _require_confirmed(act, results)

    # Decisions are recorded last, because each is about the revision that the edits of
    # this act have led to.
    for result in results:
        if result.counts:
            _record_decision(act, result.row, result.item)
        else:
            _note(act, result.item, result.row, result.result, **result.facts)


def weigh_decisions(act: Signing, items: Sequence[Item]) -> list[_ItemResult]:
    """Return which decisions count, and make the revisions that they lead to. Records
    nothing. Raises if the whole act must not stand.
    """
    results = [_judge_item(act, item) for item in items]
    act.counted = [result.item for result in results if result.counts]
    if act.counted:
        require_signable(act.run)
    _revise_edited_writes(act, results)
    return results


def _judge_item(act: Signing, item: Item) -> _ItemResult:
    state = act.requests_by_write.get(item.write)
    if state is None:
        raise UnknownThing(
            f"run {act.run.key} has no pending write {item.write}",
            write=str(item.write),
        )
    _require_reviewer(act, state.request)
    row = next(row for row in state.writes if row.write == item.write)
    if state.request.status == RequestStatus.WITHDRAWN:
        return _ItemResult(item, row, "came_back", {"why": "withdrawn"})
    standing = state.standings[item.write]
    if standing.settled or state.request.status != RequestStatus.OPEN:
        signers = _names_of_signers(state, item.write)
        facts = {"why": standing.verdict, "by": signers}
        return _ItemResult(item, row, "already", facts)
    # Checked after that: an edit that settled the write changed its hash too, and the
    # answer for a settled write names who settled it.
    if item.hash != row.hash:
        return _ItemResult(item, row, "came_back", {"why": row.reason})
    why_excluded = _why_excluded(act, state, row, item)
    if why_excluded:
        return _ItemResult(item, row, "excluded", {"why": why_excluded})
    _require_possible(state.request, row, item)
    return _ItemResult(item, row)


def _require_reviewer(act: Signing, request: ApprovalRequest) -> None:
    # An act may decide many writes of one request, and the answer costs queries.
    if request.id in act.checked:
        return
    right = permissions.right_to_decide(act.by, request, keep=True)
    if not right.yes:
        raise NotAReviewer(right.why_not, request=str(request.id))
    if right.delegations:
        act.passed_on[request.id] = right.delegations
    if act.claims:
        claims.require_signable(act.claims, request, act.by)
    act.checked.add(request.id)


def _names_of_signers(state: RequestState, write: UUID) -> list[str]:
    """Return the names of the people whose signatures settled a write, or that of the
    deadline that did.
    """
    standing = state.standings[write]
    if state.request.status == RequestStatus.EXPIRED and not standing.settled:
        return [BY_DEADLINE]
    signers = set(standing.by)
    # Searched in the whole request: under all-or-nothing, the rejection of another
    # write settled this one too.
    names = {row.signer_name for row in state.decisions if row.voter in signers}
    return sorted(names)


def _why_excluded(
    act: Signing, state: RequestState, row: PendingWrite, item: Item
) -> str:
    """Return why the signer may not decide a write: `four_eyes`, or `delegation` if
    they decide for nobody there; empty if they may.
    """
    # The author of a revision may well edit it again.
    is_edit = item.verdict == "edit"
    if not is_edit and excludes(policy_of(state.request), row.author_id, act.by.pk):
        return "four_eyes"
    if act.passed_on and not _use_delegation(act, state, row, item):
        return "delegation"
    return ""


def _use_delegation(
    act: Signing, state: RequestState, row: PendingWrite, item: Item
) -> bool:
    """Note for whom the signer decides a write; return whether there is anybody left.

    The signer does not decide for people who have decided the write themselves or
    through another person: their right would count twice.
    """
    passed_on = act.passed_on.get(state.request.id)
    if passed_on is None:
        return True
    taken_part = others_who_took_part(act.by, state, row)
    policy = policy_of(state.request)
    for delegation in passed_on:
        delegator = delegation.delegator_id
        is_author = item.verdict != "edit" and excludes(
            policy, row.author_id, delegator
        )
        if delegator not in taken_part and not is_author:
            act.used[row.write] = delegation
            return True
    return False


def _require_possible(request: ApprovalRequest, row: PendingWrite, item: Item) -> None:
    """Raise `InvalidValue` if a write cannot be decided with this verdict."""
    if item.verdict == "reject":
        _require_reason(request, row, item)
    elif item.verdict == "skip":
        _require_skippable(request, item)
    elif item.verdict == "approve" and "asks" in request.policy:
        _require_answered(row)


def _require_reason(request: ApprovalRequest, row: PendingWrite, item: Item) -> None:
    if item.reason.strip():
        return
    if row.channel in request.policy["reason_required"]:
        raise InvalidValue(
            "rejecting this write needs a reason", path="reason", write=str(row.write)
        )


def _require_skippable(request: ApprovalRequest, item: Item) -> None:
    if not request.policy.get("skip"):
        raise InvalidValue(NOT_SKIPPABLE, path="verdict", write=str(item.write))


def _require_answered(row: PendingWrite) -> None:
    if is_unanswered(read_value(row, "shown")):
        raise InvalidValue(NOT_ANSWERED, path="verdict", write=str(row.write))


# Making the revisions that edits lead to.


def _revise_edited_writes(act: Signing, results: Sequence[_ItemResult]) -> None:
    for result in results:
        if result.counts and result.item.verdict == "edit":
            act.revised[result.row.write] = _edited(act, result.row, result.item)

    # Read at most once, and only if a template of a request needs it.
    head_state = cache(lambda: timeline.head_state(act.run.id))
    for state in act.requests:
        if any(row.write in act.revised for row in state.writes):
            _renew_texts(act, state, head_state)


def _edited(act: Signing, row: PendingWrite, item: Item) -> PendingWrite:
    """Return the next revision of a write, with the value of this edit."""
    if is_authority(row.channel):
        raise InvalidValue(
            "it was applied before, so it cannot be edited; approve it again, or reject "
            "it, and nothing is done on it",
            path="value",
            write=str(row.write),
        )
    compiled = _installed(act.run, row)
    _require_alone(row)
    value = _edited_value(compiled, row, item)
    shown = shown_after_edit(compiled, row, value)
    return pending_writes.edited(
        row,
        value=value,
        shown=shown,
        author=act.by.pk,
        at=act.at,
        protection=act.protection,
    )


def _installed(run: Run, row: PendingWrite) -> Compiled:
    """Return the run's version of its graph. Raises `IncompatibleGraph` if this process
    does not have it.
    """
    compiled = versions.graph_for(run)
    if compiled is None:
        raise IncompatibleGraph(
            "the version of the graph that proposed this write is not installed here, "
            "so it cannot be edited; approve or reject it, or let a steward resume the "
            "run, which brings it onto the version that is here, where that takes it",
            write=str(row.write),
        )
    return compiled


def _require_alone(row: PendingWrite) -> None:
    """Raise `InvalidValue` if another gate is asked about the same value of a patch:
    both must sign the same.
    """
    if row.node != PATCH:
        return
    same_value = PendingWrite.objects.filter(
        run=row.run_id, line=row.line, node=PATCH, visit=row.visit, channel=row.channel
    )
    if same_value.exclude(write=row.write).exists():
        raise InvalidValue(
            f"the people of another gate are asked about {row.channel} too, "
            "so it cannot be edited; reject it, and patch the run anew",
            path="value",
            write=str(row.write),
        )


def _edited_value(compiled: Compiled, row: PendingWrite, item: Item) -> Any:
    channel = compiled.channel_of(row.node, row.channel)
    try:
        return channel.stage(item.value, limit=conf().max_value_bytes)
    except (InvalidValue, PayloadTooLarge) as error:
        facts = dict(error.facts)
        facts.pop("write", None)
        raise type(error)(error.message, write=str(row.write), **facts) from error


def _renew_texts(
    act: Signing, state: RequestState, head_state: Callable[[], State]
) -> None:
    """Renew title and facts of a request after this act's edits.

    Other writes of the request come back if the texts beside them change; a rejected
    one stays rejected. What this act decides on them counts for the revision that they
    become, because its signer made the new texts.
    """
    edits = {write: read_value(row, "value") for write, row in act.revised.items()}
    compiled = _installed(act.run, state.writes[0])
    texts = request_texts(state.request, compiled, state.writes, edits, head_state)
    if not texts:
        return
    act.texts[state.request.id] = texts

    standings = _standings_after(act, state)
    for row in state.writes:
        if row.write in act.revised:
            pending_writes.put_texts(act.revised[row.write], texts, act.protection)
            continue
        if standings[row.write].verdict == REJECTED or not has_other_texts(row, texts):
            continue
        act.revised[row.write] = pending_writes.retold(
            row, texts=texts, at=act.at, protection=act.protection
        )


def _to_be_considered(act: Signing) -> dict[Revision, int | str]:
    """Return what the gates ask the signer to look at before what counts may count: the
    revisions as they were shown, with the seconds or the word of the policy.
    """
    needed: dict[Revision, int | str] = {}
    for item in act.counted:
        state = act.requests_by_write[item.write]
        considered = state.request.policy.get("considered")
        if considered is None:
            continue
        for row in state.writes:
            is_asked = row.write == item.write
            if not isinstance(considered, int):
                is_asked = _is_open_to(act, state, row)
            if is_asked:
                needed[row.write, row.revision] = considered
    return needed


def _is_open_to(act: Signing, state: RequestState, row: PendingWrite) -> bool:
    """Return whether the signer could decide this write now, and so could see it."""
    if state.standings[row.write].settled:
        return False
    return not excludes(policy_of(state.request), row.author_id, act.by.pk)


def _require_confirmed(act: Signing, results: Sequence[_ItemResult]) -> None:
    """Raise `ConfirmationRequired` if the signer has not confirmed what counts as its
    gates ask for.
    """
    # What another person has shown is neither looked at nor kept.
    posted = own_assertion(act.by, act.confirmation)
    if posted is not None:
        act.assertion = verified_assertion(
            posted,
            act.run,
            act.by,
            signed_lines(act, results),
            at=act.at,
        )
    needed = needed_confirmations(act)
    act.confirmed_by = require_confirmation(act.run, act.by, needed, act.confirmation)
    if act.confirmation is not None and act.confirmed_by == LOG_IN:
        _use_up_log_in(act, act.confirmation.session)


def _use_up_log_in(act: Signing, session: str) -> None:
    """Use up the fresh log-in of a session to confirm this act, and no other."""
    if not fresh_logins.use_up(act.by, session=session, at=act.at):
        raise ConfirmationRequired(
            "Nothing was signed: your log-in has confirmed another act already, or came"
            " too long ago. Sign in again, then sign.",
            reason="used",
            method=LOG_IN,
        )


def needed_confirmations(act: Signing) -> dict[UUID, str]:
    """Return how the signer must confirm what counts, by write; empty where they need
    not.
    """
    needed: dict[UUID, str] = {}
    for item in act.counted:
        state = act.requests_by_write[item.write]
        # Most gates ask for none, so no write needs to be read.
        if "confirm" in state.request.policy:
            row = next(row for row in state.writes if row.write == item.write)
            revised = act.revised.get(item.write)
            needed[item.write] = needed_for(state.request, row, revised)
    return needed


def signed_lines(act: Signing, results: Sequence[_ItemResult]) -> list[dict[str, Any]]:
    """Return what a passkey signs of an act, write by write: all of what it is shown, or
    nothing. Raises what `sign` raises where nothing counts if a part of it does not.
    """
    missing = [result for result in results if not result.counts]
    if missing:
        for result in missing:
            _note(act, result.item, result.row, result.result, **result.facts)
        raise refusal(act)
    return [_signed_line(act, result.row, result.item) for result in results]


def _signed_line(act: Signing, row: PendingWrite, item: Item) -> dict[str, Any]:
    line = {
        "request": str(act.requests_by_write[item.write].request.id),
        "write": str(item.write),
        "revision": row.revision,
        "hash": item.hash,
        "verdict": item.verdict,
    }
    delegation = act.used.get(item.write)
    if delegation is not None:
        line["for"] = delegation.delegator.get_username()
    # The hash of what was seen holds its value; an edit decides another one.
    if item.verdict == "edit":
        value = read_bytes(act.revised[item.write], "value")
        line["value_hash"] = act.protection.digest(value)
    if item.reason:
        line["reason_hash"] = act.protection.digest(canonical.dumps(item.reason))
    return line


# Recording what counts.


def _record_decision(act: Signing, row: PendingWrite, item: Item) -> None:
    """Add a decision that counts, its event, and its line of the receipt."""
    state = act.requests_by_write[row.write]
    current = act.revised.get(row.write, row)
    decision, event = signed_decision(
        state.request,
        current,
        item.verdict,
        at=act.at,
        by_name=act.by.get_username(),
        proposed_value=decrypted(row, "value"),
        by=act.by,
        seen_hash=item.hash,
        reason=pack_json(item.reason) if item.reason else b"",
        confirmed_by=act.confirmed_by,
        **(_for_whom(act, row) if act.used else {}),
    )
    act.decisions.append(decision)
    act.events.append(event)
    # Under four eyes others have to sign an edited revision; its author does not
    # count.
    if item.verdict == "edit" and state.request.policy["four_eyes"]:
        _note(act, item, current, "kept", why="four_eyes")
        return
    signed_before = act.by.pk in state.standings[row.write].by
    _note(act, item, current, "counted", again=signed_before)


def _for_whom(act: Signing, row: PendingWrite) -> dict[str, Any]:
    """Return the columns of a decision that say for whom it was made."""
    delegation = act.used.get(row.write)
    if delegation is None:
        return {}
    return {
        "delegator": delegation.delegator,
        "delegator_name": delegation.delegator.get_username(),
        "delegation": delegation.id,
    }


def signed_decision(
    request: ApprovalRequest,
    row: PendingWrite,
    verdict: str,
    *,
    at: datetime,
    by_name: str,
    proposed_value: bytes,
    **columns: Any,
) -> tuple[Decision, NewEvent]:
    """Return the decision on this revision of a write, not saved, and the line of the
    log that names it. `columns` are the others that a person's decision has.
    """
    final_value = b""
    if verdict not in DECIDES_NO_VALUE:
        final_value = decrypted(row, "value")
    columns.setdefault("seen_hash", row.hash)
    decision = Decision(
        id=uuid7(),
        request=request,
        run=row.run_id,
        line=row.line,
        task=row.task,
        write=row.write,
        position=row.position,
        channel=row.channel,
        revision=row.revision,
        verdict=verdict,
        old_value=pack_json(pending_writes.base_of(row).value),
        proposed_value=proposed_value,
        final_value=final_value,
        by_name=by_name,
        at=at,
        **columns,
    )
    facts = {
        "write": str(row.write),
        "revision": row.revision,
        "verdict": verdict,
        "hash": decision.seen_hash,
        "request": str(request.id),
    }
    if decision.delegator_name:
        facts["delegator"] = decision.delegator_name
    event = NewEvent(
        "decision_signed", facts, node=row.node, task=row.task, actor=by_name
    )
    return decision, event


def _note(
    act: Signing, item: Item, row: PendingWrite, result: str, **facts: Any
) -> None:
    """Add to the receipt what became of an item."""
    if item.write in act.used:
        facts["delegator"] = act.used[item.write].delegator.get_username()
    act.receipt.append(
        {
            "write": str(row.write),
            "label": row.label,
            "revision": row.revision,
            "hash": row.hash,
            "verdict": item.verdict,
            "result": result,
            **facts,
        }
    )


# Settling requests.


def request_outcome(
    act: Signing,
) -> tuple[list[tuple[ApprovalRequest, str]], list[NewEvent]]:
    """Return the requests that this act settles, with their outcomes, and the act's
    events: one for each decision, then one for each write that comes back, then one for
    each settled request.
    """
    settled: list[tuple[ApprovalRequest, str]] = []
    events = [*act.events, *texts_changed_events(act.revised.values())]
    for state in act.requests:
        request = state.request
        standings = _standings_after(act, state)
        _note_standings(act, state, standings)
        result = outcome(standings.values())
        # Requests settled before are here too, if an item came too late for them.
        if not result or request.status != RequestStatus.OPEN:
            continue
        settled.append((request, result))
        facts = {"request": str(request.id), "outcome": result}
        events.append(
            NewEvent("request_settled", facts, node=request.node, task=request.task)
        )
    return settled, events


def texts_changed_events(revisions: Iterable[PendingWrite]) -> list[NewEvent]:
    """Return one event for each of these revisions that is there because the texts
    beside its write changed.
    """
    events: list[NewEvent] = []
    for row in revisions:
        if row.reason != RevisionReason.TEXTS:
            continue
        facts = {
            "write": str(row.write),
            "revision": row.revision,
            "channel": row.channel,
        }
        events.append(NewEvent("texts_changed", facts, node=row.node, task=row.task))
    return events


def _note_standings(
    act: Signing, state: RequestState, standings: Mapping[UUID, Standing]
) -> None:
    """Add to the receipt where each signed write of the request stands: its verdict,
    and how many signatures it has and needs.
    """
    act.settled |= {write for write, standing in standings.items() if standing.settled}
    for line in act.receipt:
        standing = standings.get(UUID(line["write"]))
        if standing and line["result"] in ("counted", "kept"):
            line["settled"] = standing.verdict
            if standing.cause is not None:
                line["rejected_with"] = str(standing.cause)
            line["signatures"] = standing.beside(line["verdict"])
            line["needed"] = state.request.quorum


def _standings_after(act: Signing, state: RequestState) -> dict[UUID, Standing]:
    """Return where the request's writes stand once this act's decisions count."""
    rows = [act.revised.get(row.write, row) for row in state.writes]
    revisions = {row.write: row.revision for row in rows}
    decisions = state.votes
    # The events of this act's decisions are numbered in the order in which they count.
    for seq, item in enumerate(act.counted, start=act.run.event_seq + 1):
        if item.write in revisions:
            used = act.used.get(item.write)
            decisions.append(
                Given(
                    item.write,
                    revisions[item.write],
                    item.verdict,
                    act.by.pk,
                    seq,
                    delegator=used.delegator_id if used is not None else None,
                )
            )
    held = [Held(row.write, row.revision, row.author_id, row.channel) for row in rows]
    return judge(held, decisions, policy_of(state.request))


# Refusing an act in which nothing counts.


def refusal(act: Signing) -> CountersignError:
    """Return the error that says why an act in which nothing counts is refused."""
    results = {line["result"] for line in act.receipt}
    if results == {"already"}:
        return _already_decided(act)
    if "came_back" in results:
        return _stale(act)
    return _excluded(act)


def _already_decided(act: Signing) -> AlreadyDecided:
    """Return the refusal of a signing all of whose writes others had already settled."""
    names: set[str] = set()
    for line in act.receipt:
        names.update(line["by"])
    by = sorted(names)
    return AlreadyDecided(
        f"already settled by {', '.join(by) or 'the system'}", by=by, events=act.receipt
    )


def _stale(act: Signing) -> StaleProposal:
    """The writes have changed since they were shown."""
    moved = [line["write"] for line in act.receipt if line["result"] == "came_back"]
    return StaleProposal(
        "what you saw has changed since; nothing was signed",
        moved=moved,
        events=act.receipt,
    )


def _excluded(act: Signing) -> NotAReviewer:
    """The person is excluded from all that was left to decide: by four eyes, or because
    those for whom they decide have no part left in it.
    """
    lines = [line for line in act.receipt if line["result"] == "excluded"]
    writes = [line["write"] for line in lines]
    is_by_four_eyes = any(line["why"] == "four_eyes" for line in lines)
    why = EXCLUDED if is_by_four_eyes else NOBODY_LEFT
    return NotAReviewer(why, writes=writes, events=act.receipt)
