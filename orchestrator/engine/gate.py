"""Gates: why a node waits for people, and what they are shown. Values and pure functions; it knows nobody who signs.

The compiler checks gates, the runner asks `needs_approval` once and `present` once; what they answer is stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from string import Formatter
from typing import Any, Protocol

from orchestrator.engine.canonical import Json
from orchestrator.engine.effect import APPROVED, PARTIAL, REJECTED
from orchestrator.engine.errors import BROKEN
from orchestrator.engine.write import Write

PRINCIPALS = ("user:", "group:", "perm:")


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure worth showing: `path` leads to it, as `payout.amount`, `input.claim_id` or `state.risk`."""

    label: str
    path: str
    indexed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """How writes to one channel are shown: `reversible` is the sentence on what can be undone, `money` the path of
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
        return True, f"the check failed: {type(error).__name__}: {error}"
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
        "label": write.label or show.label or write.channel,
        "money": fields.within(write.value, show.money) if show.money else None,
        "reversible": show.reversible,
        "reason_required": show.reason_required,
        **({"change": list(show.change)} if show.change else {}),
    }


def paths_of(gate: Gate) -> list[str]:
    """The paths that title and facts read."""
    try:
        named = [name for _, name, _, _ in Formatter().parse(gate.title) if name]
    except ValueError:
        named = []
    return [_dotted(name) for name in named] + [fact.path for fact in gate.facts]


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
        for part in _dotted(path).split("."):
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                self.notes.append(f"there is no {path}")
                return None
        return value


class _Template(Formatter):
    """`str.format` over JSON: no attribute of an object can be reached, and what is missing stays as it was written."""

    def __init__(self, fields: _Fields) -> None:
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
            return str(format(value, format_spec))
        except (ValueError, TypeError):
            self._fields.notes.append(f"{value!r} cannot be shown as {format_spec!r}")
            return str(value)

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        """Nothing is passed as an argument."""
