"""Limits of edits: what a reviewer may make of a value that a node proposed. Pure.

A limit names a part of the value by its path: `amount`, `payee.iban`, `0.amount`, or
`*.amount` for each item of a list. It holds what an edit changes; a part that is as the
node proposed it is within every limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.hints import explained_class
from orchestrator.engine.values.ops import same

WHOLE = "value"
"""The path of the whole value, as in a label."""
EACH = "*"
"""The step of a path that leads to each item of a list, or each entry of an object."""
UNKNOWN = "unknown"
"""The key of a limit whose bound cannot be computed; its value is the reason."""
_BOUNDS = ("at_least", "at_most")


@explained_class
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What an edit may make of one part of a value.

    `at_least` and `at_most` are numbers, amounts as text, or dates as ISO text;
    `choices` are the values that it may get; `unchanged` keeps it as it was proposed. A
    bound may be a template of one field, as "{input.amount}": it is filled in when the
    request is opened.
    """

    at_least: Any = None
    at_most: Any = None
    choices: Sequence[Any] | None = None
    unchanged: bool = False

    def bounds(self) -> dict[str, Any]:
        """Return the options that are set, by name."""
        options = {
            "at_least": self.at_least,
            "at_most": self.at_most,
            "choices": None if self.choices is None else list(self.choices),
            "unchanged": self.unchanged or None,
        }
        return {name: option for name, option in options.items() if option is not None}


class LimitFault(NamedTuple):
    """A part of an edited value that is outside a limit: its path, and why."""

    path: str
    reason: str


def faults_of_limits(limits: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the limits that an author wrote."""
    for path, limit in limits.items():
        if not isinstance(path, str) or not path:
            yield f"limits has {path!r} for a path; write the path of a part"
        elif not isinstance(limit, Limit):
            yield f"limits has {limit!r} for {path}; write {{{path!r}: Limit(...)}}"
        elif not limit.bounds():
            yield f"the limit of {path} bounds nothing; write Limit(at_most=...)"
        else:
            yield from _faults_of_choices(path, limit)


def _faults_of_choices(path: str, limit: Limit) -> Iterator[str]:
    choices: Any = limit.choices
    if isinstance(choices, str) or not isinstance(choices, Sequence | None):
        yield f"the choices of {path} must be a list, not {choices!r}"
    elif choices is not None and not choices:
        yield f"the choices of {path} are empty; write unchanged=True"


def faults_of_edit(
    limits: Sequence[Mapping[str, Json]],
    *,
    proposed: Json,
    edited: Json,
) -> list[LimitFault]:
    """Return where an edit goes beyond the limits shown beside a write.

    `limits` as the write's request stores them: [{path, at_least, at_most, choices,
    unchanged, unknown}]; `proposed` is the value that the node proposed.
    """
    faults: list[LimitFault] = []
    for limit in limits:
        faults += _faults_at(limit, proposed, edited)
    return faults


def _faults_at(
    limit: Mapping[str, Json],
    proposed: Json,
    edited: Json,
) -> Iterator[LimitFault]:
    before = _parts(proposed, limit["path"])
    after = _parts(edited, limit["path"])
    # An item may leave a list; a part that is bound may not leave its value.
    may_leave = EACH in limit["path"] and not limit.get("unchanged")
    if not may_leave:
        for place in before.keys() - after.keys():
            yield LimitFault(place, "must not be removed")
    for place, value in after.items():
        if place in before and same(before[place], value):
            continue
        for reason in _reasons_against(limit, value):
            yield LimitFault(place, reason)


def _reasons_against(limit: Mapping[str, Json], value: Json) -> Iterator[str]:
    """Yield why a changed part is outside a limit."""
    if UNKNOWN in limit:
        yield f"cannot be edited: {limit[UNKNOWN]}"
        return
    if limit.get("unchanged"):
        yield "must stay as it was proposed"
    choices = limit.get("choices")
    if choices is not None and not any(same(choice, value) for choice in choices):
        yield f"must be one of {', '.join(map(str, choices))}"
    for name in _BOUNDS:
        bound = limit.get(name)
        if bound is not None and not _is_within(name, value, bound):
            yield f"must be {name.replace('_', ' ')} {bound}"


def _is_within(name: str, value: Json, bound: Json) -> bool:
    """Return whether a value keeps a bound; False if the two cannot be compared."""
    order = _order(value, bound)
    if order is None:
        return False
    if name == "at_least":
        return order >= 0
    return order <= 0


def has_order(bound: Any) -> bool:
    """Return whether values can be below or above a bound: it is a number or a date."""
    if not isinstance(bound, int | float | str | Decimal | date):
        return False
    stored = as_json(bound)
    return _order(stored, stored) is not None


def _order(value: Json, bound: Json) -> int | None:
    """Return -1, 0 or 1 for a value below, at or above a bound; None if they cannot be
    compared.
    """
    # Numbers first: a text of digits is an amount, not a date.
    for read in (_number, _date):
        value_read = read(value)
        bound_read = read(bound)
        if value_read is not None and bound_read is not None:
            return _sign(value_read, bound_read)
    return None


def _sign(value: Any, bound: Any) -> int | None:
    try:
        return int(value > bound) - int(value < bound)
    except TypeError:
        # One moment has a time zone, the other has none.
        return None


def _number(value: Json) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _date(value: Json) -> datetime | date | None:
    if not isinstance(value, str):
        return None
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(value)
        except ValueError:
            continue
    return None


def _parts(value: Json, path: str) -> dict[str, Json]:
    """Return the parts of a value to which a path leads, each by its own path; none if
    it leads nowhere.
    """
    if path == WHOLE and not _has_key(value, WHOLE):
        return {"": value}
    return dict(_parts_below(value, path.split("."), ""))


def _has_key(value: Json, key: str) -> bool:
    return isinstance(value, dict) and key in value


def _parts_below(
    value: Json, steps: Sequence[str], place: str
) -> Iterator[tuple[str, Json]]:
    if not steps:
        yield place, value
        return
    for step, inner in _entries(value, steps[0]):
        inner_place = f"{place}.{step}" if place else step
        yield from _parts_below(inner, steps[1:], inner_place)


def _entries(value: Json, step: str) -> list[tuple[str, Json]]:
    """Return the entries of a list or an object to which one step leads."""
    entries: list[tuple[str, Json]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = [(str(index), item) for index, item in enumerate(value)]
    if step == EACH:
        return entries
    return [(key, inner) for key, inner in entries if key == step]


def require_within_limits(
    shown: Mapping[str, Json],
    channel: str,
    *,
    proposed: Json,
    edited: Json,
    **facts: Any,
) -> None:
    """Raise `InvalidValue`, naming each part, if an edit of a write goes beyond the
    limits that are shown beside it. `facts` go into the error.
    """
    faults = faults_of_edit(
        shown.get("limits", ()),
        proposed=proposed,
        edited=edited,
    )
    if not faults:
        return
    errors: list[dict[str, str]] = []
    for fault in faults:
        path = f"{channel}.{fault.path}" if fault.path else channel
        errors.append({"path": path, "reason": fault.reason})
    sentences = [f"{error['path']} {error['reason']}" for error in errors]
    raise InvalidValue(
        f"the edit is outside the limits of its gate: {'; '.join(sentences)}",
        channel=channel,
        path=errors[0]["path"],
        reason=errors[0]["reason"],
        errors=errors,
        **facts,
    )


def limit_in_words(limit: Mapping[str, Json]) -> str:
    """Return a stored limit as a reviewer reads it: "amount at most 4512.50"."""
    words = []
    for name in _BOUNDS:
        if limit.get(name) is not None:
            words.append(f"{name.replace('_', ' ')} {limit[name]}")
    if limit.get("choices") is not None:
        words.append(f"one of {', '.join(map(str, limit['choices']))}")
    if limit.get("unchanged"):
        words.append("as proposed")
    if UNKNOWN in limit:
        words.append(f"not to be edited, because {limit[UNKNOWN]}")
    name = "the value" if limit["path"] == WHOLE else limit["path"]
    return f"{name} {' and '.join(words)}"


def as_json(bound: Any) -> Json:
    """Return a bound that an author wrote as canonical JSON: an amount or a date as
    text.
    """
    if isinstance(bound, Decimal):
        return str(bound)
    if isinstance(bound, date | datetime):
        return bound.isoformat()
    if isinstance(bound, list):
        return [as_json(item) for item in bound]
    return canonical.normalised(bound)
