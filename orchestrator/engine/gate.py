"""Gates: why a node waits for people, and what they are shown. Values and pure functions; it knows nobody who signs.

The compiler checks gates, the runner asks `needs_approval` once and `present` once; what they answer is stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from string import Formatter
from typing import Any, Protocol

from orchestrator.engine import canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.effect import APPROVED, PARTIAL, REJECTED
from orchestrator.engine.errors import BROKEN, described
from orchestrator.engine.hints import explained_class
from orchestrator.engine.ops import same
from orchestrator.engine.write import Write

PRINCIPALS = ("user:", "group:", "perm:")
NAMED_FIELDS = 3
"""Fields that the label of an edited write names."""
LONGEST_IN_LABEL = 60
"""Characters of a value that the label of an edited write shows."""


@explained_class
@dataclass(frozen=True, slots=True)
class Fact:
    """A figure worth showing: `path` leads to it, as `payout.amount`, `input.claim_id` or `state.risk`."""

    label: str
    path: str
    indexed: bool = False


@explained_class
@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """How writes to one channel are shown: `label` is a template over the value, as "Pay {amount} to {payee}", or
    "Count to {value}" where it is no object; `reversible` is the sentence on what can be undone, `money` the path of
    an amount within the value; rejecting needs a reason where `reason_required`. `change` names the two keys under
    which a value says itself what it changes and into what; it is shown as such, and never as what is there now.
    """

    label: str | None = None
    reversible: str | bool | None = None
    money: str | None = None
    limits: Any = None
    needs: Any = None
    reason_required: bool = False
    change: tuple[str, str] | None = None


@explained_class
@dataclass(frozen=True, kw_only=True)
class Gate:
    """What people decide before the writes of a node count."""

    reviewers: Sequence[str] | Callable[[Any], Sequence[str]] | None = None
    quorum: int = 1
    reject_quorum: int = 1
    four_eyes: bool = False
    all_or_nothing: bool = False
    needs_approval: Callable[[Any, Any], Any] | None = None
    deadline: timedelta | None = None
    on_deadline: str = "reject"
    tiers: Sequence[Any] = ()
    title: str = ""
    facts: Sequence[Fact] = ()
    shows: Sequence[str] = ()
    writes: Mapping[str, Show] = field(default_factory=dict)
    confirm_above: Any = None
    auto: Callable[..., Any] | None = None
    veto: Callable[..., Any] | None = None

    def unavailable(self) -> list[str]:
        """What this version does not have and the gate asks for."""
        asked = {
            "deadline": self.deadline is not None or self.on_deadline != "reject",
            "tiers": bool(self.tiers),
            "auto": self.auto is not None,
            "veto": self.veto is not None,
            "confirm_above": self.confirm_above is not None,
            "limits in Show": any(show.limits is not None for show in self.writes.values()),
            "needs in Show": any(show.needs is not None for show in self.writes.values()),
        }
        return [f"gate {name}" for name, used in asked.items() if used]


class Proposal(Mapping[str, Any]):
    """What a gated task proposes, for `needs_approval`: channel -> value, the last of several; `writes` has all."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = tuple(writes)
        self._last = {write.channel: write.value for write in writes}

    def __getitem__(self, channel: str) -> Any:
        return self._last[channel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._last)

    def __len__(self) -> int:
        return len(self._last)


def needs_approval(gate: Gate, state: Any, proposal: Any) -> tuple[bool, str | None]:
    """Whether people must decide, and the reason that the gate's function gave. Never raises: only the literal
    `False` means no; an exception means yes, and is the reason.
    """
    if gate.needs_approval is None:
        return True, None
    try:
        answer = gate.needs_approval(state, proposal)
    except BROKEN as error:
        return True, f"the check failed: {described(error)}"
    return answer is not False, answer if isinstance(answer, str) else None


def outcome_of(verdicts: Sequence[str]) -> str:
    """approved if all are, rejected if all are, else partial. Of nothing: approved."""
    if all(verdict == APPROVED for verdict in verdicts):
        return APPROVED
    return REJECTED if all(verdict == REJECTED for verdict in verdicts) else PARTIAL


class Proposed(Protocol):
    """A write as `present` needs it; its value is canonical JSON."""

    @property
    def channel(self) -> str: ...
    @property
    def value(self) -> Json: ...
    @property
    def label(self) -> str | None: ...


def present(
    gate: Gate, *, node: str, input: Json, state: Mapping[str, Mapping[str, Json]], writes: Sequence[Proposed]
) -> dict[str, Json]:
    """What reviewers are shown, as JSON: {title, facts: [{label, value}], writes: [{label, money, reversible,
    reason_required}], notes: [...]}; `writes` by position, `notes` name what a template asked for and nobody has.
    """
    fields = _Fields(node=node, input=input, state=state, writes=writes)
    title = _Template(fields).format(gate.title) if gate.title else node
    return {
        "title": title,
        "facts": [{"label": fact.label, "value": fields.at(fact.path)} for fact in gate.facts],
        "writes": [_shown(gate.writes.get(write.channel, Show()), write, fields) for write in writes],
        "notes": fields.notes,
    }


def _shown(show: Show, write: Proposed, fields: "_Fields") -> dict[str, Json]:
    return {
        "label": write.label or _label(show, write, fields.notes),
        "money": fields.within(write.value, show.money) if show.money else None,
        "reversible": show.reversible,
        "reason_required": show.reason_required,
        **({"change": list(show.change)} if show.change else {}),
    }


def _label(show: Show, write: "Proposed", notes: list[str]) -> str:
    if not show.label:
        return write.channel
    return _Template(_ValueFields(write.value, notes)).format(show.label) if _paths(show.label) else show.label


def plain_label(gate: Gate, write: "Proposed") -> str:
    """The label of a write without anything of its value, unless the node itself put it there."""
    show = gate.writes.get(write.channel, Show())
    return write.label or (show.label if show.label and not _paths(show.label) else write.channel)


def present_edit(
    gate: Gate, channel: str, value: Json, *, original: Json, shown: Mapping[str, Json]
) -> dict[str, Json]:
    """What reviewers are shown of a write that a person edited. `shown` is what they were shown of it before,
    `original` what the node had proposed. The label is made anew from the value: from the gate's template, or where it
    has none from the fields that differ. The label that it had as proposed stays beside it, under `as_proposed`.
    """
    show, notes = gate.writes.get(channel, Show()), list[str]()
    proposed = str(shown.get("as_proposed") or shown.get("label") or channel)
    again = {name: one for name, one in shown.items() if name != "as_proposed"}
    if show.money:
        again["money"] = _ValueFields(value, notes).at(show.money)
    if same(value, original):
        return {**again, "label": proposed}
    if show.label and _paths(show.label):
        label = _Template(_ValueFields(value, notes)).format(show.label)
    else:
        label = described_edit(channel, original, value)
    return {**again, "label": label, "as_proposed": proposed}


def described_edit(channel: str, before: Json, after: Json) -> str:
    """An edited value in a line: the fields that differ and what they are now, "Payout: amount 1800.00"."""
    name = channel.replace("_", " ")
    found = list(_differences("", before, after))
    said = ", ".join(found[:NAMED_FIELDS])
    more = f" and {len(found) - NAMED_FIELDS} more" if len(found) > NAMED_FIELDS else ""
    return f"{name[:1].upper()}{name[1:]}: {said or 'edited'}{more}"


def _differences(path: str, before: Json, after: Json) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*after, *(key for key in before if key not in after)]:
            inner = f"{path} {key}".strip()
            if key not in after:
                yield f"{inner} removed"
            elif key not in before or not same(before[key], after[key]):
                yield from _differences(inner, before.get(key), after[key])
    else:
        yield f"{path} {_in_a_line(after)}".strip()


def _in_a_line(value: Json) -> str:
    text = value if isinstance(value, str) else "not set" if value is None else canonical.dumps(value).decode()
    return text if 0 < len(text) <= LONGEST_IN_LABEL and "\n" not in text else "edited"


def paths_of(gate: Gate) -> list[str]:
    """The paths that title and facts read."""
    return [*_paths(gate.title), *(fact.path for fact in gate.facts)]


def _paths(template: str) -> list[str]:
    """The paths that a template reads; none where it cannot be read."""
    try:
        return [_dotted(name) for _, name, _, _ in Formatter().parse(template) if name]
    except ValueError:
        return []


def _dotted(name: str) -> str:
    return name.replace("[", ".").replace("]", "")


class _Fields:
    """Where paths lead: `input.`, `state.`, `proposal.` name a source; a bare path is in proposal, state or input."""

    def __init__(
        self, *, node: str, input: Json, state: Mapping[str, Mapping[str, Json]], writes: Sequence[Proposed]
    ) -> None:
        self.notes: list[str] = []
        proposal = {write.channel: write.value for write in writes}
        known = {**state.get("scratch", {}), **state.get("artifacts", {})}
        given = input if isinstance(input, dict) else {}
        self._all = {**given, **known, **proposal, "node": node, "input": given, "state": known, "proposal": proposal}

    def at(self, path: str) -> Json:
        """The value there; None, and a note, where there is none."""
        return self.within(self._all, path)

    def within(self, value: Json, path: str) -> Json:
        return _value_at(value, path, self.notes)


def _value_at(value: Json, path: str, notes: list[str]) -> Json:
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
    """Where the paths of a label lead: into the value of its write; `value` is the whole of it."""

    def __init__(self, value: Json, notes: list[str]) -> None:
        self.notes = notes
        self._value = {"value": value, **value} if isinstance(value, dict) else {"value": value}

    def at(self, path: str) -> Json:
        """The value there; None, and a note, where there is none."""
        return _value_at(self._value, path, self.notes)


class _Template(Formatter):
    """`str.format` over JSON: no attribute of an object can be reached, and what is missing stays as it was written."""

    def __init__(self, fields: _Fields | _ValueFields) -> None:
        self._fields = fields

    def format(self, template: str, /, *args: Any, **kwargs: Any) -> str:
        try:
            return super().format(template, *args, **kwargs)
        except (ValueError, LookupError, TypeError) as error:
            self._fields.notes.append(f"the title cannot be filled in: {error}")
            return template

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        value = self._fields.at(_dotted(field_name))
        return ("{" + field_name + "}" if value is None else value), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            # Amounts are texts in JSON, and are to be written as amounts.
            number = Decimal(value) if format_spec and isinstance(value, str) and format_spec[-1] in "fn,%" else value
            return str(format(number, format_spec))
        except (ArithmeticError, ValueError, TypeError):
            self._fields.notes.append(f"{value!r} cannot be shown as {format_spec!r}")
            return str(value)

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        """Nothing is passed as an argument."""
