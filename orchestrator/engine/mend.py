"""What would make a refused value fit: the same content, written as its channel's type wants it. Pure.

Patches are refused with it. A mend never guesses: it keeps what was said, and it is tried on the channel first.
"""

from collections.abc import Iterator, Sequence
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from orchestrator.engine import canonical, values
from orchestrator.engine.canonical import Json
from orchestrator.engine.channel import Channel
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.state import schema_of

Loc = tuple[int | str, ...]
NEAR = 0.8
"""How like a member a misspelt one must be, from 0 to 1."""


def mend_of(channel: Channel, value: Json) -> list[Json]:
    """The value that would fit in the place of the first one that does not, in a list; an empty list where there is
    none. Of several faults it mends the first.
    """
    place = _first_fault(channel, value)
    if place is None:
        return []
    at = _at(value, place)
    for wanted in _candidates(channel, at):
        if _fits(channel, _with(value, place, wanted), place):
            return [wanted]
    return []


def value_at_fault(channel: Channel, value: Json) -> Json:
    """The first value that does not fit, as it was given; the whole where it does."""
    return _at(value, _first_fault(channel, value) or ())


def as_text(value: Any) -> list[str]:
    """What JSON writes for a Python value that it does not know, in a list; an empty list for any other."""
    if isinstance(value, Decimal | UUID):
        return [str(value)]
    return [value.isoformat()] if isinstance(value, date | time) else []


def _first_fault(channel: Channel, value: Json) -> Loc | None:
    """Where the first fault of a value is, below the channel; None where there is none."""
    try:
        values.validated(channel.model, {channel.name: value})
    except InvalidValue as error:
        return _walked(value, error.__cause__) if isinstance(error.__cause__, ValidationError) else ()
    try:
        channel.stage(value, limit=None)
    except InvalidValue:
        return ()
    return None


def _walked(value: Json, error: ValidationError) -> Loc:
    """The part of a fault's place that leads through the value: pydantic names members of unions there too."""
    found: list[int | str] = []
    for key in error.errors(include_url=False, include_input=False)[0]["loc"][1:]:
        inside = isinstance(value, dict) and key in value
        if inside or (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            found.append(key)
            value = value[key]
    return tuple(found)


def _at(value: Json, place: Loc) -> Json:
    for key in place:
        value = value[key]
    return value


def _with(value: Json, place: Loc, wanted: Json) -> Json:
    """A copy of the value with another one at that place."""
    if not place:
        return wanted
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _with(value[place[0]], place[1:], wanted)
    return copy


def _fits(channel: Channel, value: Json, place: Loc) -> bool:
    """Whether a value fits, or its first fault lies elsewhere."""
    try:
        channel.stage(value, limit=None)
    except PayloadTooLarge:
        return False
    except InvalidValue:
        there = _first_fault(channel, value)
        return there is not None and there[: len(place)] != place
    return True


def _candidates(channel: Channel, value: Json) -> Iterator[Json]:
    """Other ways to write a value, the likeliest first."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield str(value)
        if value in (0, 1):
            yield bool(value)
        if isinstance(value, float) and value.is_integer():
            yield int(value)
    if isinstance(value, str):
        yield from _read_from_text(value.strip())
        yield from _members_like(channel, value.strip())
    if not isinstance(value, list):
        yield [value]


def _read_from_text(text: str) -> Iterator[Json]:
    yield text
    try:
        yield canonical.loads((text.lower() if text.lower() in ("true", "false") else text).encode())
    except ValueError:
        return


def _members_like(channel: Channel, text: str) -> Iterator[str]:
    """The members of its enumerations that a text is meant to be."""
    whole = schema_of(channel.model)
    members = list(dict.fromkeys(_members(whole["properties"].get(channel.name), whole.get("$defs", {}))))
    same = [one for one in members if one.casefold() == text.casefold()]
    yield from same or get_close_matches(text, members, n=1, cutoff=NEAR)


def _members(schema: Any, named: dict[str, Any]) -> Iterator[str]:
    """The texts that a schema allows one by one. `named` are the schemas that it refers to and nobody has followed."""
    if isinstance(schema, dict):
        given: Sequence[Any] = [*schema.get("enum", ()), schema.get("const")]
        yield from (one for one in given if isinstance(one, str))
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in named:
            yield from _members(named[name], {one: inner for one, inner in named.items() if one != name})
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for part in inner:
        yield from _members(part, named)
