"""What was posted, as the value that the schema's form stands for. Pure: uploads are handed in as values.

Only what has no meaning at all is refused here (no number, no JSON); everything else is the business of the real type.
"""

import math
from collections.abc import Mapping
from typing import Any

from approvals.forms.controls import NOT_SET, SET, Control
from checkpoints.core.strict_json import NotStrict, parse_strict

ABSENT: Any = object()
"""A field that was left empty and is not required: it takes its default."""
MISSING = {"value": "This is needed.", "file": "Choose a file."}
"""What is said of a required field that was left empty."""


def read_form(control: Control, posted: Mapping[str, Any]) -> Any:
    """The value of the control and those below, `ABSENT` where it was left empty. Marks errors on the controls."""
    if control.switch and not _is_set(control, posted):
        return None
    if control.kind in ("group", "map"):
        found = {child.key: read_form(child, posted) for child in control.children}
        return {key: value for key, value in found.items() if value is not ABSENT}
    if control.kind == "rows":
        return [value for value in (read_form(child, posted) for child in control.children) if value is not ABSENT]
    if control.kind == "bool":
        control.value = control.name in posted
        return control.value
    if control.kind == "file":
        return _file(control, posted)
    text = str(posted.get(control.name, ""))
    # Radio buttons without a choice send nothing, which is not the empty text.
    control.value = text if control.name in posted or control.kind != "radio" else None
    if text.strip() == "":
        return _empty(control, text, sent=control.name in posted)
    try:
        return _READERS.get(control.kind, _text)(control, text)
    except ValueError as error:
        control.error = str(error)
        return ABSENT


def errors(control: Control) -> list[Control]:
    """The controls that carry an error, in order."""
    return [one for one in control.walk() if one.error]


def place(control: Control, path: str, message: str) -> bool:
    """Put a message beside the control at `path`, or beside the nearest one above it. False where there is none."""
    known = {one.path: one for one in control.walk()}
    while path and path not in known:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    if not path:
        return False
    known[path].error = message
    return True


def _is_set(control: Control, posted: Mapping[str, Any]) -> bool:
    """Return where the switch of an optional object stands, and leave it there. Without an answer it is as drawn."""
    drawn = NOT_SET if control.value is None else SET
    on = str(posted.get(control.name, drawn)) != NOT_SET
    if not on:
        control.value = None
    elif control.value is None:
        control.value = {}
    return on


def _empty(control: Control, text: str, *, sent: bool) -> Any:
    if control.kind == "lines":
        return []
    if sent and control.has_empty_choice:
        return text
    if control.kind in ("text", "area") and not control.nullable and control.required:
        return text
    if control.nullable:
        return None
    if control.required:
        control.error = MISSING["value"]
    return ABSENT


def _file(control: Control, posted: Mapping[str, Any]) -> Any:
    given = posted.get(control.name)
    if isinstance(given, dict):
        control.value = given
        return given
    if control.required:
        control.error = MISSING["file"]
    return ABSENT


def _text(control: Control, text: str) -> Any:
    # A browser sends line ends as CR LF; the value that was proposed has LF.
    return text.replace("\r\n", "\n")


def _whole(control: Control, text: str) -> Any:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError("This must be a whole number.") from None


def _number(control: Control, text: str) -> Any:
    try:
        number = float(text.strip())
    except ValueError:
        raise ValueError("This must be a number.") from None
    if not math.isfinite(number):
        raise ValueError("This must be a number.")
    return number


def _stripped(control: Control, text: str) -> Any:
    return text.strip()


def _lines(control: Control, text: str) -> Any:
    reader = _READERS.get(control.item, _text)
    return [reader(control, line) for line in text.replace("\r\n", "\n").split("\n") if line.strip()]


def parse_json(control: Control, text: str) -> Any:
    """A JSON text. Raises `ValueError` with a sentence that says where it breaks."""
    try:
        return parse_strict(text)
    except NotStrict as error:
        raise ValueError(f"This is no JSON: {error}.") from None


_READERS = {
    "whole": _whole,
    "number": _number,
    "money": _stripped,
    "date": _stripped,
    "datetime": _stripped,
    "time": _stripped,
    "choice": _stripped,
    "radio": _stripped,
    "lines": _lines,
    "json": parse_json,
}
