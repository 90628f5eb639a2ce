"""The declared types of values, as far as they determine how a value is formatted:
which texts are amounts, and of what currency. Pure.

A graph declares money as a `Decimal` whose field has `json_schema_extra={"currency":
"EUR"}`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from approvals.forms.controls import is_decimal, resolved
from orchestrator.engine.graphs.call import is_call
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.state import schema_of

MOST_REFERENCES = 10
"""The most references within a schema that are followed from one place: a type may
refer to itself.
"""
_KINDS = frozenset({"$ref", "allOf", "anyOf", "const", "enum", "oneOf", "type"})
"""The keywords that say what kind of value a schema takes."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """The JSON Schema of a value and of the values inside it; an empty schema declares
    nothing.
    """

    schema: Mapping[str, Any] = field(default_factory=dict)
    definitions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any]) -> "ValueType":
        """Return the type that a whole schema describes."""
        return cls(schema, schema.get("$defs", {}))

    def at(self, path: Iterable[str | int]) -> "ValueType":
        """Return the type of the value at a path of keys; any key leads to the items of
        a list.
        """
        inner = self
        for key in path:
            inner = inner.field(key)
        return inner

    def field(self, key: str | int) -> "ValueType":
        """Return the type of one field, entry or item."""
        plain = self.plain
        # A dictionary declares one type for all entries, a list one for all items.
        inner = plain.get("properties", {}).get(key)
        if inner is None:
            inner = plain.get("additionalProperties") or plain.get("items")
        if not isinstance(inner, Mapping):
            return NOTHING_DECLARED
        return ValueType(inner, self.definitions)

    @property
    def is_amount(self) -> bool:
        """Return whether values are decimals, which are texts in JSON."""
        return bool(self.schema) and is_decimal(self.plain)

    @property
    def currency(self) -> str:
        """The currency code of an amount; empty if none is declared."""
        return _currency_of(self.schema, self.definitions, MOST_REFERENCES)

    def money(self) -> "ValueType":
        """Return the type of the first field that is an amount of a currency; this type
        where it is an amount itself.
        """
        if self.is_amount:
            return self
        for name in self.plain.get("properties", {}):
            field_type = self.field(name)
            if field_type.is_amount and field_type.currency:
                return field_type
        # A total is an amount even where the graph declares no currency for it.
        return ValueType(_DECIMAL)

    @property
    def plain(self) -> Mapping[str, Any]:
        """The schema that is left once references are followed and "or null" is
        dropped.
        """
        plain, _ = resolved(self.schema, self.definitions)
        return plain


_DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string"}]}
NOTHING_DECLARED = ValueType()
TEXT = ValueType({"type": "string"})
"""The type of a text that a caller wrote for people to read."""


def schema_of_channel(channel: Channel) -> dict[str, Any]:
    """Return the schema of a channel's values, with the definitions of its model, into
    which its references lead.
    """
    definitions = schema_of(channel.model).get("$defs", {})
    return {**channel.schema, "$defs": definitions}


def schema_of_answer(
    of_question: Mapping[str, Any] | bool | None, of_channel: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the schema by which the form of an answer is drawn: that of the question,
    where it says what kind of value it asks for; else the channel's, with what the
    question adds. It begins without a value, because nobody proposed one.
    """
    schema = dict(of_channel)
    if isinstance(of_question, Mapping):
        schema = (
            dict(of_question)
            if _KINDS & of_question.keys()
            else {**schema, **of_question}
        )
        schema["$defs"] = {
            **of_channel.get("$defs", {}),
            **of_question.get("$defs", {}),
        }
    schema.pop("default", None)
    return schema


def decimal_of(currency: str) -> ValueType:
    """Return the type of an amount of that currency, or of a bare decimal if it is
    empty.
    """
    return ValueType({**_DECIMAL, "currency": currency})


def _currency_of(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    references: int,
) -> str:
    """Return the currency that a schema names, itself or in a schema that it refers to
    or is a union of.
    """
    if "currency" in schema:
        return str(schema["currency"])
    # A type may refer to itself.
    if references == 0:
        return ""
    inner = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        inner.append(definitions.get(name, {}))
    for part in inner:
        currency = _currency_of(part, definitions, references - 1)
        if currency:
            return currency
    return ""


@lru_cache(maxsize=64)
def _state_type(compiled: Compiled) -> ValueType:
    return ValueType.of_schema(compiled.schemas["state"])


def type_of_channel(compiled: Compiled | None, node: str, channel: str) -> ValueType:
    """Return the type that a graph declares for a channel that this node writes;
    `NOTHING_DECLARED` where its version is not installed.
    """
    if compiled is None:
        return NOTHING_DECLARED
    if is_call(channel):
        return ValueType.of_schema(
            schema_of_channel(compiled.channel_of(node, channel))
        )
    return _state_type(compiled).field(channel)


def type_of_item(form: Mapping[str, Any] | None) -> ValueType:
    """Return the type that a caller declares for an item, as its write's form has it."""
    schema = (form or {}).get("schema")
    return ValueType.of_schema(schema) if isinstance(schema, dict) else NOTHING_DECLARED


def type_of_fact(compiled: Compiled | None, path: str) -> ValueType:
    """Return the type of the value that a gate's fact shows: `payout.amount`,
    `state.payout.amount` or `input.amount`.
    """
    if compiled is None:
        return NOTHING_DECLARED
    keys = path.split(".")
    first = keys[0]
    if first in ("state", "proposal"):
        return _state_type(compiled).at(keys[1:])
    if first != "input" and first in compiled.channels:
        return _state_type(compiled).at(keys)
    # A bare name that is no channel is a field of the input.
    input_keys = keys[1:] if first == "input" else keys
    return ValueType.of_schema(compiled.schemas["input"]).at(input_keys)
