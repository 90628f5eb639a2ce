"""Gates: why a node waits for people, and what they are shown. Values and pure
functions, without the people who sign.

The compiler checks gates; the runner calls `needs_approval` and `present` once each,
and stores their answers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from string import Formatter
from typing import Any, Protocol

from orchestrator.engine.errors import BROKEN, described
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.effect import APPROVED, PARTIAL, REJECTED, SKIPPED
from orchestrator.engine.graphs.limit import UNKNOWN, Limit, as_json, field_of
from orchestrator.engine.graphs.write import Write
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.functions import name_of, takes_one
from orchestrator.engine.values.hints import explained_class
from orchestrator.engine.values.ops import same

PRINCIPALS = ("user:", "group:", "perm:")
NAMED_FIELDS = 3
"""The most fields that the label of an edited write names."""
ON_DEADLINE = ("reject", "approve", "fail")
"""The ways in which a deadline may end a request."""
LONGEST_DEADLINE = timedelta(days=36_600)
"""The longest time that a deadline may be ahead: a hundred years."""
LONGEST_IN_LABEL = 60
"""The most characters of a value that the label of an edited write shows."""
TERMS = (
    "reviewers",
    "quorum",
    "reject_quorum",
    "four_eyes",
    "all_or_nothing",
    "deadline",
    "on_deadline",
    "facts",
    "reports",
)
"""The options that a function of the input may set."""


@explained_class
@dataclass(frozen=True, slots=True)
class Fact:
    """A figure worth showing: `path` leads to it, as `payout.amount`, `input.claim_id`
    or `state.risk`.
    """

    label: str
    path: str
    indexed: bool = False


@explained_class
@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Show:
    """How writes to one channel are shown.

    `label` is a template over the value, such as "Pay {amount} to {payee}", or "Count
    to {value}" for a value that is no object. `reversible` is the sentence on what can
    be undone, `money` the path of an amount within the value. `limits` are the bounds of
    an edit, by path; `needs` the channels without whose writes this one makes no sense:
    if one of those is rejected, so is this. With `reason_required` a rejection needs a
    reason. `change` names the two keys under which the value itself
    states what it changes and into what; they are shown as the value's own claim, never
    as the present value.
    """

    label: str | None = None
    reversible: str | bool | None = None
    money: str | None = None
    limits: Mapping[str, Limit] = field(default_factory=dict)
    needs: Sequence[str] = ()
    reason_required: bool = False
    change: tuple[str, str] | None = None


@explained_class
@dataclass(frozen=True, kw_only=True)
class Gate:
    """The decision that people must make before the writes of a node count, or before
    it runs.

    `terms` is a function of the run's input, which returns options for this run. The
    input never changes, so neither a patch nor a fork can ask for less; and a request
    carries what it was opened under.

    `reports` is set by terms alone: whoever started the run acts on what is approved,
    and reports what came of it.
    """

    reviewers: Sequence[str] | Callable[[Any], Sequence[str]] | None = None
    quorum: int = 1
    reject_quorum: int = 1
    four_eyes: bool = False
    all_or_nothing: bool = False
    needs_approval: Callable[[Any, Any], Any] | None = None
    recheck: Callable[[Any, Any], Any] | None = None
    deadline: timedelta | Callable[[datetime, Any], datetime] | None = None
    on_deadline: str = "reject"
    tiers: Sequence[Any] = ()
    title: str = ""
    facts: Sequence[Fact] = ()
    shows: Sequence[str] = ()
    writes: Mapping[str, Show] = field(default_factory=dict)
    confirm: str | None = None
    confirm_above: Any = None
    considered: timedelta | str | None = None
    exclusive: bool = False
    claim_for: timedelta | None = None
    skip: bool = False
    auto: Callable[..., Any] | None = None
    standing: bool = False
    auto_after: timedelta | None = None
    veto: Callable[..., Any] | None = None
    terms: Callable[[Any], Mapping[str, Any]] | None = None
    reports: bool = False


def faults_of_terms(gate: Gate) -> Iterator[str]:
    """Yield what is wrong with terms, or with what stands beside them."""
    if gate.reports:
        yield "reports= is for terms= to say"
    if gate.terms is None:
        return
    if not callable(gate.terms) or not takes_one(gate.terms):
        yield f"terms={gate.terms!r} is no function of the input that returns options"
    for option in ("auto", "auto_after", "exclusive", "standing"):
        # They were examined beside a quorum and a deadline that terms would replace.
        if getattr(gate, option):
            yield f"{option}= cannot stand beside terms="
    if gate.on_deadline == "approve":
        yield "on_deadline='approve' cannot stand beside terms="


def terms_policy(gate: Gate) -> dict[str, Json]:
    """Return what a gate says of terms, as its structure has it: {terms: name of the
    function}; nothing where it has none.
    """
    # A gate without them has the fingerprint that it had before there were any.
    return {} if gate.terms is None else {"terms": name_of(gate.terms)}


def reports_policy(gate: Gate) -> dict[str, Json]:
    """Return a policy's entry on reports: {reports: true}, or nothing."""
    return {"reports": True} if gate.reports else {}


class Proposal(Mapping[str, Any]):
    """The proposal of a gated task, for `needs_approval`: channel -> value, the last of
    several; `writes` has all. `args` are the arguments of a call, else None.
    """

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = tuple(writes)
        self._last = {write.channel: write.value for write in writes}

    @property
    def args(self) -> Any:
        return self._last.get(CALL)

    def __getitem__(self, channel: str) -> Any:
        return self._last[channel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)


def needs_approval(
    gate: Gate,
    state: Any,
    proposal: Any,
) -> tuple[bool, str | None]:
    """Return whether people must decide, and the reason that the gate's function gave.
    Never raises: only the literal `False` means no; an exception means yes, and is the
    reason.
    """
    if gate.needs_approval is None:
        return True, None
    try:
        answer = gate.needs_approval(state, proposal)
    except BROKEN as error:
        return True, f"the check failed: {described(error)}"
    reason = answer if isinstance(answer, str) else None
    # Only the literal False: if a function forgets to return, nothing passes.
    return answer is not False, reason


def recheck(
    gate: Gate,
    state: Any,
    proposal: Any,
) -> str | None:
    """Return why what was approved at the gate must no longer be acted on; None if it
    still holds. Never raises: only the literal `True` means that it does; an exception
    means that it does not, and is the reason.
    """
    if gate.recheck is None:
        return None
    try:
        answer = gate.recheck(state, proposal)
    except BROKEN as error:
        return f"its recheck failed: {described(error)}"
    # Only the literal True: if a function forgets to return, nothing begins.
    if answer is True:
        return None
    if isinstance(answer, str) and answer:
        return answer
    return "its recheck says that it does not hold any more"


def outcome_of(verdicts: Sequence[str]) -> str:
    """Return approved if all are, rejected if all are, skipped if all are, else partial.
    Nothing at all is approved, and so is what was approved in part and else skipped.
    """
    different = {*verdicts}
    for outcome in (REJECTED, SKIPPED):
        if different == {outcome}:
            return outcome
    if different <= {APPROVED, SKIPPED}:
        return APPROVED
    return PARTIAL


def way_of(outcome: str) -> str:
    """Return the outcome whose edges are taken after this one: after a skip the way goes
    on as approved.
    """
    return APPROVED if outcome == SKIPPED else outcome


class Proposed(Protocol):
    """A write as `present` needs it; its value is canonical JSON."""

    @property
    def channel(self) -> str: ...
    @property
    def value(self) -> Json: ...
    @property
    def label(self) -> str | None: ...


def present(
    gate: Gate,
    *,
    node: str,
    input: Json,
    state: Mapping[str, Mapping[str, Json]],
    writes: Sequence[Proposed],
) -> dict[str, Json]:
    """Return what reviewers are shown, as JSON: {title, facts: [{label, value}], writes:
    [{label, money, reversible, reason_required, limits}], notes: [...]}; `writes` by
    position, `notes` name the paths of templates that lead nowhere.
    """
    fields = _Fields(
        node=node,
        input=input,
        state=state,
        writes=writes,
    )
    title = node
    if gate.title:
        title = _Template(fields).format(gate.title)
    facts: list[Json] = []
    for fact in gate.facts:
        facts.append({"label": fact.label, "value": fields.at(fact.path)})
    shown_writes: list[Json] = []
    for write in writes:
        show = gate.writes.get(write.channel, Show())
        shown_writes.append(_shown(show, write, fields, node))
    return {
        "title": title,
        "facts": facts,
        "writes": shown_writes,
        "notes": fields.notes,
    }


def _shown(
    show: Show,
    write: Proposed,
    fields: "_Fields",
    node: str,
) -> dict[str, Json]:
    money = None
    # A label that the node gave is a literal: no template is filled in over it.
    label = write.label or _label(show, write, fields.notes, node)
    if show.money:
        money = fields.within(write.value, show.money)
    shown: dict[str, Json] = {
        "label": label,
        "money": money,
        "reversible": show.reversible,
        "reason_required": show.reason_required,
    }
    if show.change:
        shown["change"] = list(show.change)
    limits = [_limit(path, limit, fields) for path, limit in show.limits.items()]
    if limits:
        shown["limits"] = limits
    return shown


def _name_of(channel: str, node: str) -> str:
    """Return the name of a channel for people: a call is named by its node."""
    return node if channel == CALL else channel


def _limit(
    path: str,
    limit: Limit,
    fields: "_Fields",
) -> dict[str, Json]:
    """Return a limit as it is stored, with its templates filled in."""
    stored: dict[str, Json] = {"path": path}
    for name, bound in limit.bounds().items():
        source = field_of(bound)
        if source is None:
            stored[name] = as_json(bound)
            continue
        stored[name] = fields.at(source)
        # A bound that nobody knows is no reason to let everything pass.
        if stored[name] is None:
            stored[UNKNOWN] = source
    return stored


def _label(
    show: Show,
    write: "Proposed",
    notes: list[str],
    node: str,
) -> str:
    if not show.label:
        return _name_of(write.channel, node)
    # A label without a field is no template: its braces may be meant.
    if not _paths(show.label):
        return show.label
    return _Template(_ValueFields(write.value, notes)).format(show.label)


def plain_label(gate: Gate, write: "Proposed", *, node: str) -> str:
    """Return the label of a write of a node without any part of its value, unless the
    node itself put it there.
    """
    if write.label:
        return write.label
    show = gate.writes.get(write.channel, Show())
    if show.label and not _paths(show.label):
        return show.label
    return _name_of(write.channel, node)


def present_edit(
    gate: Gate,
    channel: str,
    value: Json,
    *,
    original: Json,
    shown: Mapping[str, Json],
) -> dict[str, Json]:
    """Return the presentation of a write that a person edited. `shown` is its
    presentation before the edit, `original` the node's proposal.

    The label is made from the new value: by the gate's template, or without one from
    the fields that differ. The label of the proposal stays beside it, under
    `as_proposed`.
    """
    show = gate.writes.get(channel, Show())
    fields = _ValueFields(value, notes=[])
    # After an earlier edit `label` is the edit's, with the proposal's beside it.
    proposed_label = str(shown.get("as_proposed") or shown.get("label") or channel)
    shown_now = dict(shown)
    shown_now.pop("as_proposed", None)
    if show.money:
        shown_now["money"] = fields.at(show.money)
    question = shown.get("ask")
    if question is not None:
        shown_now["ask"] = {**question, "answered": True}
    # An edit back to the proposal is no edit.
    elif same(value, original):
        shown_now["label"] = proposed_label
        return shown_now
    if show.label and _paths(show.label):
        shown_now["label"] = _Template(fields).format(show.label)
    else:
        # The label of a call names its node, where the gate has no other.
        name = proposed_label if channel == CALL else channel
        shown_now["label"] = described_edit(name, original, value)
    shown_now["as_proposed"] = proposed_label
    return shown_now


def described_edit(
    channel: str,
    before: Json,
    after: Json,
) -> str:
    """Return an edited value as one line, with the fields that differ and their present
    values: "Payout: amount 1800.00".
    """
    name = channel.replace("_", " ")
    changes = list(_differences("", before, after))
    words = ", ".join(changes[:NAMED_FIELDS]) or "edited"
    if len(changes) > NAMED_FIELDS:
        words += f" and {len(changes) - NAMED_FIELDS} more"
    return f"{name[:1].upper()}{name[1:]}: {words}"


def _differences(
    path: str,
    before: Json,
    after: Json,
) -> Iterator[str]:
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield f"{path} {_in_a_line(after)}".strip()
        return
    for key, value in after.items():
        if key not in before or not same(before[key], value):
            inner = f"{path} {key}".strip()
            yield from _differences(inner, before.get(key), value)
    for key in before:
        if key not in after:
            inner = f"{path} {key}".strip()
            yield f"{inner} removed"


def _in_a_line(value: Json) -> str:
    """Return a short value as text, "edited" for any that would not fit in a line."""
    if value is None:
        return "not set"
    text: str = value
    if not isinstance(value, str):
        text = canonical.dumps(value).decode()
    if not text or len(text) > LONGEST_IN_LABEL or "\n" in text:
        return "edited"
    return text


def paths_of(gate: Gate) -> list[str]:
    """Return the paths that title and facts read."""
    return [*_paths(gate.title), *(fact.path for fact in gate.facts)]


def _paths(template: str) -> list[str]:
    """Return the paths that a template reads; none if it cannot be parsed."""
    try:
        return [_dotted(name) for _, name, _, _ in Formatter().parse(template) if name]
    except ValueError:
        return []


def _dotted(name: str) -> str:
    return name.replace("[", ".").replace("]", "")


class _Fields:
    """The values to which paths lead: `input.`, `state.`, `proposal.` name a source; a
    bare path is looked up in proposal, state and input.
    """

    def __init__(
        self,
        *,
        node: str,
        input: Json,
        state: Mapping[str, Mapping[str, Json]],
        writes: Sequence[Proposed],
    ) -> None:
        self.notes: list[str] = []
        proposal = {write.channel: write.value for write in writes}
        channels = {**state.get("scratch", {}), **state.get("artifacts", {})}
        input_fields = input if isinstance(input, dict) else {}
        # Later entries win: a proposal hides present values, and a source hides all.
        self._all = {
            **input_fields,
            **channels,
            **proposal,
            "node": node,
            "input": input_fields,
            "state": channels,
            "proposal": proposal,
        }
        # The arguments of a call, under the name that its node knows them by.
        if CALL in proposal:
            self._all["args"] = proposal[CALL]

    def at(self, path: str) -> Json:
        """Return the value at a path; None, with a note, if there is none."""
        return self.within(self._all, path)

    def within(
        self,
        value: Json,
        path: str,
    ) -> Json:
        return value_at(value, path, self.notes)


def value_at(
    value: Json,
    path: str,
    notes: list[str],
) -> Json:
    """Return the part of a value to which a path leads; None, with a note, if it leads
    nowhere.
    """
    for part in _dotted(path).split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            notes.append(f"there is no {path}")
            return None
    return value


class _ValueFields:
    """The values to which the paths of a label lead: parts of its write's value;
    `value` is the whole of it.
    """

    def __init__(
        self,
        value: Json,
        notes: list[str],
    ) -> None:
        self.notes = notes
        self._value = {"value": value}
        if isinstance(value, dict):
            # A field called `value` takes precedence over the whole.
            self._value.update(value)

    def at(self, path: str) -> Json:
        """Return the value at a path; None, with a note, if there is none."""
        return value_at(self._value, path, self.notes)


class _Template(Formatter):
    """`str.format` over JSON: no attribute of an object can be reached, and a field
    without a value stays as it was written.
    """

    def __init__(self, fields: _Fields | _ValueFields) -> None:
        self._fields = fields

    def format(self, template: str, /, *args: Any, **kwargs: Any) -> str:
        try:
            return super().format(template, *args, **kwargs)
        except (ValueError, LookupError, TypeError) as error:
            self._fields.notes.append(f"the title cannot be filled in: {error}")
            return template

    def get_field(
        self,
        field_name: str,
        args: Any,
        kwargs: Any,
    ) -> tuple[Any, str]:
        # A dotted name is a path through JSON here, never an attribute of an object.
        value = self._fields.at(_dotted(field_name))
        if value is None:
            value = "{" + field_name + "}"
        return value, field_name

    def format_field(
        self,
        value: Any,
        format_spec: str,
    ) -> str:
        try:
            # Amounts are texts in JSON, and are to be written as amounts.
            is_number = format_spec[-1:] in ("f", "n", ",", "%")
            if is_number and isinstance(value, str):
                return str(format(Decimal(value), format_spec))
            return str(format(value, format_spec))
        except (ArithmeticError, ValueError, TypeError):
            self._fields.notes.append(f"{value!r} cannot be shown as {format_spec!r}")
            return str(value)

    def check_unused_args(
        self,
        used_args: Any,
        args: Any,
        kwargs: Any,
    ) -> None:
        """Do nothing: values come from the fields, not from arguments."""
