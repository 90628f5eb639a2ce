"""The parts of the review page as plain values: questions, slips, signature slots. Built from rows, no queries."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from approvals.forms import controls
from approvals.forms.controls import Control
from approvals.gates.departed_line import DepartedLine
from approvals.gates.edited_texts import gate_of
from approvals.gates.request_state import RequestState, policy_of
from approvals.models import ApprovalRequest, Decision, RequestStatus
from approvals.views import card_pages, comparison
from approvals.views.card_pages import FIELDS, JSON, CardPages, Drawing, Pager, Raw
from approvals.views.inbox import name_of, names_of, time_of
from approvals.views.leaf import Leaf, leaf_of
from approvals.views.review_form import Choice
from approvals.views.value_types import NOTHING_DECLARED, ValueType, type_of_channel, type_of_fact
from approvals.views.write_effects import WriteEffect, effect_of_write
from approvals.views.write_groups import (
    Fields,
    Group,
    WriteLine,
    amount_of,
    changed_fields,
    grouped,
)
from checkpoints.core.visible_json import label_of
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_columns
from orchestrator.engine.compile import Compiled
from orchestrator.engine.held_patch import PATCH
from orchestrator.engine.trace import is_memory
from orchestrator.engine.verdicts import EXCLUDED, Standing, excludes

LARGE = 32 * 1024
"""Bytes of a value from which its edit form is drawn only where somebody asks for it."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at a request: the id of the account, and why this person may not sign it; empty where he may."""

    id: int | None
    why_not: str


STALE = {
    "rebase": "Its current value moved after it was proposed, so it needs to be decided anew.",
    "edit": "A reviewer edited this. You decide on the edited value.",
    "texts": "An edit of another write changed the title or the facts above, so it needs to be decided anew.",
}
"""What is said of an open write by the reason of its revision."""
DID = {"approve": "approved it", "edit": "edited it", "reject": "rejected it"}
CHOSEN = {"approve": "Approved", "edit": "Edited", "reject": "Rejected"}
LOOKS = {"approved": ("Approved", "check", ""), "rejected": ("Rejected", "x", "n")}


@dataclass(frozen=True, slots=True)
class Signed:
    """One decision as a line on its slip."""

    name: str
    did: str
    at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The page of a comparison that a slip shows, and the page of what is unchanged."""

    parts: list[comparison.Part]
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
    signed: list[Signed]
    drawing: Drawing
    editable: bool = False
    as_proposed: str = ""
    why_not: str = ""
    own: str = ""
    original: Raw | None = None
    edit: "EditCard | None" = None
    before: list[Signed] = field(default_factory=list)
    stale: str = ""
    settled_line: str = ""
    withdrawn: bool = False
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
    def anchor(self) -> str:
        return f"w{self.number}"

    @property
    def shape(self) -> str:
        """Which of the two edit forms is drawn; it is posted with it."""
        return FIELDS if self.drawing.fields(self.write) else JSON

    @property
    def version(self) -> str:
        """Changes with everything that a person decides on."""
        gone = "-withdrawn" if self.withdrawn else ""
        return f"{self.row.hash[:16]}-{self.standing.verdict}-{len(self.standing.by)}{gone}"

    @property
    def verdict(self) -> str:
        return self.standing.verdict

    @property
    def verdict_label(self) -> str:
        edited = self.verdict == "approved" and self.row.reason == "edit"
        return "Edited" if edited else LOOKS[self.verdict][0]

    @property
    def verdict_style(self) -> str:
        return LOOKS[self.verdict][2]

    @property
    def settled_icon(self) -> str:
        if self.verdict == "approved" and self.row.reason == "edit":
            return "pen"
        return LOOKS[self.verdict][1] if self.verdict else "dots"

    @property
    def by_system(self) -> bool:
        return self.standing.by == (None,)

    def __getattr__(self, name: str) -> Any:
        # The template reads the row's own columns through its slip.
        return getattr(self.row, name)


@dataclass(frozen=True, slots=True)
class EditCard:
    """What an edit changed, as the part of a slip that draws a change wants it."""

    anchor: str
    write: str
    number: int
    shown: Shown
    beside: tuple[Raw, ...] = ()


@dataclass(slots=True)
class Question:
    """One request: what it asks, and its slips; of many writes all as lines, in groups or apart."""

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
    lines: list[WriteLine] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    apart: list[WriteLine] = field(default_factory=list)
    reason_required: Collection[str] = ()
    pager: Pager | None = None
    shown_lines: Sequence[WriteLine] = ()

    @property
    def name(self) -> str:
        return str(self.id)


def question(
    asked: RequestState,
    viewer: Viewer,
    decisions: Iterable[Decision],
    compiled: Compiled | None,
    *,
    first: int,
    drawing: Drawing,
    line: DepartedLine,
    drawn: Collection[str] | None = None,
) -> Question:
    """One request as the page shows it. `first` is the number of its first slip; without `compiled` nothing is
    edited. `line` is that of its run. Of many writes only those that are `drawn` become slips; all become lines.
    """
    request = asked.request
    made = list(decisions)
    by_write: dict[UUID, list[Decision]] = {}
    for decision in made:
        by_write.setdefault(decision.write, []).append(decision)
    is_open = request.status == RequestStatus.OPEN
    slips = [
        _slip(asked, row, compiled, drawing, number=first + n, given=by_write.get(row.write, []), viewer=viewer)
        for n, row in enumerate(asked.writes)
        if drawn is None or str(row.write) in drawn
    ]
    lines: list[WriteLine] = []
    if drawn is not None:
        lines = [
            _line(asked, row, compiled, line, number=first + n, given=by_write.get(row.write, []), viewer=viewer)
            for n, row in enumerate(asked.writes)
        ]
    groups, apart = grouped(lines)
    for slip in slips:
        slip.settled_line = _settled_line(slip, made)
        slip.withdrawn = request.status == RequestStatus.WITHDRAWN
        slip.before = [_signed(decision) for decision in line.before_of(slip.row)]
        slip.effect = effect_of_write(compiled, slip.row.node, slip.row.channel, line.ahead)
    facts = _facts(request, asked.writes, compiled)
    title = str(sealed_columns.read_value(request, "title") or f"Decide what {request.node} proposes")
    why = why_in_words(str(sealed_columns.read_value(request, "why") or ""))
    why_not = viewer.why_not if is_open else ""
    policy = policy_of(request)
    reason, whole = line.reason if request.node == PATCH else "", policy.all_or_nothing
    return Question(
        request.id,
        title,
        facts,
        why,
        why_not,
        is_open,
        whole,
        policy.four_eyes,
        slips,
        reason,
        of_patch=request.node == PATCH,
        lines=lines,
        groups=groups,
        apart=apart,
        reason_required=request.policy["reason_required"],
    )


def _line(
    asked: RequestState,
    row: PendingWrite,
    compiled: Compiled | None,
    line: DepartedLine,
    *,
    number: int,
    given: list[Decision],
    viewer: Viewer,
) -> WriteLine:
    """One write of many, before it is opened. A large value is not taken apart."""
    shown = sealed_columns.read_value(row, "shown") or {}
    standing = asked.standings[row.write]
    is_open = asked.request.status == RequestStatus.OPEN and not standing.settled
    changed: Fields = {"": (None, None)}
    others: Fields = {}
    declared = type_of_channel(compiled, row.channel)
    if is_open and row.size <= LARGE:
        base, value = _base_of(row), sealed_columns.read_value(row, "value")
        adds = not base.bound
        changed, others = changed_fields(base.value, value, adds=adds, stated=shown.get("change", ()))
        declared = declared.field("") if adds and isinstance(value, list) else declared
    settled = _settled_by(standing, row, given) if standing.settled else ""
    return WriteLine(
        number,
        row,
        asked.request.id,
        title_of(row, shown),
        name_of_writes(compiled, row),
        open=is_open,
        may=is_open and not (viewer.why_not or _why_not(asked, row, viewer)),
        changed=changed,
        others=others,
        declared=declared,
        effect=effect_of_write(compiled, row.node, row.channel, line.ahead),
        amount=amount_of(shown.get("money")),
        settled_line=settled,
    )


_PATCHED = re.compile(r"(.+?) set this(?: by a patch)?, so it needs the signatures that the gate of (\S+) asks for\.?")


def why_in_words(why: str) -> str:
    """Why people are asked, as a page says it: whoever patched a value is a person, not an account."""
    found = _PATCHED.match(why)
    if found is None:
        return why
    who, gate = found.groups()
    known = names_of([who]) if " set this by a patch" in why else {}
    said = f"{known.get(who, who)} changed this by hand." if known else f"{who} set this."
    rest = why[found.end() :].strip()
    return f"{said} It needs the same signatures as at {gate}. {rest}".strip()


def _settled_line(slip: WriteCard, decisions: Iterable[Decision]) -> str:
    """Who settled a write, and when; empty where nobody has."""
    return _settled_by(slip.standing, slip.row, decisions) if slip.standing.settled else ""


def _settled_by(standing: Standing, row: PendingWrite, decisions: Iterable[Decision]) -> str:
    edited = standing.verdict == "approved" and row.reason == "edit"
    label = "Edited" if edited else LOOKS[standing.verdict][0]
    counted = [d for d in decisions if d.by_id in standing.by]
    people = dict.fromkeys("the system" if d.by is None else name_of(d.by) for d in counted)
    at = max((d.at for d in counted if d.event_seq <= standing.seq), default=None)
    by = f" by {' and '.join(people)}" if people else ""
    return f"{label}{by}{f' at {time_of(at)}' if at else ''}."


def _facts(request: ApprovalRequest, rows: Sequence[PendingWrite], compiled: Compiled | None) -> list[dict[str, Any]]:
    """The facts of a request as they were fixed when it was opened; amounts read as their types declare."""
    paths = _paths_of_facts(rows, compiled)
    kept = sealed_columns.read_value(request, "facts") or ()
    return [_fact(str(fact["label"]), fact.get("value"), compiled, paths.get(fact["label"], "")) for fact in kept]


def _paths_of_facts(rows: Sequence[PendingWrite], compiled: Compiled | None) -> dict[str, str]:
    """Where the gate of these writes finds its facts, by label."""
    if compiled is None or not rows:
        return {}
    return {fact.label: fact.path for fact in gate_of(compiled, rows[0]).facts}


def _fact(label: str, value: Any, compiled: Compiled | None, path: str) -> dict[str, Any]:
    declared = type_of_fact(compiled, path) if path else NOTHING_DECLARED
    return {"label": label, "leaf": leaf_of(value, longest=300, declared=declared)}


def _signed(decision: Decision) -> Signed:
    name = name_of(decision.by) if decision.by else "The system"
    return Signed(name, DID[decision.verdict], decision.at, str(sealed_columns.read_value(decision, "reason") or ""))


def _slip(
    asked: RequestState,
    row: PendingWrite,
    compiled: Compiled | None,
    drawing: Drawing,
    *,
    number: int,
    given: list[Decision],
    viewer: Viewer,
) -> WriteCard:
    value, shown = (sealed_columns.read_value(row, name) for name in ("value", "shown"))
    base, shown, write, standing = _base_of(row), shown or {}, str(row.write), asked.standings[row.write]
    is_open = asked.request.status == RequestStatus.OPEN and not standing.settled
    why_not, adds = _why_not(asked, row, viewer) if is_open else "", not base.bound
    may = is_open and not (viewer.why_not or why_not)
    editable = may and compiled is not None and row.channel in compiled.channels
    declared = type_of_channel(compiled, row.channel)
    stated = shown.get("change", ())
    change = comparison.compare(base.value, value, adds=adds, change=stated, steps=drawing.steps, declared=declared)
    return WriteCard(
        number=number,
        row=row,
        request=asked.request.id,
        title=title_of(row, shown),
        say=_say(shown.get("reversible"), row.channel),
        shown=page_of(change, drawing.pages, write),
        **_raw_of(value, base, drawing.pages, write),
        adds=adds,
        standing=standing,
        open=is_open,
        may=may,
        reason_required=row.channel in asked.request.policy["reason_required"],
        control=control_of(compiled, row, value, drawing) if editable and compiled else None,
        signed=[_signed(decision) for decision in given],
        drawing=drawing,
        editable=editable,
        as_proposed=str(shown.get("as_proposed") or ""),
        why_not=why_not,
        own=_own(asked, row, given, viewer) if may else "",
        stale=_stale(row) if is_open and not why_not else "",
    )


def _base_of(row: PendingWrite) -> pending_writes.Base:
    """What a write is shown against. A patch takes the place of what is there, whatever the channel's reducer says."""
    base = pending_writes.base_of(row)
    if row.node != PATCH:
        return base
    return replace(base, bound=True, shows={name: one for name, one in base.shows.items() if name != row.channel})


def _raw_of(value: Any, base: pending_writes.Base, pages: CardPages, write: str) -> dict[str, Any]:
    """The values of a slip as raw JSON: `raw`, `raw_now`, and `beside` with what the decision is bound to besides."""
    raw = partial(card_pages.raw_json, pages=pages, write=write)
    return {
        "raw": raw("proposed", value, part="json"),
        "raw_now": raw("now" if base.bound else "there already", base.value, part="now"),
        "beside": [raw(label_of(name), one, part=f"beside{n}") for n, (name, one) in enumerate(base.shows.items())],
    }


def title_of(row: PendingWrite, shown: dict[str, Any]) -> str:
    """What a write is called. `shown` is what is shown of it, as its row keeps it."""
    return str(shown.get("label") or row.label or f"{row.node} sets {row.channel}")


def name_of_writes(compiled: Compiled | None, row: PendingWrite) -> str:
    """What all writes like this one are called: the gate's label where it reads nothing of the value."""
    show = gate_of(compiled, row).writes.get(row.channel) if compiled else None
    label = show.label if show and show.label else ""
    return label if label and "{" not in label else f"{row.node} sets {row.channel}"


def _why_not(asked: RequestState, row: PendingWrite, viewer: Viewer) -> str:
    """Why this person may not decide this one write, though perhaps others of the request."""
    excluded = not viewer.why_not and excludes(policy_of(asked.request), row.author_id, viewer.id)
    return EXCLUDED if excluded else ""


def _own(asked: RequestState, row: PendingWrite, given: list[Decision], viewer: Viewer) -> str:
    """What this person's earlier verdict on the open write does, and what another one would."""
    mine = [d for d in given if d.by_id == viewer.id and d.revision == row.revision]
    if not mine or viewer.id not in asked.standings[row.write].by:
        return ""
    return f"You {DID[mine[-1].verdict]} already. It counts once; if you decide again, only the newer verdict counts."


def page_of(change: comparison.Comparison, pages: CardPages, write: str) -> Shown:
    """The page of a comparison that somebody asked for."""
    pager = pages.pager(write, "change", change.pages)
    same = pages.pager(write, "same", max(1, -(-len(change.same) // comparison.PAGE)))
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


def _say(reversible: Any, channel: str) -> str:
    if isinstance(reversible, str) and reversible:
        return reversible
    if reversible is not None:
        return "Can be undone." if reversible else "Cannot be undone."
    if is_memory(channel):
        return "Is remembered for all runs once it is approved; a rewind does not undo it."
    return "Becomes part of the run once it is approved."


def _stale(row: PendingWrite) -> str:
    return STALE.get(row.reason, "")


def control_of(compiled: Compiled, row: PendingWrite, value: Any, drawing: Drawing) -> Control | None:
    """The edit form of a write; None where its value is large and nobody asked for the form."""
    write = str(row.write)
    if row.size > LARGE and not drawing.asked(write):
        return None
    if not drawing.fields(write):
        return controls.root({}, prefix=f"e-{row.write}", value=value)
    channel = compiled.channels[row.channel]
    definitions = channel.model.model_json_schema(by_alias=False).get("$defs", {})
    return controls.root({**channel.schema, "$defs": definitions}, prefix=f"e-{row.write}", value=value)


def first_page(change: comparison.Comparison) -> Shown:
    """The first page of a comparison, for where there is room for no more."""
    shown = page_of(change, CardPages(), "")
    more = change.pages > 1 or len(change.same) > comparison.PAGE
    rest = f"{shown.unlisted}There is more than fits here. " if more else shown.unlisted
    return replace(shown, pager=Pager("change", 0, 1), same_pager=Pager("same", 0, 1), unlisted=rest)


def add_original(slip: WriteCard, value: Any, declared: ValueType) -> None:
    """Put what the node had proposed beside an edited write. `declared` is the type of both."""
    edited = sealed_columns.read_value(slip.row, "value")
    heads = ("Proposed", "Edited")
    change = comparison.compare(value, edited, steps=slip.drawing.steps, heads=heads, declared=declared)
    slip.edit = EditCard(f"{slip.anchor}-e", slip.write, slip.number, first_page(change))
    slip.original = card_pages.raw_json("originally", value, slip.drawing.pages, slip.write, "original")


def keep_choice(slip: WriteCard, choice: Choice) -> None:
    """Put what was chosen back onto its slip."""
    slip.chosen, slip.reason, slip.errors = choice.verdict, choice.reason, choice.errors
    if choice.control is not None:
        slip.control = choice.control
