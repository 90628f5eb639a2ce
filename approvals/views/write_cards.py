"""The parts of the review page as plain values: a question for each request, and a slip
for each pending write. Built from rows; only `why_in_words` may query a name.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from approvals.answers.policies import window_ends
from approvals.display import comparison
from approvals.display.leaf import Leaf, leaf_of
from approvals.display.value_types import (
    NOTHING_DECLARED,
    TEXT,
    ValueType,
    schema_of_answer,
    schema_of_channel,
    type_of_channel,
    type_of_fact,
    type_of_item,
)
from approvals.forms import controls
from approvals.forms.controls import Control
from approvals.gates.departed_line import DepartedLine
from approvals.gates.edited_texts import gate_of, gate_on_request
from approvals.gates.request_state import RequestState, policy_of, why_of
from approvals.models import VETO, ApprovalRequest, Decision, RequestStatus
from approvals.views import card_pages
from approvals.views.asked_before import AskedBefore
from approvals.views.card_pages import FIELDS, JSON, CardPages, DrawnCards, Pager, Raw
from approvals.views.inbox import name_of_decider, names_of, time_of
from approvals.views.reports import Reported, reported_on
from approvals.views.review_form import Choice
from approvals.views.write_effects import WriteEffect, effect_of_write, with_named
from approvals.views.write_groups import (
    Fields,
    WriteGroup,
    WriteLine,
    amount_of,
    changed_fields,
    grouped,
)
from checkpoints.core.visible_json import label_of
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.models.pending_write import RevisionReason
from checkpoints.sealing import sealed_columns
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.gates.verdicts import AUTOMATIC, EXCLUDED, Standing, excludes
from orchestrator.engine.graphs.call import is_authority, is_call
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.limit import limit_in_words
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.graphs.trace import is_memory
from orchestrator.engine.graphs.write import named_effect, stored_form
from orchestrator.engine.registry import ASKING
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.values import canonical

LARGE = 32 * 1024
"""Size in bytes from which a value's edit form is drawn only on request."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person who looks at a request: the account's id, and why this person may not
    sign it; empty if they may.
    """

    id: int | None
    why_not: str


STALE = {
    "rebase": (
        "Its current value moved after it was proposed, so it needs to be decided anew."
    ),
    "edit": "A reviewer edited this. You decide on the edited value.",
    "texts": (
        "An edit of another write changed the title or the facts above, so it needs to"
        " be decided anew."
    ),
}
"""The note on an open write, by the reason of its revision."""
MOST_NEEDS = 6
"""The most needed writes that are listed by number."""
DID = {
    "approve": "approved it",
    "edit": "edited it",
    "reject": "rejected it",
    "skip": "skipped it",
}
CHOSEN = {
    "approve": "Approved",
    "edit": "Edited",
    "reject": "Rejected",
    "skip": "Skipped",
}
LOOKS = {
    "approved": ("Approved", "check", ""),
    "rejected": ("Rejected", "x", "n"),
    "skipped": ("Skipped", "slash", "n"),
}
"""Label, icon and style of a settled write, by its verdict."""


@dataclass(frozen=True, slots=True)
class DecisionOnSlip:
    """One decision as a line on its slip."""

    name: str
    did: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The page of a comparison that a slip shows, and the page of unchanged fields."""

    parts: list[comparison.ShownRows]
    pager: Pager
    same: list[Any]
    same_count: int
    same_pager: Pager
    lead: list[tuple[str, Leaf | None]]
    unlisted: str


@dataclass(slots=True)
class WriteCard:
    """One pending write as its slip shows it."""

    number: int
    row: PendingWrite
    request: UUID
    title: str
    say: str
    shown: Shown
    raw: Raw
    raw_now: Raw
    beside: list[Raw]
    adds: bool
    standing: Standing
    open: bool
    may: bool
    reason_required: bool
    control: Control | None
    signed: list[DecisionOnSlip]
    drawing: DrawnCards
    editable: bool = False
    skippable: bool = False
    is_question: bool = False
    unanswered: bool = False
    as_proposed: str = ""
    why_not: str = ""
    own: str = ""
    original: Raw | None = None
    edit: "EditCard | None" = None
    before: list[DecisionOnSlip] = field(default_factory=list)
    stale: str = ""
    left_open: str = ""
    settled_line: str = ""
    limits: Sequence[str] = ()
    needs: str = ""
    withdrawn: bool = False
    named_effect: str = ""
    of_item: bool = False
    reported: Reported | None = None
    effect: WriteEffect = field(default_factory=WriteEffect)
    lost: str = ""
    not_sent: str = ""
    opened_token: str = ""
    chosen: str = ""
    reason: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def write(self) -> str:
        return str(self.row.write)

    @property
    def of_patch(self) -> bool:
        return bool(self.row.node == PATCH)

    @property
    def kind(self) -> str:
        """Return what a list names beside its title: the effect of an item, and of other
        writes the channel.
        """
        return self.named_effect if self.of_item else str(self.row.channel)

    @property
    def of_call(self) -> bool:
        """Return whether it is a call, which people decide before its node runs."""
        return is_call(self.row.channel)

    @property
    def of_authority(self) -> bool:
        """Return whether people are asked again about what a node acts on."""
        return is_authority(self.row.channel)

    @property
    def anchor(self) -> str:
        return f"w{self.number}"

    @property
    def shape(self) -> str:
        """The edit form that is drawn, `fields` or `json`; it is posted with the form."""
        if self.drawing.fields(self.write):
            return FIELDS
        return JSON

    @property
    def version(self) -> str:
        """A text that changes with everything that a person decides on."""
        parts = [
            self.row.hash[:16],
            self.standing.verdict,
            str(len(self.standing.by)),
            # Why it was left to people, or when it may be signed by itself.
            self.left_open,
        ]
        if self.withdrawn:
            parts.append("withdrawn")
        return "-".join(parts)

    @property
    def verdict(self) -> str:
        return self.standing.verdict

    @property
    def verdict_label(self) -> str:
        if self.is_question and _is_approved_edit(self.standing, self.row):
            return "Answered"
        return _verdict_label(self.standing, self.row)

    @property
    def verdict_style(self) -> str:
        return LOOKS[self.verdict][2]

    @property
    def settled_icon(self) -> str:
        if not self.verdict:
            return "dots"
        if _is_approved_edit(self.standing, self.row):
            return "pen"
        return LOOKS[self.verdict][1]

    @property
    def by_system(self) -> bool:
        return self.standing.by in ((None,), (AUTOMATIC,))

    def __getattr__(self, name: str) -> Any:
        # The template reads the row's own columns through its slip.
        return getattr(self.row, name)


@dataclass(frozen=True, slots=True)
class EditCard:
    """The change that an edit made, in the form that the template of a change reads."""

    anchor: str
    write: str
    number: int
    shown: Shown
    beside: tuple[Raw, ...] = ()


@dataclass(slots=True)
class Question:
    """One request with its title and facts, and its slips; in a review of many writes
    all of them as lines, in groups or apart.
    """

    id: UUID
    title: str
    facts: list[dict[str, Any]]
    why: str
    why_not: str
    open: bool
    all_or_nothing: bool
    four_eyes: bool
    slips: list[WriteCard]
    reason: str = ""
    of_patch: bool = False
    of_items: bool = False
    lines: list[WriteLine] = field(default_factory=list)
    groups: list[WriteGroup] = field(default_factory=list)
    apart: list[WriteLine] = field(default_factory=list)
    reason_required: Collection[str] = ()
    considered: int | str | None = None
    pager: Pager | None = None
    shown_lines: Sequence[WriteLine] = ()
    for_whom: str = ""
    before: AskedBefore | None = None

    @property
    def name(self) -> str:
        return str(self.id)


def question(
    state: RequestState,
    viewer: Viewer,
    decisions: Iterable[Decision],
    compiled: Compiled | None,
    *,
    first: int,
    drawing: DrawnCards,
    line: DepartedLine,
    drawn: Collection[str] | None = None,
) -> Question:
    """Return one request as the page shows it. `first` is the number of its first slip;
    without `compiled` nothing can be edited. `line` is the line of its run. In a review
    of many writes only those that are `drawn` become slips; all become lines.
    """
    request = state.request
    decisions = list(decisions)
    by_write: dict[UUID, list[Decision]] = {}
    for decision in decisions:
        by_write.setdefault(decision.write, []).append(decision)

    slips: list[WriteCard] = []
    lines: list[WriteLine] = []
    numbers = _numbers_of(state, first)
    ends = window_ends(state)
    for row in state.writes:
        number = numbers[row.write]
        own = by_write.get(row.write, [])
        settled_line = _settled_line_of(state, row, by_write, numbers)
        if drawn is None or str(row.write) in drawn:
            slip = _slip(
                state,
                row,
                compiled,
                drawing,
                number=number,
                decisions=own,
                viewer=viewer,
            )
            slip.settled_line = settled_line
            slip.left_open = _answer_to(state, row, ends.get(row.write))
            slip.needs = _needs_in_words(state, row, numbers)
            slip.withdrawn = request.status == RequestStatus.WITHDRAWN
            slip.before = [_signed(decision) for decision in line.before_of(row)]
            slip.effect = _effect_of(slip, compiled, line)
            slips.append(slip)
        # A review of many has a line for each write, drawn whole or not.
        if drawn is not None:
            lines.append(
                _line(
                    state,
                    row,
                    compiled,
                    line,
                    number=number,
                    settled_line=settled_line,
                    viewer=viewer,
                )
            )
    _add_reports(slips, request)
    # Similar writes can be decided as one.
    groups, apart = grouped(lines)

    # The reason why this person may not sign matters only while others may.
    is_open = request.status == RequestStatus.OPEN
    why_not = viewer.why_not if is_open else ""
    of_patch = request.node == PATCH
    policy = policy_of(request)
    return Question(
        id=request.id,
        title=_title(request),
        facts=_facts(request, state.writes, compiled),
        why=why_in_words(why_of(request)),
        why_not=why_not,
        open=is_open,
        all_or_nothing=policy.all_or_nothing,
        four_eyes=policy.four_eyes,
        slips=slips,
        reason=line.reason if of_patch else "",
        of_patch=of_patch,
        of_items=is_item(request),
        lines=lines,
        groups=groups,
        apart=apart,
        reason_required=request.policy["reason_required"],
        considered=request.policy.get("considered"),
    )


def _title(request: ApprovalRequest) -> str:
    title = sealed_columns.read_value(request, "title")
    return str(title or f"Decide what {request.node} proposes")


def _line(
    state: RequestState,
    row: PendingWrite,
    compiled: Compiled | None,
    line: DepartedLine,
    *,
    number: int,
    settled_line: str,
    viewer: Viewer,
) -> WriteLine:
    """Return one write of many as it is shown before it is opened."""
    shown = _shown_in(row)
    form = stored_form(shown)
    effect = effect_of_write(compiled, row.node, row.channel, line.ahead)
    standing = state.standings[row.write]
    is_open = _is_open(state, standing)
    changed: Fields = {"": (None, None)}
    others: Fields = {}
    declared = _declared(state, row, compiled, shown)
    # A large value is not compared field by field.
    if is_open and row.size <= LARGE:
        base = _base_of(state, row)
        value = sealed_columns.read_value(row, "value")
        adds = _adds(row, base)
        changed, others = changed_fields(
            base.value, value, adds=adds, stated=shown.get("change", ())
        )
        # The fields compared are those of the one item that is added.
        if adds and isinstance(value, list):
            declared = declared.field("")
    return WriteLine(
        number,
        row,
        state.request.id,
        title_of(row, shown),
        "Items" if is_item(state.request) else name_of_writes(compiled, row),
        open=is_open,
        may=is_open and not (viewer.why_not or _why_not(state, row, viewer)),
        changed=changed,
        others=others,
        declared=declared,
        effect=with_named(effect, named_effect(form)),
        form="" if form is None else canonical.digest(canonical.dumps(form)),
        of_item=is_item(state.request),
        unanswered=is_unanswered(shown),
        amount=amount_of(shown.get("money")),
        settled_line=settled_line,
    )


def _shown_in(row: PendingWrite) -> dict[str, Any]:
    """Return the stored presentation of the write."""
    return sealed_columns.read_value(row, "shown") or {}


def _is_open(state: RequestState, standing: Standing) -> bool:
    """Return whether a write can still be decided."""
    return state.request.status == RequestStatus.OPEN and not standing.settled


_PATCHED = re.compile(
    r"(.+?) set this(?: by a patch)?, so it needs the signatures"
    r" that the gate of (\S+) asks for\.?"
)


def why_in_words(why: str) -> str:
    """Return why a request was opened, as a page words it: with the name of the person
    who patched a value, not the account.
    """
    match = _PATCHED.match(why)
    if match is None:
        return why
    author, gate = match.groups()
    if " set this by a patch" in why:
        # Only the account of a person is looked up; other authors are not accounts.
        cause = f"{names_of([author]).get(author, author)} changed this by hand."
    else:
        cause = f"{author} set this."
    rest = why[match.end() :].strip()
    return f"{cause} It needs the same signatures as at {gate}. {rest}".strip()


def _numbers_of(state: RequestState, first: int) -> dict[UUID, int]:
    """Return the numbers of a request's slips, by write; `first` is the first one."""
    return {row.write: number for number, row in enumerate(state.writes, start=first)}


def _settled_line_of(
    state: RequestState,
    row: PendingWrite,
    decisions: Mapping[UUID, Sequence[Decision]],
    numbers: Mapping[UUID, int],
) -> str:
    """Return who settled a write, and when. `decisions` and the `numbers` of slips are
    by write.
    """
    standing = state.standings[row.write]
    cause = standing.cause
    if cause is None:
        line = _settled_line(standing, row, decisions.get(row.write, ()))
        if row.position in state.request.policy.get("asks", ()):
            return line.replace("Edited", "Answered", 1)
        return line
    # A write that was rejected with another one was settled by decisions on that.
    return _settled_line(
        standing, row, decisions.get(cause, ()), cause=f"write {numbers[cause]}"
    )


def _settled_line(
    standing: Standing,
    row: PendingWrite,
    decisions: Iterable[Decision],
    *,
    cause: str = "",
) -> str:
    """Return who settled a write, and when; empty while it is not settled. `cause`
    names the write with which it was rejected.
    """
    if not standing.settled:
        return ""
    # Signatures on older revisions, and those that four eyes exclude, settled nothing.
    counted = [decision for decision in decisions if decision.voter in standing.by]
    people = dict.fromkeys(name_of_decider(decision) for decision in counted)
    # A decision made after the write was settled does not show when it was settled.
    times = [decision.at for decision in counted if decision.event_seq <= standing.seq]
    sentence = _verdict_label(standing, row)
    if cause:
        sentence += f" with {cause}"
    if people:
        sentence += f" by {' and '.join(people)}"
    if times:
        sentence += f" at {time_of(max(times))}"
    return f"{sentence}."


def _is_approved_edit(standing: Standing, row: PendingWrite) -> bool:
    return standing.verdict == "approved" and row.reason == "edit"


def _verdict_label(standing: Standing, row: PendingWrite) -> str:
    if _is_approved_edit(standing, row):
        return "Edited"
    return LOOKS[standing.verdict][0]


def _facts(
    request: ApprovalRequest,
    rows: Sequence[PendingWrite],
    compiled: Compiled | None,
) -> list[dict[str, Any]]:
    """Return the facts of a request as they were fixed when it was opened; amounts are
    formatted as their types declare.
    """
    # A fact is stored without its type, which the graph declares at its path.
    paths = _paths_of_facts(request, rows, compiled)
    facts = []
    for fact in sealed_columns.read_value(request, "facts") or ():
        path = paths.get(fact["label"], "")
        declared = type_of_fact(compiled, path) if path else NOTHING_DECLARED
        # What a caller says in words is no oddity, whatever it looks like.
        if is_item(request) and isinstance(fact.get("value"), str):
            declared = TEXT
        facts.append(_fact(str(fact["label"]), fact.get("value"), declared))
    return facts


def _paths_of_facts(
    request: ApprovalRequest,
    rows: Sequence[PendingWrite],
    compiled: Compiled | None,
) -> dict[str, str]:
    """Return the paths at which the gate of these writes finds its facts, by label."""
    if compiled is None or not rows:
        return {}
    try:
        gate = gate_on_request(compiled, request) or gate_of(compiled, rows[0])
    except InvalidValue:
        # Of an input that was erased nobody knows what its terms would name.
        return {}
    return {fact.label: fact.path for fact in gate.facts}


def _fact(label: str, value: Any, declared: ValueType) -> dict[str, Any]:
    return {"label": label, "leaf": leaf_of(value, longest=300, declared=declared)}


def _signed(decision: Decision) -> DecisionOnSlip:
    reason = sealed_columns.read_value(decision, "reason")
    name = name_of_decider(decision)
    return DecisionOnSlip(
        name=f"{name[:1].upper()}{name[1:]}" if decision.by is None else name,
        did=DID[decision.verdict],
        at=decision.at,
        reason=str(reason or ""),
    )


def _slip(
    state: RequestState,
    row: PendingWrite,
    compiled: Compiled | None,
    drawing: DrawnCards,
    *,
    number: int,
    decisions: Sequence[Decision],
    viewer: Viewer,
) -> WriteCard:
    value = sealed_columns.read_value(row, "value")
    shown = _shown_in(row)
    base = _base_of(state, row)
    standing = state.standings[row.write]

    is_open = _is_open(state, standing)
    why_not = _why_not(state, row, viewer)
    may = is_open and not (viewer.why_not or why_not)
    own = _own(state, row, decisions, viewer) if may else ""
    stale = _stale(row, shown) if is_open and not why_not else ""
    # Without the version of the graph there is no type that an edit could be held to.
    control = None
    editable = False
    if may and _declares_channel(compiled, row):
        editable = True
        control = control_of(cast(Compiled, compiled), row, value, drawing)

    change = comparison.compare(
        base.value,
        value,
        adds=_adds(row, base),
        change=shown.get("change", ()),
        steps=drawing.steps,
        declared=_declared(state, row, compiled, shown),
    )
    write = str(row.write)
    return WriteCard(
        number=number,
        row=row,
        request=state.request.id,
        title=title_of(row, shown),
        say=_say_of(shown, row.channel),
        shown=page_of(change, drawing.pages, write),
        **_raw_of(value, base, drawing.pages, write),
        adds=_adds(row, base),
        standing=standing,
        open=is_open,
        may=may,
        reason_required=row.channel in state.request.policy["reason_required"],
        control=control,
        signed=[_signed(decision) for decision in decisions],
        drawing=drawing,
        editable=editable,
        skippable=policy_of(state.request).skip,
        is_question="ask" in shown,
        unanswered=is_unanswered(shown),
        as_proposed=str(shown.get("as_proposed") or ""),
        why_not=why_not,
        own=own,
        stale=stale,
        limits=_limits_in_words(shown),
        named_effect=named_effect(stored_form(shown)),
        of_item=is_item(state.request),
    )


def _answer_to(state: RequestState, row: PendingWrite, end: datetime | None) -> str:
    """Return the last answer of the gate's own functions on an open write, as a sentence:
    why its policy left it to people, or its veto keeps it open; or when it may be signed
    by itself, at the `end` of its window. Empty if there is nothing to say.
    """
    if not _is_open(state, state.standings[row.write]):
        return ""
    sentence = ""
    if end is not None:
        sentence = (
            f"May sign by itself at {time_of(end)} unless somebody decides before"
        )
    for answer in state.answers:
        if (answer.write, answer.revision) == (row.write, row.revision):
            sentence = _in_words(answer)
    return sentence


def _in_words(answer: Decision) -> str:
    reason = sealed_columns.read_value(answer, "reason") or ""
    beginning = f"Left to people by {answer.by_name}"
    if answer.verdict == VETO:
        beginning = f"Kept open by the veto of its gate at {time_of(answer.at)}"
    return f"{beginning}: {reason}"


def _adds(row: PendingWrite, base: pending_writes.StoredBase) -> bool:
    """Return whether a write is combined with the existing value. A call is compared
    with nothing, so all of it is new.
    """
    return not base.bound and not is_call(row.channel)


def _limits_in_words(shown: Mapping[str, Any]) -> list[str]:
    """Return the limits of an edit, each as a reviewer reads it."""
    return [limit_in_words(limit) for limit in shown.get("limits", ())]


def _needs_in_words(
    state: RequestState,
    row: PendingWrite,
    numbers: Mapping[UUID, int],
) -> str:
    """Return a sentence on the writes that this open one needs; empty if there are
    none. `numbers` are those of the slips, by write.
    """
    if not _is_open(state, state.standings[row.write]):
        return ""
    needed_channels = policy_of(state.request).needs.get(row.channel, ())
    if not needed_channels:
        return ""
    needed: list[str] = []
    for other in state.writes:
        if other.channel in needed_channels:
            needed.append(str(numbers[other.write]))
    if not needed:
        return ""
    if len(needed) == 1:
        return f"Needs write {needed[0]}: if that is rejected, so is this."
    if len(needed) > MOST_NEEDS:
        return (
            f"Needs {len(needed):,} other writes: if one of them is rejected, so is "
            "this."
        )
    listed = f"{', '.join(needed[:-1])} and {needed[-1]}"
    return f"Needs writes {listed}: if one of them is rejected, so is this."


def _declares_channel(compiled: Compiled | None, row: PendingWrite) -> bool:
    return compiled is not None and compiled.has_channel(row.node, row.channel)


def _add_reports(slips: Iterable[WriteCard], request: ApprovalRequest) -> None:
    """Add to each slip what whoever asked reported of it."""
    reported = reported_on([request])
    for slip in slips:
        slip.reported = reported.get(slip.row.write)


def _effect_of(
    slip: WriteCard, compiled: Compiled | None, line: DepartedLine
) -> WriteEffect:
    effect = effect_of_write(compiled, slip.row.node, slip.row.channel, line.ahead)
    effect = with_named(effect, slip.named_effect)
    # No node follows that an item could be of, so its own effect is all of it.
    if slip.of_item and slip.named_effect:
        return replace(effect, effect=slip.named_effect)
    return effect


def is_item(request: ApprovalRequest) -> bool:
    """Return whether people decide on items that a caller named, with no graph. They are
    kept in a channel, which concerns nobody.
    """
    return request.graph == ASKING and request.node != PATCH


def _declared(
    state: RequestState,
    row: PendingWrite,
    compiled: Compiled | None,
    shown: Mapping[str, Any],
) -> ValueType:
    """Return the type of a write's value; of an item it is the caller's schema."""
    if not is_item(state.request):
        return type_of_channel(compiled, row.node, row.channel)
    return type_of_item(stored_form(shown))


def _base_of(state: RequestState, row: PendingWrite) -> pending_writes.StoredBase:
    """Return the value that a write is compared with. A patch replaces the value that
    is there, whatever the channel's reducer does; an item is compared with nothing.
    """
    base = pending_writes.base_of(row)
    if is_item(state.request):
        return replace(base, value=None, bound=True)
    if row.node != PATCH:
        return base
    # The channel that is patched is the base itself, and no longer context.
    others = {name: value for name, value in base.shows.items() if name != row.channel}
    return replace(base, bound=True, shows=others)


def _raw_of(
    value: Any,
    base: pending_writes.StoredBase,
    pages: CardPages,
    write: str,
) -> dict[str, Any]:
    """Return the values of a slip as raw JSON: `raw`, `raw_now`, and `beside` with the
    other values that the decision is bound to.
    """
    # An unbound write is combined with what is there, and need not replace it.
    now_label = "now" if base.bound else "there already"
    beside = []
    for number, (name, other) in enumerate(base.shows.items()):
        label = label_of(name)
        beside.append(
            card_pages.raw_json(label, other, pages, write, f"beside{number}")
        )
    return {
        "raw": card_pages.raw_json("proposed", value, pages, write, "json"),
        "raw_now": card_pages.raw_json(now_label, base.value, pages, write, "now"),
        "beside": beside,
    }


def title_of(row: PendingWrite, shown: Mapping[str, Any]) -> str:
    """Return the title of a write. `shown` is what the row stores for showing it."""
    return str(shown.get("label") or row.label or _plain_name(row))


def _plain_name(row: PendingWrite) -> str:
    if is_authority(row.channel):
        return f"What {row.node} acts on"
    if is_call(row.channel):
        return f"Call {row.node}"
    return f"{row.node} sets {row.channel}"


def name_of_writes(compiled: Compiled | None, row: PendingWrite) -> str:
    """Return the name of all writes like this one: the gate's label if it does not
    quote the value.
    """
    show = gate_of(compiled, row).writes.get(row.channel) if compiled else None
    # A label with a field of the value differs from write to write.
    if show and show.label and "{" not in show.label:
        return show.label
    return _plain_name(row)


def _why_not(state: RequestState, row: PendingWrite, viewer: Viewer) -> str:
    """Return why this person may not decide this open write, although perhaps others of
    the request.
    """
    if viewer.why_not or not _is_open(state, state.standings[row.write]):
        return ""
    # Four eyes: nobody decides on a value that they edited.
    excluded = excludes(policy_of(state.request), row.author_id, viewer.id)
    return EXCLUDED if excluded else ""


def _own(
    state: RequestState,
    row: PendingWrite,
    decisions: Sequence[Decision],
    viewer: Viewer,
) -> str:
    """Return a sentence on how this person's earlier verdict on the open write counts,
    and what a new one would do; empty if there is none that counts.
    """
    own = []
    for decision in decisions:
        if decision.by_id == viewer.id and decision.revision == row.revision:
            own.append(decision)
    if not own or viewer.id not in state.standings[row.write].by:
        return ""
    return (
        f"You {DID[own[-1].verdict]} already. It counts once; if you decide again, only"
        " the newer verdict counts."
    )


def page_of(change: comparison.Comparison, pages: CardPages, write: str) -> Shown:
    """Return the requested page of a comparison."""
    pager = pages.pager(write, "change", change.pages)
    same_pages = card_pages.count_pages(len(change.same), comparison.PAGE)
    same = pages.pager(write, "same", same_pages)
    start = same.number * comparison.PAGE
    return Shown(
        parts=change.page(pager.number),
        pager=pager,
        same=change.same.units(start, start + comparison.PAGE),
        same_count=len(change.same),
        same_pager=same,
        lead=change.lead,
        unlisted=change.unlisted,
    )


_ACTS = {
    "read": "Whoever asked looks something up with it once it is approved.",
    "write": "Whoever asked changes data with it once it is approved.",
    "external": "Whoever asked acts outside with it once it is approved.",
}
"""Effect of a write -> the sentence on what becomes of it."""


def _say_of(shown: Mapping[str, Any], channel: str) -> str:
    """Return a sentence on what is done with a write, or on whether it can be undone."""
    return _say_of_effect(shown) or _say(shown.get("reversible"), channel)


def _say_of_effect(shown: Mapping[str, Any]) -> str:
    """Return a sentence on what is done with a write elsewhere; empty where its node
    names no effect, or one that changes nothing.
    """
    form = stored_form(shown)
    return "" if form is None else _ACTS.get(str(form["effect"]), "")


def _say(reversible: Any, channel: str) -> str:
    """Return a sentence on whether a write can be undone."""
    if isinstance(reversible, str) and reversible:
        return reversible
    if reversible is not None:
        return "Can be undone." if reversible else "Cannot be undone."
    if is_memory(channel):
        return (
            "Is remembered for all runs once it is approved; a rewind does not undo it."
        )
    if is_call(channel):
        return "Nothing happens before it is approved."
    return "Becomes part of the run once it is approved."


def _stale(row: PendingWrite, shown: Mapping[str, Any]) -> str:
    if row.reason == RevisionReason.EDIT and "ask" in shown:
        return "A reviewer answered this. You decide on the answer."
    return STALE.get(row.reason, "")


def control_of(
    compiled: Compiled,
    row: PendingWrite,
    value: Any,
    drawing: DrawnCards,
) -> Control | None:
    """Return the edit form of a write; None if its value is large and nobody requested
    the form.
    """
    write = str(row.write)
    if row.size > LARGE and not drawing.requested(write):
        return None
    prefix = f"e-{row.write}"
    # An empty schema gets the plainest form, one field of JSON.
    if not drawing.fields(write):
        return controls.root({}, prefix=prefix, value=value)
    schema: Mapping[str, Any] = schema_of_channel(
        compiled.channel_of(row.node, row.channel)
    )
    shown = _shown_in(row)
    if "ask" in shown:
        schema = schema_of_answer(shown["ask"]["schema"], schema)
    form = stored_form(shown)
    if form is not None:
        schema = schema_of_answer(form["schema"], schema)
    return controls.root(schema, prefix=prefix, value=value)


def first_page(change: comparison.Comparison) -> Shown:
    """Return the first page of a comparison, for where there is no room for others."""
    # No page is requested, and no pager drawn; a note mentions the rest.
    shown = page_of(change, CardPages(), "")
    unlisted = shown.unlisted
    if change.pages > 1 or len(change.same) > comparison.PAGE:
        unlisted = f"{shown.unlisted}There is more than fits here. "
    return replace(
        shown,
        pager=Pager("change", 0, 1),
        same_pager=Pager("same", 0, 1),
        unlisted=unlisted,
    )


def add_original(slip: WriteCard, value: Any, declared: ValueType) -> None:
    """Put the node's proposal, `value`, beside an edited write. `declared` is the type
    of both.
    """
    edited = sealed_columns.read_value(slip.row, "value")
    change = comparison.compare(
        value,
        edited,
        steps=slip.drawing.steps,
        heads=("Proposed", "Edited"),
        declared=declared,
    )
    slip.edit = EditCard(
        f"{slip.anchor}-e", slip.write, slip.number, first_page(change)
    )
    slip.original = card_pages.raw_json(
        "originally", value, slip.drawing.pages, slip.write, "original"
    )


def keep_choice(slip: WriteCard, choice: Choice) -> None:
    """Put a choice back onto its slip."""
    slip.chosen = choice.verdict
    slip.reason = choice.reason
    slip.errors = choice.errors
    # The posted form has what was typed, and marks what cannot be read.
    if choice.control is not None:
        slip.control = choice.control
