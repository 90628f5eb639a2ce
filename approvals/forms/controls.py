"""A JSON Schema, as pydantic writes it, as a tree of form controls. Pure.

What has no control of its own is edited as JSON, so every schema gets a form.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEYS_OF_A_FILE = {"file", "name", "size", "sha256"}
RADIO_UP_TO = 5
LONG = 80
"""Characters from which a text is edited in an area."""


@dataclass(slots=True)
class Control:
    """One control. `kind` chooses the template's branch; `name` is its name in the form, `path` its path in the value."""

    kind: str
    name: str
    path: str
    label: str
    hint: str = ""
    required: bool = True
    value: Any = ""
    error: str = ""
    choices: list[tuple[str, str]] = field(default_factory=list)
    children: list["Control"] = field(default_factory=list)
    item: str = ""
    nullable: bool = False
    default: Any = None

    def walk(self) -> "list[Control]":
        """The control and all below it."""
        return [self, *(found for child in self.children for found in child.walk())]


def root(schema: Mapping[str, Any], *, prefix: str, value: Any = None, label: str = "") -> Control:
    """The control of a whole value. Names of controls begin with `prefix`."""
    return _control(schema, schema.get("$defs", {}), name=prefix, path="", label=label, value=value, required=True)


def _control(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    *,
    name: str,
    path: str,
    label: str,
    value: Any,
    required: bool,
) -> Control:
    plain, nullable = resolved(schema, defs)
    kind, item = kind_of(plain, defs, value)
    hint = str(schema.get("description") or plain.get("description") or "")
    default = schema.get("default")
    control = Control(kind, name, path, label, hint, required and not nullable, item=item, nullable=nullable)
    control.default = default
    value = default if value is None else value
    if kind == "group":
        given = value if isinstance(value, Mapping) else {}
        control.children = _children(plain, defs, control, given)
    elif kind in ("choice", "radio"):
        control.choices = [(str(v), humanise(str(v))) for v in choices_of(plain)]
        control.value = "" if value is None else str(value)
    elif kind == "json":
        control.value = "" if value is None else json.dumps(value, ensure_ascii=False, indent=2)
    elif kind == "lines":
        control.value = "\n".join(str(one) for one in value) if isinstance(value, list) else ""
    else:
        control.value = value
    return control


def _children(
    schema: Mapping[str, Any], defs: Mapping[str, Any], parent: Control, value: Mapping[str, Any]
) -> list[Control]:
    required = schema.get("required", ())
    return [
        _control(
            inner,
            defs,
            name=f"{parent.name}.{key}",
            path=f"{parent.path}.{key}" if parent.path else key,
            label=str(inner.get("title") or "") or humanise(key),
            value=value.get(key),
            required=key in required,
        )
        for key, inner in schema["properties"].items()
    ]


def resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The schema behind references and "or null", and whether null is allowed. A union of several others stays one."""
    nullable = False
    for _ in range(10):
        if "$ref" in schema:
            schema = defs.get(str(schema["$ref"]).rpartition("/")[2], {})
        elif len(schema.get("allOf", ())) == 1:
            schema = schema["allOf"][0]
        elif "anyOf" in schema:
            others = [one for one in schema["anyOf"] if one.get("type") != "null"]
            nullable = nullable or len(others) < len(schema["anyOf"])
            if len(others) != 1:
                return {"anyOf": others}, nullable
            schema = others[0]
        else:
            break
    return schema, nullable


_FORMATS = {"date": "date", "date-time": "datetime", "time": "time", "email": "email", "uri": "url"}
_TYPES = {"integer": "whole", "number": "number", "boolean": "bool"}


def kind_of(schema: Mapping[str, Any], defs: Mapping[str, Any], value: Any) -> tuple[str, str]:
    """The kind of control, and the kind of a list's items."""
    if is_file(schema):
        return "file", ""
    if is_decimal(schema):
        return "money", ""
    values = choices_of(schema)
    if values and all(isinstance(one, str) for one in values):
        return ("radio" if len(values) <= RADIO_UP_TO else "choice"), ""
    found = schema.get("type")
    if found == "object" and schema.get("properties"):
        return "group", ""
    if found == "array":
        item, _ = resolved(schema.get("items", {}), defs)
        kind, _ = kind_of(item, defs, None)
        return ("lines", kind) if kind in ("text", "whole", "number", "money", "date") else ("json", "")
    if found == "string":
        return _text(schema, value), ""
    return _TYPES.get(str(found), "json"), ""


def _text(schema: Mapping[str, Any], value: Any) -> str:
    long = isinstance(value, str) and (len(value) > LONG or "\n" in value)
    if long or int(schema.get("maxLength", 0)) > 4 * LONG:
        return "area"
    return _FORMATS.get(str(schema.get("format")), "text")


def choices_of(schema: Mapping[str, Any]) -> Sequence[Any]:
    """The values of an enumeration; empty where it is none."""
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


def is_decimal(schema: Mapping[str, Any]) -> bool:
    """pydantic writes a Decimal as "a number, or a text of digits"."""
    kinds = {one.get("type") for one in schema.get("anyOf", ())}
    digits = schema.get("type") == "string" and str(schema.get("pattern", "")).startswith("^(?!^[-+.]*$)")
    return kinds == {"number", "string"} or digits


def is_file(schema: Mapping[str, Any]) -> bool:
    """Whether it is a reference to an uploaded file."""
    return schema.get("type") == "object" and set(schema.get("properties", ())) == KEYS_OF_A_FILE


def humanise(key: str) -> str:
    """A key as a label."""
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]
