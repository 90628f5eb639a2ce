"""Limits of edits: what a reviewer may make of a value that a node proposed. Pure.

A limit names a part of the value by its path: `amount`, `payee.iban`, `0.amount`, or
`*.amount` for each item of a list. It holds what an edit changes; what stays as the
node proposed it is within every limit.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
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
"""The key of a limit whose bound cannot be computed; its value is the path of it."""
SOURCES = ("input", "state")
"""What a bound may be read from: a proposal can be edited, and would move its limit."""
MOST_FAULTS = 20
"""The most parts that the refusal of an edit names."""
_BOUNDS = ("at_least", "at_most")
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
# Only what every reader of a text takes for the same number.
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_MISSING: Any = object()


@explained_class
@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The bounds of an edit for one part of a value.

    `at_least` and `at_most` are numbers, amounts as text, or dates as ISO text;
    `choices` are the values that it may get; `unchanged` keeps it as it was proposed. A
    bound may be a template of one field of input or state, as "{input.amount}": it is
    filled in when the request is opened.
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
            "choices": self.choices,
            "unchanged": self.unchanged or None,
        }
        return {name: option for name, option in options.items() if option is not None}


class LimitFault(NamedTuple):
    """A part of an edited value that is outside a limit: its path, and why."""

    path: str
    reason: str


# A limit as an author writes it.


def faults_of_limits(limits: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the faults of an author's limits."""
    for path, limit in limits.items():
        if not isinstance(path, str) or "" in path.split("."):
            yield f"limits has {path!r} for a path; write the path of a part"
        elif not isinstance(limit, Limit):
            yield f"limits has {limit!r} for {path}; write {{{path!r}: Limit(...)}}"
        elif not limit.bounds():
            yield f"the limit of {path} bounds nothing; write Limit(at_most=...)"
        else:
            yield from _faults_of_choices(path, limit.choices)
            yield from _faults_of_bounds(path, limit)


def _faults_of_choices(path: str, choices: Any) -> Iterator[str]:
    if choices is None:
        return
    if isinstance(choices, str) or not isinstance(choices, Sequence):
        yield f"the choices of {path} must be a list, not {choices!r}"
        return
    if not choices:
        yield f"the choices of {path} are empty; write unchanged=True"
    for choice in choices:
        if field_of(choice) is not None:
            yield f"the choices of {path} are no templates, so {choice!r} is none"
        elif not _is_json(choice):
            yield f"the choice {choice!r} of {path} is no JSON"


def _faults_of_bounds(path: str, limit: Limit) -> Iterator[str]:
    for name in _BOUNDS:
        bound = getattr(limit, name)
        source = field_of(bound)
        if source is not None:
            if source.partition(".")[0] not in SOURCES:
                yield (
                    f"{name} of {path} is read from {source}; write "
                    "'{input. ...}' or '{state. ...}'"
                )
        elif bound is not None and not _has_order(bound):
            yield (
                f"{name} of {path} is {bound!r}, which is no number, no date, and no "
                "template of one field as '{input.amount}'"
            )


def _is_json(value: Any) -> bool:
    try:
        as_json(value)
    except InvalidValue:
        return False
    return True


def _has_order(bound: Any) -> bool:
    """Return whether values can be below or above a bound: it is a number or a date."""
    if not isinstance(bound, int | float | str | Decimal | date) or not _is_json(bound):
        return False
    stored = as_json(bound)
    return _order(stored, stored) is not None


def field_of(bound: Any) -> str | None:
    """Return the path of a bound that is a template of one field, as "{input.amount}";
    None for every other bound.
    """
    match = _TEMPLATE.fullmatch(bound) if isinstance(bound, str) else None
    return match[1] if match else None


def as_json(bound: Any) -> Json:
    """Return a bound that an author wrote as canonical JSON: an amount or a date as
    text. Raises `InvalidValue`.
    """
    if isinstance(bound, Decimal):
        return str(bound)
    if isinstance(bound, date):
        return bound.isoformat()
    if isinstance(bound, list | tuple):
        return [as_json(item) for item in bound]
    return canonical.normalised(bound)


# The value after an edit.


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


def faults_of_edit(
    limits: Sequence[Mapping[str, Json]],
    *,
    proposed: Json,
    edited: Json,
) -> list[LimitFault]:
    """Return where an edit goes beyond the limits shown beside a write, the first
    `MOST_FAULTS` places.

    `limits` as the write's request stores them: [{path, at_least, at_most, choices,
    unchanged, unknown}]; `proposed` is the value that the node proposed.
    """
    faults: list[LimitFault] = []
    for limit in limits:
        room = MOST_FAULTS - len(faults)
        faults += islice(_faults_at(limit, proposed, edited), room)
    return faults


def _faults_at(
    limit: Mapping[str, Json],
    proposed: Json,
    edited: Json,
) -> Iterator[LimitFault]:
    steps = _steps(limit["path"], proposed)
    if EACH in steps and not limit.get("unchanged"):
        yield from _faults_of_items(limit, steps, proposed, edited)
    else:
        yield from _faults_of_parts(limit, steps, proposed, edited)


def _faults_of_parts(
    limit: Mapping[str, Json],
    steps: Sequence[str],
    proposed: Json,
    edited: Json,
) -> Iterator[LimitFault]:
    """Yield the faults of a limit on parts that keep their places."""
    before = dict(_parts(proposed, steps))
    after = dict(_parts(edited, steps))
    # A path that leads nowhere is a mistake of the author, and bounds something all
    # the same.
    if not before and not after and EACH not in steps:
        yield LimitFault(limit["path"], "leads nowhere, so its limit lets no edit pass")
    for place in before:
        if place not in after:
            yield LimitFault(place, "must not be removed")
    for place, value in after.items():
        if place in before and same(before[place], value):
            continue
        for reason in _reasons_against(limit, value):
            yield LimitFault(place, reason)


def _faults_of_items(
    limit: Mapping[str, Json],
    steps: Sequence[str],
    proposed: Json,
    edited: Json,
) -> Iterator[LimitFault]:
    """Yield the faults of a limit on each item of a list.

    An item that stays whole is within it, wherever it stands now. Every other item must
    have the part that is bound: otherwise an item could change its kind to lose it.
    """
    last = len(steps) - 1 - list(reversed(steps)).index(EACH)
    to_item = steps[: last + 1]
    within_item = steps[last + 1 :]
    unmoved = Counter(canonical.encode(item) for _, item in _parts(proposed, to_item))
    for place, item in _parts(edited, to_item):
        stored = canonical.encode(item)
        if unmoved[stored]:
            unmoved[stored] -= 1
            continue
        parts = dict(_parts(item, within_item))
        if not parts:
            yield LimitFault(
                place, f"must have {'.'.join(within_item)}, which is bound"
            )
        for inner, value in parts.items():
            for reason in _reasons_against(limit, value):
                yield LimitFault(f"{place}.{inner}".rstrip("."), reason)


def _reasons_against(limit: Mapping[str, Json], value: Json) -> Iterator[str]:
    """Yield why a changed part is outside a limit."""
    if UNKNOWN in limit:
        yield f"cannot be edited: its limit is {limit[UNKNOWN]}, which is not there"
        return
    if limit.get("unchanged"):
        yield "must stay as it was proposed"
    choices = limit.get("choices")
    if choices is not None and not any(_is_choice(value, choice) for choice in choices):
        yield f"must be one of {_listed(choices)}"
    for name in _BOUNDS:
        bound = limit.get(name)
        if bound is not None and not _is_within(name, value, bound):
            yield f"must be {name.replace('_', ' ')} {bound}"


def _is_choice(value: Json, choice: Json) -> bool:
    # The same amount may be written with more digits, or as a number.
    return same(value, choice) or _order(value, choice) == 0


def _is_within(
    name: str,
    value: Json,
    bound: Json,
) -> bool:
    """Return whether a value keeps a bound; False if the two cannot be compared."""
    order = _order(value, bound)
    if order is None:
        return False
    if name == "at_least":
        return order >= 0
    return order <= 0


def _order(value: Json, bound: Json) -> int | None:
    """Return -1, 0 or 1 for a value below, at or above a bound; None if they cannot be
    compared.
    """
    number = number_of(bound)
    if number is not None:
        return _sign(number_of(value), number)
    # A bound that is a day holds for all of it.
    day = _date(bound)
    moment = _moment(value)
    if day is not None:
        return _sign(moment and moment.date(), day)
    return _sign(moment, _moment(bound))


def _sign(value: Any, bound: Any) -> int | None:
    if value is None or bound is None:
        return None
    try:
        return int(value > bound) - int(value < bound)
    except TypeError:
        # One moment has a time zone, the other has none.
        return None


def number_of(value: Json) -> Decimal | None:
    """Return an amount, a number or a text that every reader takes for the same one;
    None for everything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = str(value)
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def _date(value: Json) -> date | None:
    if not isinstance(value, str):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def _moment(value: Json) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


# Paths.


def _steps(path: str, value: Json) -> list[str]:
    """Return the steps of a path within a value; the whole value is reached without
    any.
    """
    steps = path.replace("[", ".").replace("]", "").split(".")
    has_field = isinstance(value, dict) and WHOLE in value
    if steps[0] == WHOLE and not has_field:
        return steps[1:]
    return steps


def _parts(
    value: Json,
    steps: Sequence[str],
    place: str = "",
) -> Iterator[tuple[str, Json]]:
    """Yield the parts of a value to which steps lead, each with its path; none if they
    lead nowhere. What lies below null is null.
    """
    if not steps or (value is None and EACH not in steps):
        yield ".".join(filter(None, [place, *steps])), value
        return
    for step, inner in _entries(value, steps[0]):
        inner_place = f"{place}.{step}" if place else step
        yield from _parts(inner, steps[1:], inner_place)


def _entries(value: Json, step: str) -> list[tuple[str, Json]]:
    """Return the entries of a list or an object to which one step leads."""
    if step == EACH:
        if isinstance(value, dict):
            return list(value.items())
        if isinstance(value, list):
            return [(str(index), item) for index, item in enumerate(value)]
        return []
    inner = _MISSING
    if isinstance(value, dict):
        inner = value.get(step, _MISSING)
    elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        inner = value[int(step)]
    return [] if inner is _MISSING else [(step, inner)]


# Words.


def limit_in_words(limit: Mapping[str, Json]) -> str:
    """Return a stored limit as a reviewer reads it: "amount at most 4512.50"."""
    name = "the value" if limit["path"] == WHOLE else limit["path"]
    # With an unknown limit only the proposal itself passes.
    if limit.get("unchanged") or UNKNOWN in limit:
        return f"{name} as proposed"
    words = []
    for bound in _BOUNDS:
        if limit.get(bound) is not None:
            words.append(f"{bound.replace('_', ' ')} {limit[bound]}")
    if limit.get("choices") is not None:
        words.append(f"one of {_listed(limit['choices'])}")
    return f"{name} {' and '.join(words)}"


def _listed(choices: Sequence[Json]) -> str:
    """Return choices as JSON, in which a text and a number differ."""
    return ", ".join(canonical.encode(choice).decode() for choice in choices)
