"""The outcome of signing a person's drafts: computed write by write, and then along the
graph's edges.

Pure over rows that were read; it decides nothing. Where the outcome is open the words
are "may".
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import UUID

from approvals.drafts import DraftChoice
from approvals.gates.departed_line import NOTHING_AHEAD, Ahead
from approvals.gates.edited_texts import (
    gate_of,
    has_other_texts,
    proposed_value,
    request_texts,
    require_allowed,
)
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.request_state import RequestState, policy_of
from approvals.models import Decision, RequestStatus
from approvals.views import review_form, write_cards
from approvals.views.card_pages import MANY, DrawnCards, drawing_with
from approvals.views.consequences import NOTHING_FOLLOWS, Fate, Line, lines_after
from approvals.views.write_cards import title_of
from checkpoints import timeline
from checkpoints.conf import conf
from checkpoints.models import PendingWrite
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.gates.verdicts import Given, Held, Standing, judge, outcome
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.effect import APPROVED, REJECTED, SKIPPED
from orchestrator.engine.graphs.gate import present_edit
from orchestrator.engine.graphs.question import NOT_ANSWERED, is_unanswered

LATEST = 2**62
"""The sequence number of a decision that is not in the log yet."""
WHEN = {
    "approved": "all is approved",
    "rejected": "all is rejected",
    "partial": "some is approved and some rejected",
    "skipped": "it is skipped",
}


@dataclass(slots=True)
class Next:
    """The outcome of signing. `now` is what becomes of each write, `then` what runs
    after each request that is settled.
    """

    now: list[Line] = field(default_factory=list)
    then: list[tuple[str, list[Line]]] = field(default_factory=list)
    waits: bool = False


@dataclass(frozen=True, slots=True)
class _Drafted:
    """A write with its draft: the title and amount that it would have, the value of an
    edit, and why it could not be signed.
    """

    row: PendingWrite
    draft: DraftChoice | None
    title: str
    amount: str = ""
    wrong: str = ""
    value: Any = None

    @property
    def write(self) -> UUID:
        return self.row.write

    @property
    def edits(self) -> bool:
        return self.draft is not None and self.draft.verdict == "edit"


def drafted_outcome(
    compiled: Compiled | None,
    states: Sequence[RequestState],
    decisions: Sequence[Decision],
    drafts: Mapping[str, DraftChoice],
    by: int | None,
    *,
    ahead: Ahead = NOTHING_AHEAD,
) -> Next:
    """Return what happens when `by` signs these drafts now. Drafts for other revisions
    than the newest count as none.
    """
    following = Next()
    writes = sum(len(state.writes) for state in states)
    drawing = drawing_with(drafts, _NO_FORMS, writes)

    # Only an edit with texts to compare needs the head state, so it is read lazily.
    @cache
    def head_state() -> State:
        return timeline.head_state(states[0].request.run_id)

    for state in states:
        if state.request.status != RequestStatus.OPEN:
            continue
        drafted = [
            _drafted(state, row, compiled, drafts.get(str(row.write)), drawing)
            for row in state.writes
        ]
        # Requests share a run and its decisions, but no write.
        own = [d for d in decisions if d.request_id == state.request.id]
        reworded = _beside_other_texts(compiled, state, drafted, head_state)
        after = _standings(state, drafted, own, by, reworded)
        following.now += _lines_of_writes(state, drafted, after, reworded)
        _add_request(following, compiled, state, drafted, after, ahead)
    following.now = _folded(following.now)
    return following


def _folded(lines: list[Line]) -> list[Line]:
    """Return the lines as they are if they are few; else one line for all writes with
    the same outcome.
    """
    if len(lines) <= MANY:
        return lines
    alike: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        # Amounts differ from write to write; the outcome is shared.
        outcome_text = line.detail.partition(" Amount:")[0]
        alike.setdefault((outcome_text, line.icon), []).append(line)
    folded = []
    for (outcome_text, icon), members in alike.items():
        if len(members) == 1:
            folded += members
        else:
            folded.append(Line(f"{len(members):,} writes", outcome_text, icon=icon))
    return folded


def _no_form(write: str) -> bool:
    return False


_NO_FORMS = DrawnCards(fields=_no_form, requested=_no_form)


def _drafted(
    state: RequestState,
    row: PendingWrite,
    compiled: Compiled | None,
    draft: DraftChoice | None,
    drawing: DrawnCards,
) -> _Drafted:
    """Return a write with its draft, or without it if the draft would not count."""
    shown = read_value(row, "shown") or {}
    title = title_of(row, shown)
    amount = _amount_in(shown)
    if draft is None or not _counts(draft, state, row):
        return _Drafted(row, None, title, amount)
    if draft.verdict == "approve" and is_unanswered(shown):
        return _Drafted(row, draft, title, amount, NOT_ANSWERED)
    # Only an edit changes title, amount and value.
    if draft.verdict != "edit" or compiled is None:
        return _Drafted(row, draft, title, amount)

    proposed = read_value(row, "value")
    try:
        value = _edited_value(draft, row, compiled, proposed, drawing)
    except (InvalidValue, PayloadTooLarge) as error:
        return _Drafted(row, draft, title, amount, error.message)
    # The gate presents the edited value as it will after signing.
    reworded = present_edit(
        gate_of(compiled, row), row.channel, value, original=proposed, shown=shown
    )
    edited_amount = _amount_in(reworded)
    if edited_amount != amount:
        amount = f"{edited_amount} instead of {amount}"
    return _Drafted(row, draft, title_of(row, reworded), amount, value=value)


def _amount_in(shown: Mapping[str, Any]) -> str:
    money = shown.get("money")
    return "" if money is None else str(money)


def _counts(draft: DraftChoice, state: RequestState, row: PendingWrite) -> bool:
    """Return whether a draft is a verdict on the newest revision of an open write."""
    if not draft.verdict or draft.hash != row.hash:
        return False
    return not state.standings[row.write].settled


def _edited_value(
    draft: DraftChoice,
    row: PendingWrite,
    compiled: Compiled,
    proposed: Any,
    drawing: DrawnCards,
) -> Any:
    """Return the value of a drafted edit. Raises `InvalidValue` and `PayloadTooLarge`
    if it could not be signed.
    """
    control = write_cards.control_of(compiled, row, proposed, drawing)
    choice = review_form.choice_of(draft, control)
    if choice.errors:
        raise InvalidValue(choice.errors[0])
    # The check that signing makes: the real type, and the size.
    channel = compiled.channel_of(row.node, row.channel)
    value = channel.stage(choice.value, limit=conf().max_value_bytes)
    shown = read_value(row, "shown") or {}
    require_allowed(shown, row, value, proposed=proposed_value(row))
    return value


def _lines_of_writes(
    state: RequestState,
    drafted: Sequence[_Drafted],
    after: Mapping[UUID, Standing],
    reworded: Collection[UUID],
) -> list[Line]:
    """Return a line for each write that signing changes."""
    lines = []
    titles = {write.write: write.title for write in drafted}
    for write in drafted:
        standing = after[write.write]
        cause = titles.get(standing.cause, "") if standing.cause else ""
        line = _line_of_write(state, write, standing, reworded, cause)
        if line is not None:
            lines.append(line)
    return lines


def _line_of_write(
    state: RequestState,
    drafted: _Drafted,
    after: Standing,
    reworded: Collection[UUID],
    cause: str,
) -> Line | None:
    """Return what becomes of a write; None if nothing does. `cause` is the title of the
    write with which it is rejected.
    """
    # What cannot be signed keeps the whole act from being signed.
    if drafted.wrong or (drafted.draft is not None and not cause):
        return _line_of(drafted, state, after)
    before = state.standings[drafted.write]
    if after.verdict == REJECTED:
        if before.verdict == REJECTED:
            return None
        if policy_of(state.request).all_or_nothing:
            text = "Rejected with it: all or nothing."
        else:
            text = f"Rejected with what it needs. That is: {cause}."
        return Line(drafted.title, text, icon="x")
    if drafted.write in reworded and before.by:
        text = (
            "Your edit changes the title or the facts beside it. Signatures that no"
            f" longer count: {len(before.by)}."
        )
        return Line(drafted.title, text, icon="clock")
    return None


def _add_request(
    following: Next,
    compiled: Compiled | None,
    state: RequestState,
    drafted: Sequence[_Drafted],
    after: Mapping[UUID, Standing],
    ahead: Ahead,
) -> None:
    """Add what runs after the request, or that it still waits for people."""
    result = outcome(after.values())
    # A draft that cannot be signed leaves its write open.
    if result is None or any(write.wrong for write in drafted):
        following.waits = True
        return
    if compiled is None or not any(write.draft for write in drafted):
        return
    # Nodes after the gate see the applied writes, not the rejected ones.
    fates = []
    for write in drafted:
        applied = after[write.write].verdict == APPROVED
        fates.append(Fate(write.row.channel, write.title, applied))
    renews = state.request.kind == AUTHORITY_KIND
    lines = lines_after(
        compiled, state.request.node, result, fates, ahead, renews=renews
    )
    following.then.append((f"Then, as {WHEN[result]}", lines or [NOTHING_FOLLOWS]))


def _beside_other_texts(
    compiled: Compiled | None,
    state: RequestState,
    drafted: Sequence[_Drafted],
    head_state: Callable[[], State],
) -> set[UUID]:
    """Return the writes that must be decided again when these drafts are signed: an
    edit changes the title or the facts beside them.
    """
    edits: dict[UUID, Any] = {}
    for write in drafted:
        if write.edits and not write.wrong:
            edits[write.write] = write.value
    if compiled is None or not edits:
        return set()
    try:
        texts = request_texts(state.request, compiled, state.writes, edits, head_state)
    except InvalidValue:
        # Signing refuses the edit for the same reason, and says it.
        return set()
    return {
        row.write
        for row in state.writes
        if row.write not in edits and has_other_texts(row, texts)
    }


def _standings(
    state: RequestState,
    drafted: Sequence[_Drafted],
    decisions: Sequence[Decision],
    by: int | None,
    reworded: Collection[UUID],
) -> dict[UUID, Standing]:
    """Return how the writes of a request stand once the drafts are signed."""
    verdicts = state.votes
    # The same judgement as that of signing, over rows that do not exist yet.
    held = []
    for write in drafted:
        row = write.row
        revision = row.revision
        # Signatures count for a revision; an edit of a write or of its texts makes a
        # new one.
        if write.edits or row.write in reworded:
            revision += 1
        author = by if write.edits else row.author_id
        held.append(Held(row.write, revision, author, row.channel))
        if write.draft is not None:
            verdict = write.draft.verdict
            verdicts.append(Given(row.write, revision, verdict, by, LATEST))
    return judge(held, verdicts, policy_of(state.request))


def _line_of(drafted: _Drafted, state: RequestState, after: Standing) -> Line:
    """Return what becomes of a write with a draft."""
    verdict = drafted.draft.verdict if drafted.draft else ""
    if drafted.wrong:
        what = {"edit": "Your edit"}.get(verdict, "It")
        text = f"{what} cannot be signed yet: {drafted.wrong}"
        return Line(drafted.title, text, icon="warn")
    if after.verdict in _NOT_HAPPENING:
        word, icon = _NOT_HAPPENING[after.verdict]
        return Line(drafted.title, f"{word}: it does not happen.", icon=icon)

    amount = f" Amount: {drafted.amount}." if drafted.amount else ""
    if after.verdict == APPROVED:
        approved = "Approved as you edit it" if verdict == "edit" else "Approved"
        return Line(drafted.title, f"{approved}.{amount}")
    if verdict == "edit":
        text = _after_edit(state, drafted.row)
        return Line(drafted.title, f"{text}{amount}", icon="pen")
    if verdict == "reject":
        needed_rejections = state.request.policy["reject_quorum"]
        text = f"One rejection of {needed_rejections}; it stays open."
        return Line(drafted.title, text, icon="x")
    have = after.beside(verdict)
    needed = state.request.quorum
    text = f"{have} of {needed} signatures; it waits for {needed - have} more."
    return Line(drafted.title, f"{text}{amount}", icon="clock")


_NOT_HAPPENING = {REJECTED: ("Rejected", "x"), SKIPPED: ("Skipped", "slash")}
"""The word and the icon of a write of which nothing comes."""


def _after_edit(state: RequestState, row: PendingWrite) -> str:
    lost = len(state.standings[row.write].by)
    # An edit is a new revision; signatures were for the older one.
    again = f" Signatures before it no longer count: {lost}." if lost else ""
    if policy_of(state.request).four_eyes:
        return f"Your edit is proposed; somebody else must sign it.{again}"
    return f"Your edit is proposed, with your signature; it waits for others.{again}"
