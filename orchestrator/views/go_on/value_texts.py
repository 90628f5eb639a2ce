"""Values of channels as an operator reads them: money and numbers as their types declare them, texts without quotes
wherever they can be taken for nothing else. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from approvals.forms import controls
from approvals.views.leaf import ERASED, NOTHING, could_be_mistaken
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_json import json_text
from orchestrator.engine.channel import Channel

GROUPED_FROM = 10_000
"""Whole numbers from which thousands are set apart."""
LONGEST = 160
"""Characters of the text that stands for a whole channel."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A JSON Schema with the definitions that it refers to."""

    schema: Mapping[str, Any]
    definitions: Mapping[str, Any]

    def at(self, path: Sequence[str | int]) -> "ValueType":
        """Return the type at a path below; an empty schema where the type does not tell."""
        here = self
        for key in path:
            here = here._below(key)
        return here

    def _below(self, key: str | int) -> "ValueType":
        plain = self.plain
        if isinstance(key, int):
            inner = plain.get("items", {})
        else:
            inner = plain.get("properties", {}).get(key) or plain.get("additionalProperties", {})
        return ValueType(inner if isinstance(inner, Mapping) else {}, self.definitions)

    @property
    def plain(self) -> Mapping[str, Any]:
        """The schema behind references and "or null"."""
        return controls.resolved(self.schema, self.definitions)[0]

    @property
    def is_decimal(self) -> bool:
        return controls.is_decimal(self.plain)


UNTYPED = ValueType({}, {})


def type_of(channel: Channel) -> ValueType:
    """Return the type of a channel's values."""
    return ValueType(channel.schema, channel.model.model_json_schema(by_alias=False).get("$defs", {}))


def plain_text(value: Any, kind: ValueType = UNTYPED) -> str:
    """Return a value as one text; objects and lists as JSON."""
    if value is None:
        return NOTHING["null"]
    if is_tombstone(value):
        return ERASED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if kind.is_decimal:
        return _decimal_text(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and abs(value) >= GROUPED_FROM:
        return f"{value:,}"
    return json_text(value)


def summary(value: Any, kind: ValueType = UNTYPED) -> str:
    """Return a value in a few words, for the line of its channel. Not for anybody who decides on it."""
    text = _summary(value, kind)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _summary(value: Any, kind: ValueType) -> str:
    if is_tombstone(value) or not isinstance(value, dict | list):
        return " ".join(plain_text(value, kind).split())
    if not value:
        return NOTHING["list" if isinstance(value, list) else "object"]
    if isinstance(value, dict):
        return _summary_of_object(value, kind)
    return _summary_of_list(value, kind)


def _summary_of_object(value: Mapping[str, Any], kind: ValueType) -> str:
    """Return the fields that hold something, each behind its name, in the order in which the type declares them."""
    parts: list[str] = []
    declared = [key for key in kind.plain.get("properties", {}) if key in value]
    for key in dict.fromkeys([*declared, *value]):
        inner = value[key]
        # What is not there says nothing about what is.
        if inner is None or inner in ("", [], {}):
            continue
        text = _count(inner) if isinstance(inner, dict | list) else _summary(inner, kind.at([key]))
        parts.append(f"{key.replace('_', ' ')} {text}")
        if sum(map(len, parts)) > LONGEST:
            break
    return ", ".join(parts) or "nothing in it"


def _count(value: Any) -> str:
    name = "item" if isinstance(value, list) else "field"
    return f"{len(value):,} {name}{'' if len(value) == 1 else 's'}"


def _summary_of_list(value: Sequence[Any], kind: ValueType) -> str:
    count = _count(value)
    if any(isinstance(item, dict | list) for item in value[:1]):
        return count
    first = ", ".join(_summary(item, kind.at([0])) for item in value[:8])
    return f"{count}: {first}"


def _decimal_text(value: Any) -> str:
    """Return money or another exact number with its own digits and its thousands set apart."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return json_text(value)
    # An exponent would write a million zeros.
    if not number.is_finite() or abs(number.adjusted()) > controls.LONG:
        return json_text(value)
    return f"{number:,f}"


def _text(value: str) -> str:
    if value == "":
        return NOTHING["text"]
    if could_be_mistaken(value) or value != value.strip():
        return json.dumps(value, ensure_ascii=False)
    return value
