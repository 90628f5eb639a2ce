"""JSON Schema in words that people use: what a value is, and how a type became another. Pure."""

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
_FORMATS = {"date": "date", "date-time": "time", "time": "time of day", "duration": "duration", "uuid": "UUID"}
_LONGEST = 60
"""Characters of a rule's value that are said."""


def resolved(schema: Schema, definitions: Mapping[str, Schema], inside: tuple[str, ...] = ()) -> Schema:
    """A schema with its references filled in, and the names of required fields sorted, for their order means nothing;
    one that leads into itself stays as it is.
    """
    if isinstance(schema, list):
        return [resolved(one, definitions, inside) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("required"), list):
        schema = {**schema, "required": sorted(schema["required"])}
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name in definitions and name not in inside:
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return {**resolved(definitions[name], definitions, (*inside, name)), **resolved(rest, definitions, inside)}
    return {key: resolved(value, definitions, inside) for key, value in schema.items()}


def kind_in_words(schema: Schema) -> str:
    """What a value of this type is: number, text, list of text, one of a, b."""
    if not isinstance(schema, dict) or not schema:
        return "anything"
    if "enum" in schema or "const" in schema:
        return f"one of {', '.join(map(str, schema.get('enum', [schema.get('const')])))}"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            kinds = list(dict.fromkeys(kind_in_words(one) for one in schema[word]))
            return "decimal number" if kinds == ["number", "text"] else " or ".join(kinds)
    if schema.get("type") == "array":
        return f"list of {kind_in_words(schema['items'])}" if schema.get("items") else "list"
    return _FORMATS.get(schema.get("format", ""), _TYPES.get(schema.get("type", ""), "anything"))


def type_change(old: Schema, new: Schema) -> str:
    """How a type became another, "number became text"; empty for two that are one. Both without references."""
    if old == new:
        return ""
    before, after = kind_in_words(old), kind_in_words(new)
    if before != after:
        return f"{before} became {after}"
    if {old.get("type"), new.get("type")} == {"integer", "number"}:
        whole = "whole number"
        return f"{whole} became number" if old["type"] == "integer" else f"number became {whole}"
    return "; ".join(_inside(old, new)) or "its type changed"


def _inside(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """What differs in two types of one kind."""
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if key == "properties":
            yield from _fields(before or {}, after or {})
        elif key == "items":
            yield f"of its items {type_change(before, after)}"
        elif key == "required":
            yield from (f"field {name} must be given now" for name in sorted({*(after or ())} - {*(before or ())}))
            yield from (f"field {name} may be left out now" for name in sorted({*(before or ())} - {*(after or ())}))
        else:
            yield f"{key} {_short(before)} became {_short(after)}"


def _fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"field {name} is gone" for name in old if name not in new)
    yield from (f"field {name} is new" for name in new if name not in old)
    for name in old:
        if name in new and old[name] != new[name]:
            yield f"field {name}: {type_change(old[name], new[name])}"


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
