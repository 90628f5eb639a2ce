"""The arithmetic of one signing: what was posted is read, and each item weighed against the write as it stands.

Builds rows, writes none. `approvals.reviews` calls it under the locks of the run and its requests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from approvals import permissions
from approvals.gates.edited_texts import has_other_texts, request_texts, shown_after_edit
from approvals.gates.lost_version import require_signable
from approvals.gates.request_state import RequestState, policy_of
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints import timeline, versions
from checkpoints.conf import conf
from checkpoints.core.ids import uuid7, uuid_of
from checkpoints.core.strict_json import shown_key
from checkpoints.event_log import NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite, Run
from checkpoints.models.pending_write import Reason
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection, decrypted, protection_of
from orchestrator.engine import canonical
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.effect import REJECTED
from orchestrator.engine.errors import (
    AlreadyDecided,
    CountersignError,
    IncompatibleGraph,
    InvalidValue,
    NotAReviewer,
    PayloadTooLarge,
    StaleProposal,
    UnknownThing,
)
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.verdicts import EXCLUDED, Given, Held, Standing, excludes, judge, outcome

VERDICTS = ("approve", "reject", "edit")
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
    """One signing under way. `asked` gives each write's request; `counted` are the items that count, in their order;
    `revised` the next revisions that it makes, by write; `texts` the new title and facts of requests, by id; `settled`
    are writes that no longer stand open.
    """

    run: Run
    by: Any
    at: datetime
    asked: dict[UUID, RequestState]
    counted: list[Item] = field(default_factory=list)
    revised: dict[UUID, PendingWrite] = field(default_factory=dict)
    texts: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    receipt: list[dict[str, Any]] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)
    checked: set[UUID] = field(default_factory=set)
    settled: set[UUID] = field(default_factory=set)

    @property
    def requests(self) -> list[RequestState]:
        return list({one.request.id: one for one in self.asked.values()}.values())

    @property
    def protection(self) -> Protection:
        return protection_of(self.run)


def parse_decisions(decisions: Sequence[Mapping[str, Any]]) -> list[Item]:
    """What was posted, checked for form. Raises `InvalidValue` naming the place, e.g. `decisions[2].verdict`."""
    if not isinstance(decisions, Sequence) or isinstance(decisions, str | bytes) or not decisions:
        raise InvalidValue("decisions must be a list with at least one decision", path="decisions")
    items = [_item(f"decisions[{n}]", posted) for n, posted in enumerate(decisions)]
    if len({item.write for item in items}) < len(items):
        raise InvalidValue("one act decides each write once", path="decisions")
    return items


def _item(path: str, posted: Any) -> Item:
    if not isinstance(posted, Mapping):
        raise InvalidValue(f"{path} must be an object", path=path)
    unknown = sorted(shown_key(str(name)) for name in set(posted) - _FIELDS)
    if unknown:
        raise InvalidValue(f"{path} has unknown fields: {', '.join(unknown)}", path=f"{path}.{unknown[0]}")
    verdict, seen, reason = posted.get("verdict"), posted.get("hash"), posted.get("reason") or ""
    if verdict not in VERDICTS:
        raise InvalidValue(f"{path}.verdict must be approve, reject or edit", path=f"{path}.verdict")
    if not isinstance(seen, str) or not seen:
        raise InvalidValue(f"{path}.hash must be the hash of what was shown", path=f"{path}.hash")
    if not isinstance(reason, str) or len(reason) > 10_000:
        raise InvalidValue(f"{path}.reason must be text of at most 10,000 characters", path=f"{path}.reason")
    if verdict != "edit" and posted.get("value") is not None:
        raise InvalidValue(f"{path}.value goes with an edit only", path=f"{path}.value")
    if verdict == "edit" and "value" not in posted:
        raise InvalidValue(f"{path}.value is missing: an edit brings a value", path=f"{path}.value")
    item = Item(uuid_of(posted.get("write"), "write"), seen, verdict, posted.get("value"), reason)
    _require_json(path, item)
    return item


def _require_json(path: str, item: Item) -> None:
    """Raise `InvalidValue`, naming write and place, where what was posted has no canonical form."""
    for name in ("value", "reason"):
        try:
            canonical.dumps(getattr(item, name))
        except InvalidValue as error:
            inner, reason = str(error.facts["path"]), str(error.facts["reason"])
            where = f"{path}.{name}{'' if inner.startswith('[') or not inner else '.'}{inner}"
            raise InvalidValue(f"{where} {reason}", path=where, reason=reason, write=str(item.write)) from error


def require_own(items: Sequence[Item], own: set[UUID], *, request: UUID) -> None:
    """Each write must belong to the request."""
    for item in items:
        if item.write not in own:
            raise UnknownThing(f"request {request} has no write {item.write}", write=str(item.write))


def body_hash(run: UUID, items: Sequence[Item], protection: Protection) -> str:
    """Hash of what was posted, whatever the order of its keys."""
    body = [[str(i.write), i.hash, i.verdict, i.value, i.reason] for i in items]
    return protection.digest(canonical.dumps([str(run), body]))


@dataclass(frozen=True, slots=True)
class _ItemResult:
    """An item beside its write as it stands. `result` is empty where it counts, else `facts` say why it does not."""

    item: Item
    row: PendingWrite
    result: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def apply_decisions(act: Signing, items: Sequence[Item]) -> None:
    """Let each decision count, or note why it does not. Raises where the whole act must not stand."""
    results = [_result_of(act, item) for item in items]
    act.counted = [one.item for one in results if not one.result]
    if act.counted:
        require_signable(act.run)
    for one in results:
        if one.item.verdict == "edit" and not one.result:
            act.revised[one.row.write] = _edited(act, one.row, one.item)
    state = cache(lambda: timeline.head_state(act.run.id))
    for asked in act.requests:
        if any(row.write in act.revised for row in asked.writes):
            _renew_texts(act, asked, state)
    for one in results:
        if one.result:
            _note(act, one.item, one.row, one.result, **one.facts)
        else:
            _count(act, one.row, one.item)


def _result_of(act: Signing, item: Item) -> _ItemResult:
    asked = act.asked.get(item.write)
    if asked is None:
        raise UnknownThing(f"run {act.run.key} has no pending write {item.write}", write=str(item.write))
    _require_reviewer(act, asked.request)
    row = next(w for w in asked.writes if w.write == item.write)
    standing = asked.standings[item.write]
    if asked.request.status == RequestStatus.WITHDRAWN:
        return _ItemResult(item, row, "came_back", {"why": "withdrawn"})
    if standing.settled or asked.request.status != RequestStatus.OPEN:
        return _ItemResult(item, row, "already", {"why": standing.verdict, "by": _names(asked, item.write)})
    if item.hash != row.hash:
        return _ItemResult(item, row, "came_back", {"why": row.reason})
    if item.verdict != "edit" and excludes(policy_of(asked.request), row.author_id, act.by.pk):
        return _ItemResult(item, row, "excluded", {"why": "four_eyes"})
    must = row.channel in asked.request.policy["reason_required"]
    if item.verdict == "reject" and must and not item.reason.strip():
        raise InvalidValue("rejecting this write needs a reason", path="reason", write=str(row.write))
    return _ItemResult(item, row)


def _require_reviewer(act: Signing, request: ApprovalRequest) -> None:
    if request.id in act.checked:
        return
    allowed, why = permissions.may_decide(act.by, request)
    if not allowed:
        raise NotAReviewer(why, request=str(request.id))
    act.checked.add(request.id)


def _note(act: Signing, item: Item, row: PendingWrite, result: str, **facts: Any) -> None:
    line = {"write": str(row.write), "label": row.label, "revision": row.revision, "hash": row.hash}
    act.receipt.append({**line, "verdict": item.verdict, "result": result, **facts})


def _edited(act: Signing, row: PendingWrite, item: Item) -> PendingWrite:
    compiled = _installed(act.run, row)
    _require_alone(row)
    value = _edited_value(compiled, row, item)
    shown = shown_after_edit(compiled, row, value)
    return pending_writes.edited(row, value=value, shown=shown, author=act.by.pk, at=act.at, protection=act.protection)


def _require_alone(row: PendingWrite) -> None:
    """Raise `InvalidValue` where another gate is asked about the same value of a patch: both must sign the same."""
    if row.node != PATCH:
        return
    same = PendingWrite.objects.filter(run=row.run_id, line=row.line, node=PATCH, visit=row.visit, channel=row.channel)
    if same.exclude(write=row.write).exists():
        message = f"the people of another gate are asked about {row.channel} too, so it cannot be edited"
        cure = "reject it, and patch the run anew"
        raise InvalidValue(f"{message}; {cure}", path="value", write=str(row.write))


def _renew_texts(act: Signing, asked: RequestState, state: Callable[[], State]) -> None:
    """Title and facts of a request after this act's edits. Its other writes come back where theirs are others now; a
    rejected one stays. What this act says of them counts for what they become: who signs it made the new texts.
    """
    edits = {write: read_value(row, "value") for write, row in act.revised.items()}
    texts = request_texts(asked.request, _installed(act.run, asked.writes[0]), asked.writes, edits, state)
    if not texts:
        return
    act.texts[asked.request.id] = texts
    standings = _after(act, asked)
    for row in asked.writes:
        if row.write in act.revised:
            pending_writes.put_texts(act.revised[row.write], texts, act.protection)
        elif standings[row.write].verdict != REJECTED and has_other_texts(row, texts):
            act.revised[row.write] = pending_writes.retold(row, texts=texts, at=act.at, protection=act.protection)


def _count(act: Signing, row: PendingWrite, item: Item) -> None:
    asked, current = act.asked[row.write], act.revised.get(row.write, row)
    act.decisions.append(_decision(act, asked.request, current, item, proposed=decrypted(row, "value")))
    facts = {"write": str(row.write), "revision": current.revision, "verdict": item.verdict, "hash": item.hash}
    facts["request"] = str(asked.request.id)
    act.events.append(NewEvent("decision_signed", facts, node=row.node, task=row.task, actor=act.by.get_username()))
    if item.verdict == "edit" and asked.request.policy["four_eyes"]:
        _note(act, item, current, "kept", why="four_eyes")
    else:
        _note(act, item, current, "counted", again=act.by.pk in asked.standings[row.write].by)


def _installed(run: Run, row: PendingWrite) -> Compiled:
    compiled = versions.graph_for(run)
    if compiled is None:
        message = "the version of the graph that proposed this write is not installed here, so it cannot be edited"
        cures = "approve or reject it, or let a steward resume the run, which brings it onto the version that is here"
        raise IncompatibleGraph(f"{message}; {cures}, where that takes it", write=str(row.write))
    return compiled


def _edited_value(compiled: Compiled, row: PendingWrite, item: Item) -> Any:
    try:
        return compiled.channels[row.channel].stage(item.value, limit=conf().max_value_bytes)
    except (InvalidValue, PayloadTooLarge) as error:
        facts = {name: fact for name, fact in error.facts.items() if name != "write"}
        raise type(error)(error.message, write=str(row.write), **facts) from error


def _decision(act: Signing, request: ApprovalRequest, row: PendingWrite, item: Item, *, proposed: bytes) -> Decision:
    return Decision(
        id=uuid7(),
        request=request,
        run=act.run.id,
        line=row.line,
        task=row.task,
        write=row.write,
        position=row.position,
        channel=row.channel,
        revision=row.revision,
        seen_hash=item.hash,
        verdict=item.verdict,
        old_value=pack_json(pending_writes.base_of(row).value),
        proposed_value=proposed,
        final_value=b"" if item.verdict == "reject" else decrypted(row, "value"),
        reason=pack_json(item.reason) if item.reason else b"",
        by=act.by,
        by_name=act.by.get_username(),
        at=act.at,
    )


def _came_back(act: Signing) -> list[NewEvent]:
    """One line for each write that comes back because the texts beside it changed."""
    rows = [row for row in act.revised.values() if row.reason == Reason.TEXTS]
    facts = [{"write": str(row.write), "revision": row.revision, "channel": row.channel} for row in rows]
    return [NewEvent("texts_changed", one, node=row.node, task=row.task) for row, one in zip(rows, facts, strict=True)]


def request_outcome(act: Signing) -> tuple[list[tuple[ApprovalRequest, str]], list[NewEvent]]:
    """The requests that this act settles, with outcomes, and its lines: one a decision, then one a write that comes
    back, then one a settled request.
    """
    settled, events = [], [*act.events, *_came_back(act)]
    for asked in act.requests:
        standings = _after(act, asked)
        _note_standings(act, asked, standings)
        result = outcome(standings.values())
        if result and asked.request.status == RequestStatus.OPEN:
            settled.append((asked.request, result))
            facts = {"request": str(asked.request.id), "outcome": result}
            events.append(NewEvent("request_settled", facts, node=asked.request.node, task=asked.request.task))
    return settled, events


def _note_standings(act: Signing, asked: RequestState, standings: Mapping[UUID, Standing]) -> None:
    """Say in the receipt where each signed write stands with it: its verdict, or how many signatures it has."""
    act.settled |= {write for write, standing in standings.items() if standing.settled}
    for line in act.receipt:
        standing = standings.get(UUID(line["write"]))
        if standing and line["result"] in ("counted", "kept"):
            line |= {"settled": standing.verdict, "signatures": len(standing.by), "needed": asked.request.quorum}


def _after(act: Signing, asked: RequestState) -> dict[UUID, Standing]:
    """Where the request's writes stand once this act's decisions count."""
    rows = [act.revised.get(row.write, row) for row in asked.writes]
    revision = {row.write: row.revision for row in rows}
    before = Decision.objects.filter(request=asked.request).values_list(
        "write", "revision", "verdict", "by_id", "event_seq"
    )
    given = [Given(*values) for values in before]
    given += [
        Given(item.write, revision[item.write], item.verdict, act.by.pk, act.run.event_seq + 1 + n)
        for n, item in enumerate(act.counted)
        if item.write in revision
    ]
    held = [Held(row.write, row.revision, row.author_id) for row in rows]
    return judge(held, given, policy_of(asked.request))


def _names(asked: RequestState, write: UUID) -> list[str]:
    """The names of those whose signatures settled a write."""
    by = asked.standings[write].by
    # Of the whole request: under all-or-nothing another write's rejection settled this one too.
    rows = Decision.objects.filter(request=asked.request, by__in=[b for b in by if b is not None])
    return sorted(set(rows.values_list("by_name", flat=True)))


def refusal(act: Signing) -> CountersignError:
    """Why an act of which nothing counts is none."""
    results = {line["result"] for line in act.receipt}
    if results == {"already"}:
        return _already(act)
    return _stale(act) if "came_back" in results else _excluded(act)


def _excluded(act: Signing) -> NotAReviewer:
    """Four eyes exclude the person from all that was left to decide."""
    writes = [line["write"] for line in act.receipt if line["result"] == "excluded"]
    return NotAReviewer(EXCLUDED, writes=writes, events=act.receipt)


def _already(act: Signing) -> AlreadyDecided:
    """Every write was settled by others before."""
    by = sorted({name for line in act.receipt for name in line["by"]})
    return AlreadyDecided(f"already settled by {', '.join(by) or 'the system'}", by=by, events=act.receipt)


def _stale(act: Signing) -> StaleProposal:
    """What was shown is no longer what would happen."""
    moved = [line["write"] for line in act.receipt if line["result"] == "came_back"]
    return StaleProposal("what you saw has changed since; nothing was signed", moved=moved, events=act.receipt)
