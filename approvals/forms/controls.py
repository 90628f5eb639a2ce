"""A JSON Schema, as pydantic writes it, as a tree of form controls. Pure.

What has no control of its own is edited as JSON, so every schema gets a form.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals.forms import fidelity
from checkpoints.core.visible_json import escaped, indented

KEYS_OF_A_FILE = {"file", "name", "size", "sha256"}
RADIO_UP_TO = 5
MOST_ITEMS = 20
"""Items up to which a list or dictionary is edited item by item."""
LONG = 80
"""Characters from which a text is edited in an area."""
DEEPEST = 8
"""Objects within objects that are drawn field by field. What is deeper, as in a type that holds itself, is JSON."""
UNSET: Any = object()
"""No value, so the schema's default is shown, where `None` is the value null."""
SET = "set"
NOT_SET = "not set"
"""What the switch of an optional object sends."""
EMPTY_TEXT = "empty text"
"""The label of a choice that is the empty text."""


@dataclass(slots=True)
class Control:
    """One control. `kind` chooses how it is drawn; `name` is its name in the form, `path` its path in the value.

    With a `switch` a group may be not set: the switch has the group's name, and `value` is None while it is off.
    """

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
    key: str = ""
    switch: bool = False

    @property
    def has_empty_choice(self) -> bool:
        """Return whether the empty text is one of the choices."""
        return any(value == "" for value, _ in self.choices)

    def walk(self) -> "list[Control]":
        """The control and all below it."""
        return [self, *(found for child in self.children for found in child.walk())]


def root(
    schema: Mapping[str, Any], *, prefix: str, value: Any = None, label: str = "", optional: bool = False
) -> Control:
    """The control of a whole value. Names of controls begin with `prefix`.

    With a value, lists of objects and open dictionaries get a control for each item that is there; without one, they
    are written as JSON, for nobody knows how many there will be. An object that the schema allows to be null has a
    switch where it is `optional`; then None is the value null, not the absence of a value.
    """
    value = UNSET if value is None and not optional else value
    control = _control(schema, schema.get("$defs", {}), name=prefix, path="", label=label, value=value, required=True)
    control.switch = control.switch and optional
    return control


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
    kind, item = kind_of(plain, defs, None if value is UNSET else value)
    if value is UNSET or (value is None and not nullable):
        value = schema.get("default")
    else:
        blank = not nullable and (required or schema.get("default", UNSET) == value)
        kind, item = fidelity.fitting(kind, item, value, choices=choices_of(plain), blank=blank)
    if _is_unfit(kind, plain, name, nullable=nullable):
        kind, item = "json", ""
    hint = str(schema.get("description") or plain.get("description") or "")
    control = Control(kind, name, path, label, hint, required and not nullable, item=item, nullable=nullable)
    control.switch = kind == "group" and nullable
    if kind == "group":
        control.children = _children(plain, defs, control, value if isinstance(value, Mapping) else {})
    elif kind == "map":
        control.children = _entries(plain, defs, control, value)
    elif kind == "rows":
        control.children = _rows(plain, defs, control, value)
    elif kind in ("choice", "radio"):
        control.choices = list(_told_apart({str(v): _label_of_choice(str(v)) for v in choices_of(plain)}).items())
    control.value = _shown(kind, value)
    return control


def _is_unfit(kind: str, schema: Mapping[str, Any], name: str, *, nullable: bool) -> bool:
    """Return whether a kind cannot show a schema: it never ends, or null and the empty text are two choices."""
    if kind == "group":
        return name.count(".") >= DEEPEST
    return kind in ("choice", "radio") and nullable and "" in choices_of(schema)


def _label_of_choice(value: str) -> str:
    return humanise(value) or EMPTY_TEXT


def _shown(kind: str, value: Any) -> Any:
    """A value as its control shows it."""
    if kind == "json":
        return "" if value is None else escaped(indented(value))
    if kind == "lines":
        return "\n".join(str(one) for one in value) if isinstance(value, list) else ""
    if kind in ("choice", "radio"):
        return None if value is None else str(value)
    return value


def _entries(
    schema: Mapping[str, Any], defs: Mapping[str, Any], parent: Control, value: Mapping[str, Any]
) -> list[Control]:
    inner = schema.get("additionalProperties", {})
    found = []
    for number, (key, one) in enumerate(value.items()):
        label = _label_of_entry(str(key))
        found.append(_child(inner, defs, parent, str(key), label=label, value=one, required=True, at=number))
    return found


def _rows(schema: Mapping[str, Any], defs: Mapping[str, Any], parent: Control, value: Sequence[Any]) -> list[Control]:
    inner = schema.get("items", {})
    return [
        _control(
            inner,
            defs,
            name=f"{parent.name}.{n}",
            path=f"{parent.path}[{n}]",
            label=f"Item {n + 1}" if len(value) > 1 else "",
            value=one,
            required=True,
        )
        for n, one in enumerate(value)
    ]


def _children(
    schema: Mapping[str, Any], defs: Mapping[str, Any], parent: Control, value: Mapping[str, Any]
) -> list[Control]:
    required, labels = schema.get("required", ()), _labels(schema["properties"])
    return [
        _child(inner, defs, parent, key, label=labels[key], value=value.get(key, UNSET), required=key in required)
        for key, inner in schema["properties"].items()
    ]


def _labels(properties: Mapping[str, Any]) -> dict[str, str]:
    """Each field's label: its title, or its key where several would be called the same."""
    return _told_apart({key: str(one.get("title") or "").strip() or humanise(key) for key, one in properties.items()})


def _child(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    parent: Control,
    key: str,
    *,
    label: str,
    value: Any,
    required: bool,
    at: int | None = None,
) -> Control:
    # Entries are named by number: their keys are anybody's, and two ways to one name would lose a value.
    name, path = f"{parent.name}.{key if at is None else at}", f"{parent.path}.{key}" if parent.path else key
    child = _control(schema, defs, name=name, path=path, label=label, value=value, required=required)
    child.key = key
    return child


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
    if found == "object":
        return _object(schema, value), ""
    if found == "array":
        return _list(schema, defs, value)
    if found == "string":
        return _text(schema, value), ""
    return _TYPES.get(str(found), "json"), ""


def _object(schema: Mapping[str, Any], value: Any) -> str:
    if schema.get("properties"):
        return "group"
    flat = (
        isinstance(value, Mapping)
        and 0 < len(value) <= MOST_ITEMS
        and isinstance(schema.get("additionalProperties"), Mapping)
    )
    return "map" if flat else "json"


def _list(schema: Mapping[str, Any], defs: Mapping[str, Any], value: Any) -> tuple[str, str]:
    item, _ = resolved(schema.get("items", {}), defs)
    kind, _ = kind_of(item, defs, None)
    if kind in ("text", "whole", "number", "money", "date"):
        return "lines", kind
    few = isinstance(value, list) and 0 < len(value) <= MOST_ITEMS
    return ("rows", "") if kind == "group" and few else ("json", "")


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


def _told_apart(labels: Mapping[str, str]) -> dict[str, str]:
    """Key -> label, with the key where another has the same label."""
    count = Counter(label.casefold() for label in labels.values())
    return {key: label if count[label.casefold()] == 1 else f"{label} ({key})" for key, label in labels.items()}


def _label_of_entry(key: str) -> str:
    """The key of an open dictionary: as it is, in quotes where one would not see it."""
    return key if key and key.strip() == key and not key.startswith('"') else json.dumps(key, ensure_ascii=False)
