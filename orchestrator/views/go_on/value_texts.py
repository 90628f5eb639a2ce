"""Values of channels as an operator reads them: money and numbers as their types
declare them, texts without quotes wherever they can be taken for nothing else. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from approvals.display.leaf import ERASED, NOTHING, could_be_mistaken
from approvals.display.value_types import (
    NOTHING_DECLARED,
    ValueType,
    schema_of_channel,
)
from approvals.forms import controls
from checkpoints.core.tombstone import is_tombstone
from checkpoints.core.visible_json import json_text
from orchestrator.engine.graphs.channel import Channel

GROUPED_FROM = 10_000
"""The smallest whole number whose thousands are set apart."""
LONGEST = 160
"""The most characters of the text that stands for a whole channel."""


def type_of(channel: Channel | None) -> ValueType:
    """Return the type of a channel's values, or `NOTHING_DECLARED` for a channel that
    the graph does not have.
    """
    if channel is None:
        return NOTHING_DECLARED
    return ValueType.of_schema(schema_of_channel(channel))


def plain_text(value: Any, declared: ValueType = NOTHING_DECLARED) -> str:
    """Return a value as one text; objects and lists as JSON."""
    if value is None:
        return NOTHING["null"]
    if is_tombstone(value):
        return ERASED
    # Before numbers, because for Python a bool is one.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if declared.is_amount:
        return _decimal_text(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and abs(value) >= GROUPED_FROM:
        return f"{value:,}"
    return json_text(value)


def summary(value: Any, declared: ValueType = NOTHING_DECLARED) -> str:
    """Return a value in a few words, for the line of its channel. Not for anybody who
    decides on it.
    """
    text = _summary(value, declared)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _summary(value: Any, declared: ValueType) -> str:
    if is_tombstone(value) or not isinstance(value, dict | list):
        return " ".join(plain_text(value, declared).split())
    if not value:
        return NOTHING["list" if isinstance(value, list) else "object"]
    if isinstance(value, dict):
        return _summary_of_object(value, declared)
    return _summary_of_list(value, declared)


def _summary_of_object(value: Mapping[str, Any], declared: ValueType) -> str:
    """Return the fields that hold something, each after its name, in the order in which
    the type declares them.
    """
    parts: list[str] = []
    in_order = [key for key in declared.plain.get("properties", {}) if key in value]
    for key in dict.fromkeys([*in_order, *value]):
        inner = value[key]
        # An empty field says nothing about the others.
        if inner is None or inner in ("", [], {}):
            continue
        text = _summary_of_field(inner, declared.field(key))
        parts.append(f"{key.replace('_', ' ')} {text}")
        if sum(map(len, parts)) > LONGEST:
            break
    return ", ".join(parts) or "nothing in it"


def _summary_of_field(value: Any, declared: ValueType) -> str:
    if isinstance(value, dict | list):
        return _count(value)
    return _summary(value, declared)


def _count(value: Any) -> str:
    name = "item" if isinstance(value, list) else "field"
    plural = "" if len(value) == 1 else "s"
    return f"{len(value):,} {name}{plural}"


def _summary_of_list(value: Sequence[Any], declared: ValueType) -> str:
    count = _count(value)
    if isinstance(value[0], dict | list):
        return count
    of_item = declared.field(0)
    first = ", ".join(_summary(item, of_item) for item in value[:8])
    return f"{count}: {first}"


def _decimal_text(value: Any) -> str:
    """Return money or another exact number with its own digits and its thousands set
    apart.
    """
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
