"""A JSON Schema, as pydantic writes it, as a tree of form controls. Pure.

A value for which there is no control is edited as JSON, so every schema gets a form.
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
"""The most items up to which a list or dictionary is edited item by item."""
LONG = 80
"""The number of characters from which a text is edited in an area."""
DEEPEST = 8
"""The most objects within objects that are drawn field by field. Deeper ones, as in a
type that contains itself, are JSON.
"""
UNSET: Any = object()
"""No value, so that the schema's default is shown; `None` is the value null."""
SET = "set"
NOT_SET = "not set"
"""The two values that the switch of an optional object sends."""
EMPTY_TEXT = "empty text"
"""The label of a choice that is the empty text."""
YES_OR_NO = (("true", "Yes"), ("false", "No"))
"""The two buttons of a boolean that has no value yet, with what each sends."""
NO_VALUE_CHOSEN = ""
"""The value of such buttons where "not set" is chosen; None chooses no button."""
RADIOS = ("radio", "yes_no")
"""The kinds that are drawn as radio buttons."""


@dataclass(slots=True)
class Control:
    """One control. `kind` chooses how it is drawn; `name` is its name in the form,
    `path` its path in the value.

    A group with a `switch` can be unset: the switch has the group's name, and `value`
    is None while it is off.
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
        """Return the control and all below it."""
        controls = [self]
        for child in self.children:
            controls += child.walk()
        return controls


def root(
    schema: Mapping[str, Any],
    *,
    prefix: str,
    value: Any = None,
    label: str = "",
    optional: bool = False,
) -> Control:
    """Return the control of a whole value. Names of controls begin with `prefix`.

    With a value, lists of objects and open dictionaries get a control for each item of
    the value; without one, they are written as JSON, since the number of items is not
    known. An object that the schema allows to be null has a switch where it is
    `optional`; then None is the value null, not the absence of a value.
    """
    if value is None and not optional:
        value = UNSET
    control = _control(
        schema,
        schema.get("$defs", {}),
        name=prefix,
        path="",
        label=label,
        value=value,
        required=True,
    )
    if not optional:
        control.switch = False
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
    schema = _keywords(schema)
    plain, nullable = resolved(schema, defs)
    kind, item = kind_of(plain, defs, None if value is UNSET else value)
    has_value = value is not UNSET and (value is not None or nullable)
    if not has_value:
        # No value to preserve: the form begins with the default.
        value = schema.get("default")
    kind = _answerable(kind, value)
    if has_value:
        blank = not nullable and _is_blank_kept(schema, value, required=required)
        kind, item = fidelity.fitting(
            kind, item, value, choices=choices_of(plain), blank=blank
        )
    # JSON shows everything, if less comfortably.
    if _is_unfit(kind, plain, name, nullable=nullable):
        kind = "json"
        item = ""
    control = Control(
        kind,
        name,
        path,
        label,
        _hint(schema, plain),
        required and not nullable,
        item=item,
        nullable=nullable,
    )
    control.switch = kind == "group" and nullable
    _fill(control, plain, defs, value)
    control.value = _shown(kind, value)
    _choose_not_set(control, schema, has_value=has_value)
    return control


def _answerable(kind: str, value: Any) -> str:
    """Return the kind of control that can say that nobody has answered yet: a box which
    nobody ticked would say "no" for a person who said nothing.
    """
    return "yes_no" if kind == "bool" and value is None else kind


def _choose_not_set(
    control: Control, schema: Mapping[str, Any], *, has_value: bool
) -> None:
    """Choose the button "not set" of a boolean where null is its value or the default.
    Where there is neither, none is chosen.
    """
    if control.kind == "yes_no" and (has_value or "default" in schema):
        control.value = NO_VALUE_CHOSEN


def _is_blank_kept(schema: Mapping[str, Any], value: Any, *, required: bool) -> bool:
    """Return whether a text field that is left empty returns this value: a required one
    returns the empty text, another one the default.
    """
    return required or schema.get("default", UNSET) == value


def _hint(schema: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    return str(schema.get("description") or plain.get("description") or "")


def _fill(
    control: Control,
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    value: Any,
) -> None:
    """Add the controls below this one, or its choices."""
    if control.kind == "group":
        # A group that is not set shows empty fields under its switch.
        fields = value if isinstance(value, Mapping) else {}
        control.children = _children(schema, defs, control, fields)
    elif control.kind == "map":
        control.children = _entries(schema, defs, control, value)
    elif control.kind == "rows":
        control.children = _rows(schema, defs, control, value)
    elif control.kind in ("choice", "radio"):
        values = [str(choice) for choice in choices_of(schema)]
        # Two choices must not look the same.
        labels = {choice: _label_of_choice(choice) for choice in values}
        control.choices = list(_distinct_labels(labels).items())
    elif control.kind == "yes_no":
        control.choices = list(YES_OR_NO)


def _is_unfit(
    kind: str,
    schema: Mapping[str, Any],
    name: str,
    *,
    nullable: bool,
) -> bool:
    """Return whether a kind cannot show a schema: it never ends, or null and the empty
    text are two choices.
    """
    if kind == "group":
        return name.count(".") >= DEEPEST
    return kind in ("choice", "radio") and nullable and "" in choices_of(schema)


def _label_of_choice(value: str) -> str:
    return humanise(value) or EMPTY_TEXT


def _shown(kind: str, value: Any) -> Any:
    """Return a value as its control shows it."""
    if kind == "json":
        if value is None:
            return ""
        return escaped(indented(value))
    if kind == "lines":
        return "\n".join(map(str, value)) if isinstance(value, list) else ""
    if kind in ("choice", "radio"):
        if value is None:
            return None
        return str(value)
    return value


def _entries(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    parent: Control,
    value: Mapping[str, Any],
) -> list[Control]:
    """Return a control for each entry of an open dictionary."""
    inner = schema.get("additionalProperties", {})
    entries = []
    for number, (key, entry) in enumerate(value.items()):
        control = _child(
            inner,
            defs,
            parent,
            str(key),
            label=_label_of_entry(str(key)),
            value=entry,
            required=True,
            at=number,
        )
        entries.append(control)
    return entries


def _rows(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    parent: Control,
    value: Sequence[Any],
) -> list[Control]:
    """Return a control for each item of a list."""
    inner = schema.get("items", {})
    rows = []
    for number, row in enumerate(value):
        control = _control(
            inner,
            defs,
            name=f"{parent.name}.{number}",
            path=f"{parent.path}[{number}]",
            label=f"Item {number + 1}" if len(value) > 1 else "",
            value=row,
            required=True,
        )
        rows.append(control)
    return rows


def _children(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    parent: Control,
    value: Mapping[str, Any],
) -> list[Control]:
    """Return a control for each field of an object."""
    required = schema.get("required", ())
    labels = _labels(schema["properties"])
    children = []
    for key, inner in schema["properties"].items():
        control = _child(
            inner,
            defs,
            parent,
            key,
            label=labels[key],
            value=value.get(key, UNSET),
            required=key in required,
        )
        children.append(control)
    return children


def _labels(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return each field's label: its title, with its key where several have the same."""
    labels = {}
    for key, schema in properties.items():
        title = str(_keywords(schema).get("title") or "").strip()
        labels[key] = title or humanise(key)
    return _distinct_labels(labels)


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
    # Entries are named by number: users choose their keys, and two controls with one
    # name would lose a value.
    name = key if at is None else str(at)
    child = _control(
        schema,
        defs,
        name=f"{parent.name}.{name}",
        path=f"{parent.path}.{key}" if parent.path else key,
        label=label,
        value=value,
        required=required,
    )
    child.key = key
    return child


def resolved(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
) -> tuple[Mapping[str, Any], bool]:
    """Return the schema that is left once references are followed and "or null" is
    dropped, and whether null is allowed. A union of several others stays one.
    """
    nullable = False
    schema = _keywords(schema)
    # A bound, because a reference may lead back to itself.
    for _ in range(10):
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            schema = _keywords(defs.get(name))
        elif len(schema.get("allOf", ())) == 1:
            schema = _keywords(schema["allOf"][0])
        elif "anyOf" in schema:
            union = [_keywords(member) for member in schema["anyOf"]]
            others = [member for member in union if member.get("type") != "null"]
            if len(others) < len(union):
                nullable = True
            # No single control fits a union; it is edited as JSON.
            if len(others) != 1:
                return {"anyOf": others}, nullable
            schema = others[0]
        else:
            break
    return schema, nullable


def _keywords(schema: Any) -> Mapping[str, Any]:
    """Return the keywords of a schema. true and false, which are schemas too, have
    none, and neither has what is not there.
    """
    return schema if isinstance(schema, Mapping) else {}


_FORMATS = {
    "date": "date",
    "date-time": "datetime",
    "time": "time",
    "email": "email",
    "uri": "url",
}
_TYPES = {"integer": "whole", "number": "number", "boolean": "bool"}


def kind_of(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    value: Any,
) -> tuple[str, str]:
    """Return the kind of control, and the kind of a list's items."""
    if is_file(schema):
        return "file", ""
    if is_decimal(schema):
        return "money", ""
    values = choices_of(schema)
    if values and _are_texts(values):
        return ("radio" if len(values) <= RADIO_UP_TO else "choice"), ""
    match schema.get("type"):
        case "object":
            return _object(schema, value), ""
        case "array":
            return _list(schema, defs, value)
        case "string":
            return _text(schema, value), ""
        case json_type:
            return _TYPES.get(str(json_type), "json"), ""


def _are_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _object(schema: Mapping[str, Any], value: Any) -> str:
    if schema.get("properties"):
        return "group"
    # An open dictionary without a value has no keys to draw fields for.
    if not isinstance(value, Mapping) or not 0 < len(value) <= MOST_ITEMS:
        return "json"
    has_type = isinstance(schema.get("additionalProperties"), Mapping)
    return "map" if has_type else "json"


def _list(
    schema: Mapping[str, Any],
    defs: Mapping[str, Any],
    value: Any,
) -> tuple[str, str]:
    # A list of simple items is a text area, one item a line.
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
    """Return the values of an enumeration; empty if it is none."""
    if schema.get("enum"):
        return list(schema["enum"])
    if "const" in schema:
        return [schema["const"]]
    return []


def is_decimal(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is that of a Decimal, which pydantic writes as "a number,
    or a text of digits".
    """
    # A member may have a list of types.
    types = {str(member.get("type")) for member in schema.get("anyOf", ())}
    return types == {"number", "string"}


def is_file(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema is that of a reference to an uploaded file."""
    if schema.get("type") != "object":
        return False
    return set(schema.get("properties", ())) == KEYS_OF_A_FILE


def humanise(key: str) -> str:
    """Return a key as a label."""
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def _distinct_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by key, with the key added where another has the same label."""
    count = Counter(label.casefold() for label in labels.values())
    return {
        key: label if count[label.casefold()] == 1 else f"{label} ({key})"
        for key, label in labels.items()
    }


def _label_of_entry(key: str) -> str:
    """Return the label of an entry of an open dictionary: its key, in quotes where the
    bare key could be misread.
    """
    is_clear = key and key.strip() == key and not key.startswith('"')
    if is_clear:
        return key
    return json.dumps(key, ensure_ascii=False)
