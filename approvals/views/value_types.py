"""The declared types of values, as far as they say how a value reads: which texts are amounts, and of what. Pure.

A graph declares money as a `Decimal` whose field has `json_schema_extra={"currency": "EUR"}`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from approvals.forms.controls import is_decimal, resolved
from orchestrator.engine.compile import Compiled

MOST_REFERENCES = 10
"""References within a schema that are followed from one place: a type may refer to itself."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """What a JSON Schema says of a value and of what lies within it; of an empty schema nothing is known."""

    schema: Mapping[str, Any] = field(default_factory=dict)
    definitions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_schema(cls, schema: Mapping[str, Any]) -> "ValueType":
        """The type that a whole schema describes."""
        return cls(schema, schema.get("$defs", {}))

    def at(self, path: Iterable[str]) -> "ValueType":
        """The type of what lies at a path of keys; of an item of a list any key gives it."""
        found = self
        for key in path:
            found = found.field(key)
        return found

    def field(self, key: str) -> "ValueType":
        """The type of one field, entry or item."""
        plain = self._plain()
        properties = plain.get("properties", {})
        inner = properties.get(key)
        if inner is None:
            inner = plain.get("additionalProperties") or plain.get("items")
        return ValueType(inner, self.definitions) if isinstance(inner, Mapping) else NOTHING_DECLARED

    @property
    def is_amount(self) -> bool:
        """Whether values are decimals, which JSON keeps as texts."""
        return bool(self.schema) and is_decimal(self._plain())

    @property
    def currency(self) -> str:
        """The code of the currency of an amount; empty where none is declared."""
        return _currency_of(self.schema, self.definitions, MOST_REFERENCES)

    def money(self) -> "ValueType":
        """The type of the first amount of a currency among the fields; itself where it is one."""
        if self.is_amount:
            return self
        fields = (self.field(name) for name in self._plain().get("properties", {}))
        return next((each for each in fields if each.is_amount and each.currency), ValueType(_DECIMAL))

    def _plain(self) -> Mapping[str, Any]:
        plain, _ = resolved(self.schema, self.definitions)
        return plain


_DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string"}]}
NOTHING_DECLARED = ValueType()


def decimal_of(currency: str) -> ValueType:
    """The type of an amount of that currency; of a bare decimal where it is empty."""
    return ValueType({**_DECIMAL, "currency": currency})


def _currency_of(schema: Mapping[str, Any], definitions: Mapping[str, Any], references: int) -> str:
    """The currency that a schema names, itself or in what it refers to or is a union of."""
    if "currency" in schema:
        return str(schema["currency"])
    if references == 0:
        return ""
    inner = [*schema.get("anyOf", ()), *schema.get("allOf", ())]
    if "$ref" in schema:
        inner.append(definitions.get(str(schema["$ref"]).rpartition("/")[2], {}))
    named = (_currency_of(each, definitions, references - 1) for each in inner)
    return next(filter(None, named), "")


@lru_cache(maxsize=64)
def _state_type(compiled: Compiled) -> ValueType:
    return ValueType.of_schema(compiled.schemas["state"])


def type_of_channel(compiled: Compiled | None, channel: str) -> ValueType:
    """The type that a graph declares for a channel; nothing where its version is not installed."""
    return _state_type(compiled).field(channel) if compiled else NOTHING_DECLARED


def type_of_fact(compiled: Compiled | None, path: str) -> ValueType:
    """The type of what a gate's fact shows: `payout.amount`, `state.payout.amount` or `input.amount`."""
    if compiled is None:
        return NOTHING_DECLARED
    first, *rest = path.split(".")
    of_input = ValueType.of_schema(compiled.schemas["input"])
    if first == "input":
        return of_input.at(rest)
    if first in ("state", "proposal"):
        return _state_type(compiled).at(rest)
    if first in compiled.channels:
        return _state_type(compiled).at([first, *rest])
    return of_input.at([first, *rest])
