"""JSON Schema in everyday words: the kind of a value, and the change of a type. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Any

_TYPES = {
    "integer": "number",
    "number": "number",
    "string": "text",
    "boolean": "yes or no",
    "object": "object",
    "null": "nothing",
}
_FORMATS = {
    "date": "date",
    "date-time": "time",
    "time": "time of day",
    "duration": "duration",
    "uuid": "UUID",
}
_LONGEST = 60
"""The most characters of a rule's value that are shown."""


def resolved(
    schema: Schema,
    definitions: Mapping[str, Schema],
    inside: tuple[str, ...] = (),
) -> Schema:
    """Return a schema with its references filled in. The names of required fields are
    sorted, for their order means nothing. A reference that leads into itself stays.
    """
    if isinstance(schema, list):
        return [resolved(member, definitions, inside) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("required"), list):
        schema = {**schema, "required": sorted(schema["required"])}
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in inside:
        # Keywords beside a reference count too, and outweigh those of its target.
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {
            **resolved(definitions[name], definitions, (*inside, name)),
            **resolved(rest, definitions, inside),
        }
    return {key: resolved(value, definitions, inside) for key, value in schema.items()}


def kind_in_words(schema: Schema) -> str:
    """Return the kind of a value: number, text, list of text, one of a, b."""
    if not isinstance(schema, dict) or not schema:
        return "anything"
    # Before the type, which an enumeration names as well.
    if "enum" in schema or "const" in schema:
        members = schema.get("enum", [schema.get("const")])
        return f"one of {', '.join(map(str, members))}"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return _alternatives_in_words(schema[word])
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {kind_in_words(items)}" if items else "list"
    by_type = _TYPES.get(schema.get("type", ""), "anything")
    return _FORMATS.get(schema.get("format", ""), by_type)


def _alternatives_in_words(schemas: list[Schema]) -> str:
    kinds = list(dict.fromkeys(kind_in_words(schema) for schema in schemas))
    # This is how pydantic writes the schema of a Decimal.
    if kinds == ["number", "text"]:
        return "decimal number"
    return " or ".join(kinds)


def type_change(old: Schema, new: Schema) -> str:
    """Return the change of a type, "number became text"; empty if both are the same.
    Both without references.
    """
    if old == new:
        return ""
    before = kind_in_words(old)
    after = kind_in_words(new)
    if before != after:
        return f"{before} became {after}"
    # In everyday words both are numbers, so the difference needs other words.
    if {old.get("type"), new.get("type")} == {"integer", "number"}:
        if old["type"] == "integer":
            return "whole number became number"
        return "number became whole number"
    return "; ".join(_inner_changes(old, new)) or "its type changed"


def _inner_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between two types of one kind."""
    for key in sorted({*old, *new}):
        before = old.get(key)
        after = new.get(key)
        if before == after:
            continue
        if key == "properties":
            yield from _field_changes(before or {}, after or {})
        elif key == "items":
            yield f"of its items {type_change(before, after)}"
        elif key == "required":
            yield from _required_changes(set(before or ()), set(after or ()))
        else:
            yield f"{key} {_short(before)} became {_short(after)}"


def _required_changes(old: set[str], new: set[str]) -> Iterator[str]:
    for name in sorted(new - old):
        yield f"field {name} must be given now"
    for name in sorted(old - new):
        yield f"field {name} may be left out now"


def _field_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in old:
        if name not in new:
            yield f"field {name} is gone"
    for name in new:
        if name not in old:
            yield f"field {name} is new"
    for name in old:
        if name in new and old[name] != new[name]:
            yield f"field {name}: {type_change(old[name], new[name])}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}…"
