"""The parts of the review page as plain values: questions, slips, signature slots. Built from rows, no queries."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from approvals.forms import controls
from approvals.forms.controls import Control
from approvals.gates.request_state import RequestState
from approvals.models import Decision, RequestStatus
from approvals.views import card_pages, comparison
from approvals.views.card_pages import CardPages, Pager, Raw
from approvals.views.edit_script import Steps
from approvals.views.inbox import asked_of, name_of, time_of
from approvals.views.leaf import Leaf, leaf_of
from approvals.views.review_form import Choice
from approvals.views.write_effects import WriteEffect, effect_of_write
from checkpoints.core.visible_json import label_of
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.sealing import sealed_columns
from orchestrator.engine.compile import Compiled
from orchestrator.engine.trace import is_memory
from orchestrator.engine.verdicts import Standing

Forms = Callable[[str], bool]
LARGE = 32 * 1024
"""Bytes of a value from which its edit form is drawn only where somebody asks for it."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a page draws of its cards: which page of which part, and which edit forms.

    `fields` says of a write whether its form is drawn field by field, the others being edited as JSON; `asked`,
    whether somebody asked for it, which a large value needs. All cards share the `steps` that comparing may take.
    """

    fields: Forms
    asked: Forms
    pages: CardPages = field(default_factory=CardPages)
    steps: Steps = field(default_factory=Steps)


LOOKS = {"approved": ("Approved", "check", ""), "rejected": ("Rejected", "x", "n")}
DID = {"approve": "approved it", "edit": "edited it", "reject": "rejected it"}


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
    original: Raw | None = None
    stale: str = ""
    settled_line: str = ""
    effect: WriteEffect = field(default_factory=WriteEffect)
    chosen: str = ""
    reason: str = ""
    errors: list[str] = field(default_factory=list)

    @property
    def write(self) -> str:
        return str(self.row.write)

    @property
    def anchor(self) -> str:
        return f"w{self.number}"

    @property
    def first(self) -> bool:
        return self.number == 1

    @property
    def version(self) -> str:
        """Changes with everything that a person decides on."""
        return f"{self.row.hash[:16]}-{self.standing.verdict}-{len(self.standing.by)}"

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
class Question:
    """One request: what it asks, and its slips."""

    id: UUID
    title: str
    facts: list[dict[str, Any]]
    why: str
    why_not: str
    open: bool
    all_or_nothing: bool
    slips: list[WriteCard]


@dataclass(frozen=True, slots=True)
class Slot:
    """One needed signature."""

    name: str
    text: str
    at: datetime | None = None

    @property
    def open(self) -> bool:
        return self.at is None


def question(
    asked: RequestState,
    why_not: str,
    decisions: Iterable[Decision],
    compiled: Compiled | None,
    *,
    first: int,
    drawing: Drawing,
) -> Question:
    """One request as the page shows it. `first` is the number of its first slip; without `compiled` nothing is
    edited.
    """
    request = asked.request
    by_write: dict[UUID, list[Signed]] = {}
    made = list(decisions)
    for decision in made:
        by_write.setdefault(decision.write, []).append(_signed(decision))
    is_open = request.status == RequestStatus.OPEN
    slips = [
        _slip(asked, row, compiled, drawing, number=first + n, signed=by_write.get(row.write, []), may=not why_not)
        for n, row in enumerate(asked.writes)
    ]
    for slip in slips:
        slip.settled_line = _settled_line(slip, made)
    facts = [_fact(f["label"], f.get("value")) for f in sealed_columns.read_value(request, "facts") or ()]
    title = str(sealed_columns.read_value(request, "title") or f"Decide what {request.node} proposes")
    why = str(sealed_columns.read_value(request, "why") or "")
    why_not = why_not if is_open else ""
    return Question(request.id, title, facts, why, why_not, is_open, request.policy["all_or_nothing"], slips)


def _settled_line(slip: WriteCard, decisions: Iterable[Decision]) -> str:
    """Who settled a write, and when; empty where nobody has."""
    standing = slip.standing
    if not standing.settled:
        return ""
    counted = [d for d in decisions if d.by_id in standing.by]
    people = dict.fromkeys("the system" if d.by is None else name_of(d.by) for d in counted)
    at = max((d.at for d in counted if d.event_seq <= standing.seq), default=None)
    by = f" by {' and '.join(people)}" if people else ""
    return f"{slip.verdict_label}{by}{f' at {time_of(at)}' if at else ''}."


def _fact(label: Any, value: Any) -> dict[str, Any]:
    return {"label": str(label), "leaf": leaf_of(value, longest=300)}


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
    signed: list[Signed],
    may: bool,
) -> WriteCard:
    value, base = sealed_columns.read_value(row, "value"), pending_writes.base_of(row)
    shown = sealed_columns.read_value(row, "shown") or {}
    standing, write = asked.standings[row.write], str(row.write)
    is_open = asked.request.status == RequestStatus.OPEN and not standing.settled
    adds = not base.bound
    editable = may and is_open and compiled is not None and row.channel in compiled.channels
    change = comparison.compare(base.value, value, adds=adds, change=shown.get("change", ()), steps=drawing.steps)
    raw = partial(card_pages.raw_json, pages=drawing.pages, write=write)
    return WriteCard(
        number=number,
        row=row,
        request=asked.request.id,
        title=row.label or f"{row.node} sets {row.channel}",
        say=_say(shown.get("reversible"), row.channel),
        shown=page_of(change, drawing.pages, write),
        raw=raw("proposed", value, part="json"),
        raw_now=raw("there already" if adds else "now", base.value, part="now"),
        beside=[raw(label_of(name), other, part=f"beside{n}") for n, (name, other) in enumerate(base.shows.items())],
        adds=adds,
        standing=standing,
        open=is_open,
        may=may and is_open,
        reason_required=row.channel in asked.request.policy["reason_required"],
        control=_control(compiled, row, value, drawing) if editable and compiled else None,
        signed=signed,
        drawing=drawing,
        editable=editable,
        stale=_stale(row) if is_open else "",
        effect=effect_of_write(compiled, row.node, row.channel),
    )


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
    if row.reason == "rebase":
        return "Its current value moved after it was proposed, so it needs to be decided anew."
    return "A reviewer edited this. You decide on the edited value." if row.reason == "edit" else ""


def _control(compiled: Compiled, row: PendingWrite, value: Any, drawing: Drawing) -> Control | None:
    write = str(row.write)
    if row.size > LARGE and not drawing.asked(write):
        return None
    if not drawing.fields(write):
        return controls.root({}, prefix=f"e-{row.write}", value=value)
    channel = compiled.channels[row.channel]
    definitions = channel.model.model_json_schema(by_alias=False).get("$defs", {})
    return controls.root({**channel.schema, "$defs": definitions}, prefix=f"e-{row.write}", value=value)


def add_original(slip: WriteCard, value: Any) -> None:
    """Put what the node had proposed beside an edited write."""
    slip.original = card_pages.raw_json("originally", value, slip.drawing.pages, slip.write, "original")


def keep_choice(slip: WriteCard, choice: Choice) -> None:
    """Put what was chosen back onto its slip."""
    slip.chosen, slip.reason, slip.errors = choice.verdict, choice.reason, choice.errors
    if choice.control is not None:
        slip.control = choice.control


def slots(asked: Mapping[UUID, RequestState], decisions: Iterable[Decision], user: Any, may_sign: bool) -> list[Slot]:
    """Who signed, and what is still open: one slot a person, and one for each signature that is lacking."""
    per_person: dict[Any, list[Decision]] = {}
    for decision in decisions:
        per_person.setdefault(decision.by_id, []).append(decision)
    found = [Slot(_person(given[0], user), _summary(given), max(d.at for d in given)) for given in per_person.values()]
    lacking = max((_lacking(one) for one in asked.values()), default=0)
    for number in range(lacking):
        own = may_sign and number == 0 and user.pk not in per_person
        names = {p for one in asked.values() for p in one.request.policy["reviewers"]}
        others = Slot("Somebody else", f"May sign: {asked_of(sorted(names), user)}.")
        found.append(Slot("You", "") if own else others)
    return found


def _lacking(asked: RequestState) -> int:
    """How many signatures the least signed of the open writes still needs."""
    if asked.request.status != RequestStatus.OPEN:
        return 0
    still = [asked.request.quorum - len(s.by) for s in asked.standings.values() if not s.settled]
    return max(still, default=0)


def _person(decision: Decision, user: Any) -> str:
    if decision.by is None:
        return "The system"
    return "You" if decision.by_id == user.pk else name_of(decision.by)


def _summary(given: list[Decision]) -> str:
    counts = {word: sum(1 for d in given if d.verdict == word) for word in ("approve", "edit", "reject")}
    words = {"approve": "approved", "edit": "edited", "reject": "rejected"}
    return ", ".join(f"{words[word]} {count}" for word, count in counts.items() if count).capitalize() + "."
