"""Mends of a refused value: the same content, written as its channel's type wants it.
Pure.

A refused patch carries one. A mend never guesses: it keeps what the person wrote, and
it is tried on the channel before it is offered.
"""

from collections.abc import Iterator
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.state import schema_of
from orchestrator.engine.values import canonical, values
from orchestrator.engine.values.canonical import Json

Loc = tuple[int | str, ...]
NEAR = 0.8
"""How similar a misspelt member must be to the real one, from 0 to 1."""


def mend_of(channel: Channel, value: Json) -> list[Json]:
    """Return a list with the value that would fit at the first fault, or
    an empty list if there is none. Only the first of several faults is mended.
    """
    place = _first_fault(channel, value)
    if place is None:
        return []
    value_there = _value_at(value, place)
    for candidate in _candidates(channel, value_there):
        if _fits(channel, _with(value, place, candidate), place):
            return [candidate]
    return []


def value_at_fault(channel: Channel, value: Json) -> Json:
    """Return the first part of a value that does not fit, unchanged; the whole value if
    it fits.
    """
    place = _first_fault(channel, value) or ()
    return _value_at(value, place)


def as_text(value: Any) -> list[str]:
    """Return a list with the text that JSON has for a Python value unknown to it, such
    as a Decimal; an empty list for any other value.
    """
    if isinstance(value, Decimal | UUID):
        return [str(value)]
    if isinstance(value, date | time):
        return [value.isoformat()]
    return []


def _first_fault(channel: Channel, value: Json) -> Loc | None:
    """Return the place of the first fault of a value, below the channel; None if the
    value fits.
    """
    try:
        values.validated(channel.model, {channel.name: value})
    except InvalidValue as error:
        cause = error.__cause__
        # Only pydantic's own error names the place as keys instead of text.
        if isinstance(cause, ValidationError):
            return _place_in_value(value, cause)
        return ()
    # The channel's own checks name no place.
    try:
        channel.stage(value, limit=None)
    except InvalidValue:
        return ()
    return None


def _place_in_value(value: Json, error: ValidationError) -> Loc:
    """Return the part of a fault's place that leads through the value. Pydantic also
    names members of unions there, which are left out.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    place: list[int | str] = []
    # The first key is the channel, for the model was validated with that field alone.
    for key in first["loc"][1:]:
        if _leads_into(value, key):
            place.append(key)
            value = value[key]
    return tuple(place)


def _leads_into(value: Json, key: int | str) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)


def _value_at(value: Json, place: Loc) -> Json:
    for key in place:
        value = value[key]
    return value


def _with(
    value: Json,
    place: Loc,
    replacement: Json,
) -> Json:
    """Return a copy of the value with another one at that place."""
    if not place:
        return replacement
    key = place[0]
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = _with(value[key], place[1:], replacement)
    return copy


def _fits(
    channel: Channel,
    value: Json,
    place: Loc,
) -> bool:
    """Return whether a value fits, or has its first fault outside this place."""
    try:
        channel.stage(value, limit=None)
    except PayloadTooLarge:
        return False
    except InvalidValue:
        fault = _first_fault(channel, value)
        return fault is not None and fault[: len(place)] != place
    return True


def _candidates(channel: Channel, value: Json) -> Iterator[Json]:
    """Yield other ways to write a value, the likeliest first."""
    # True is a number to Python, and its other forms would be guesses.
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int | float):
        yield from _numbers_otherwise(value)
    if isinstance(value, str):
        yield from _read_from_text(value.strip())
        yield from _members_like(channel, value.strip())
    if not isinstance(value, list):
        # A single item may be written without its list.
        yield [value]


def _numbers_otherwise(number: float) -> Iterator[Json]:
    yield str(number)
    # A switch is often written as 0 or 1.
    if number in (0, 1):
        yield bool(number)
    if isinstance(number, float) and number.is_integer():
        yield int(number)


def _read_from_text(text: str) -> Iterator[Json]:
    """Yield the text itself, and the JSON that it may represent. True and False may be
    written as in Python.
    """
    yield text
    lowered = text.lower()
    if lowered in ("true", "false"):
        text = lowered
    try:
        yield canonical.loads(text.encode())
    except ValueError:
        return


def _members_like(channel: Channel, text: str) -> Iterator[str]:
    """Yield the members of the channel's enumerations that a text is meant to be."""
    schema = schema_of(channel.model)
    of_channel = schema["properties"].get(channel.name)
    # Any enumeration of the channel counts: a candidate is tried before it is offered.
    members = list(dict.fromkeys(_members(of_channel, schema.get("$defs", {}))))
    same = [member for member in members if member.casefold() == text.casefold()]
    yield from same or get_close_matches(
        text,
        members,
        n=1,
        cutoff=NEAR,
    )


def _members(schema: Any, definitions: dict[str, Any]) -> Iterator[str]:
    """Yield the texts that a schema lists one by one. `definitions` are the schemas
    that it may refer to and that were not followed yet.
    """
    if isinstance(schema, list):
        for part in schema:
            yield from _members(part, definitions)
    if not isinstance(schema, dict):
        return
    for member in (*schema.get("enum", ()), schema.get("const")):
        if isinstance(member, str):
            yield member
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions:
        # Each reference is followed once, or a recursive schema would never end.
        others = dict(definitions)
        yield from _members(others.pop(name), others)
    for part in schema.values():
        yield from _members(part, definitions)
