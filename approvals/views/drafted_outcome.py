"""What happens when a person signs what he chose: computed from the drafts, write by write, and off the graph's edges.

Pure over rows that were read; it decides nothing. Where it cannot know it says "may".
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

from approvals.drafts import DraftChoice
from approvals.gates.departed_line import NOTHING_AHEAD, Ahead
from approvals.gates.edited_texts import gate_of, has_other_texts, request_texts
from approvals.gates.request_state import RequestState, policy_of
from approvals.models import Decision, RequestStatus
from approvals.views import review_form, write_cards
from approvals.views.card_pages import MANY, Drawing, drawing_with
from approvals.views.consequences import NOTHING_FOLLOWS, Fate, Line, lines_after
from approvals.views.write_cards import title_of
from checkpoints import timeline
from checkpoints.conf import conf
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.effect import APPROVED, REJECTED
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.gate import present_edit
from orchestrator.engine.verdicts import Given, Held, Standing, judge, outcome

LATEST = 2**62
"""The number of a decision that is not in the log yet."""


@dataclass(slots=True)
class Next:
    """What signing does. `now` is what becomes of each write, `then` what runs behind each request that it settles."""

    now: list[Line] = field(default_factory=list)
    then: list[tuple[str, list[Line]]] = field(default_factory=list)
    waits: bool = False


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A write with the draft on it: what it would be called, its amount, the value of an edit, and why it could not be
    signed.
    """

    row: PendingWrite
    draft: DraftChoice | None
    title: str
    amount: str = ""
    wrong: str = ""
    value: Any = None

    @property
    def edits(self) -> bool:
        return self.draft is not None and self.draft.verdict == "edit"


def drafted_outcome(
    compiled: Compiled | None,
    states: Sequence[RequestState],
    made: Sequence[Decision],
    drafts: Mapping[str, DraftChoice],
    by: int | None,
    *,
    ahead: Ahead = NOTHING_AHEAD,
) -> Next:
    """What happens when `by` signs these drafts now. Drafts for other revisions than the newest are none."""
    found = Next()
    drawing = drawing_with(drafts, _UNASKED, sum(len(one.writes) for one in states))
    state = cache(lambda: timeline.head_state(states[0].request.run_id))
    for one in states:
        if one.request.status == RequestStatus.OPEN:
            writes = [_drafted(one, row, compiled, drafts.get(str(row.write)), drawing) for row in one.writes]
            own = [d for d in made if d.request_id == one.request.id]
            retold = _beside_other_texts(compiled, one, writes, state)
            _add_request(found, compiled, one, writes, _standings(one, writes, own, by, retold), retold, ahead)
    found.now = _folded(found.now)
    return found


def _folded(lines: list[Line]) -> list[Line]:
    """The lines as they are where they are few; of many that say the same, how many there are."""
    if len(lines) <= MANY:
        return lines
    alike: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        alike.setdefault((line.more.partition(" Amount:")[0], line.icon), []).append(line)
    return [
        Line(f"{len(same):,} writes", more, icon=icon) if len(same) > 1 else same[0]
        for (more, icon), same in alike.items()
    ]


_UNASKED = Drawing(fields=lambda _: False, asked=lambda _: False)


def _drafted(
    one: RequestState, row: PendingWrite, compiled: Compiled | None, draft: DraftChoice | None, drawing: Drawing
) -> _Drafted:
    shown = read_value(row, "shown") or {}
    amount = "" if shown.get("money") is None else str(shown["money"])
    valid = draft and draft.verdict and draft.hash == row.hash and not one.standings[row.write].settled
    if not valid or draft is None:
        return _Drafted(row, None, title_of(row, shown), amount)
    if draft.verdict != "edit" or compiled is None:
        return _Drafted(row, draft, title_of(row, shown), amount)
    proposed = read_value(row, "value")
    choice = review_form.choice_of(draft, write_cards.control_of(compiled, row, proposed, drawing))
    try:
        if choice.errors:
            raise InvalidValue(choice.errors[0])
        value = compiled.channels[row.channel].stage(choice.value, limit=conf().max_value_bytes)
    except (InvalidValue, PayloadTooLarge) as error:
        return _Drafted(row, draft, title_of(row, shown), amount, error.message)
    again = present_edit(gate_of(compiled, row), row.channel, value, original=proposed, shown=shown)
    edited = "" if again.get("money") is None else str(again["money"])
    amount = f"{edited} instead of {amount}" if edited != amount else amount
    return _Drafted(row, draft, title_of(row, again), amount, value=value)


def _add_request(
    found: Next,
    compiled: Compiled | None,
    one: RequestState,
    writes: Sequence[_Drafted],
    after: Mapping[UUID, Standing],
    retold: Collection[UUID],
    ahead: Ahead,
) -> None:
    for each in writes:
        lost = len(one.standings[each.row.write].by) if each.row.write in retold else 0
        if each.draft is None and lost and after[each.row.write].verdict != REJECTED:
            text = f"Your edit changes the title or the facts beside it. Signatures that no longer count: {lost}."
            found.now.append(Line(each.title, text, icon="clock"))
        elif each.draft is not None:
            found.now.append(_line_of(each, one, after[each.row.write]))
        elif after[each.row.write].verdict == REJECTED and not one.standings[each.row.write].settled:
            found.now.append(Line(each.title, "Rejected with it: all or nothing.", icon="x"))
    result = outcome(after.values())
    if result is None or any(each.wrong for each in writes):
        found.waits = True
    elif compiled is not None and any(each.draft for each in writes):
        fates = [Fate(e.row.channel, e.title, after[e.row.write].verdict == APPROVED) for e in writes]
        lines = lines_after(compiled, one.request.node, result, fates, ahead)
        found.then.append((f"Then, as {WHEN[result]}", lines or [NOTHING_FOLLOWS]))


WHEN = {"approved": "all is approved", "rejected": "all is rejected", "partial": "some is approved and some rejected"}


def _beside_other_texts(
    compiled: Compiled | None, one: RequestState, writes: Sequence[_Drafted], state: Callable[[], State]
) -> set[UUID]:
    """The writes that come back when these drafts are signed: an edit changes the title or the facts beside them."""
    edits = {each.row.write: each.value for each in writes if each.edits and not each.wrong}
    if compiled is None or not edits:
        return set()
    texts = request_texts(one.request, compiled, one.writes, edits, state)
    return {row.write for row in one.writes if row.write not in edits and has_other_texts(row, texts)}


def _standings(
    one: RequestState, writes: Sequence[_Drafted], made: Sequence[Decision], by: int | None, retold: Collection[UUID]
) -> dict[UUID, Standing]:
    given = [Given(d.write, d.revision, d.verdict, d.by_id, d.event_seq) for d in made]
    held = []
    for each in writes:
        row = each.row
        revision = row.revision + 1 if each.edits or row.write in retold else row.revision
        held.append(Held(row.write, revision, by if each.edits else row.author_id))
        if each.draft is not None:
            given.append(Given(row.write, revision, each.draft.verdict, by, LATEST))
    return judge(held, given, policy_of(one.request))


def _line_of(each: _Drafted, one: RequestState, standing: Standing) -> Line:
    """What becomes of a write that was chosen for."""
    verdict = each.draft.verdict if each.draft else ""
    amount = f" Amount: {each.amount}." if each.amount else ""
    if each.wrong:
        return Line(each.title, f"Your edit cannot be signed yet: {each.wrong}", icon="warn")
    if standing.verdict == REJECTED:
        return Line(each.title, "Rejected: it does not happen.", icon="x")
    if standing.verdict == APPROVED:
        return Line(each.title, f"{'Approved as you edit it' if verdict == 'edit' else 'Approved'}.{amount}")
    if verdict == "edit":
        return Line(each.title, f"{_after_edit(one, each.row)}{amount}", icon="pen")
    have, needed = len(standing.by), one.request.quorum
    if verdict == "reject":
        return Line(each.title, f"One rejection of {one.request.policy['reject_quorum']}; it stays open.", icon="x")
    more = f"{have} of {needed} signatures; it waits for {needed - have} more."
    return Line(each.title, f"{more}{amount}", icon="clock")


def _after_edit(one: RequestState, row: PendingWrite) -> str:
    lost = len(one.standings[row.write].by)
    again = f" Signatures before it no longer count: {lost}." if lost else ""
    if policy_of(one.request).four_eyes:
        return f"Your edit is proposed; somebody else must sign it.{again}"
    return f"Your edit is proposed, with your signature; it waits for others.{again}"
