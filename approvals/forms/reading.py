"""The posted fields of a form as the value that its schema describes. Pure: uploads are
passed in as values.

Only input without any meaning is refused here (no number, no JSON); everything else is
left to the real type.
"""

import math
from collections.abc import Mapping
from typing import Any

from approvals.forms.controls import NOT_SET, RADIOS, SET, Control
from checkpoints.core.strict_json import NotStrict, parse_strict

ABSENT: Any = object()
"""A field that was left empty and is not required: it takes its default."""
MISSING = {"value": "This is needed.", "file": "Choose a file."}
"""The error of a required field that was left empty."""


def read_form(control: Control, posted: Mapping[str, Any]) -> Any:
    """Return the value of the control and those below; `ABSENT` where it was left
    empty. Marks errors on the controls.
    """
    if control.switch and not _is_set(control, posted):
        return None
    if control.kind in ("group", "map"):
        entries = _read_children(control, posted)
        return {child.key: value for child, value in entries}
    if control.kind == "rows":
        # An item that was left empty is left out.
        return [value for _, value in _read_children(control, posted)]
    if control.kind == "bool":
        control.value = control.name in posted
        return control.value
    if control.kind == "file":
        return _file(control, posted)
    return _read_field(control, posted)


def _read_children(
    control: Control,
    posted: Mapping[str, Any],
) -> list[tuple[Control, Any]]:
    """Return the controls below one that have a value, each with it."""
    entries = []
    for child in control.children:
        value = read_form(child, posted)
        if value is not ABSENT:
            entries.append((child, value))
    return entries


def _read_field(control: Control, posted: Mapping[str, Any]) -> Any:
    text = str(posted.get(control.name, ""))
    is_sent = control.name in posted
    control.value = text
    if control.kind in RADIOS and not is_sent:
        # Radio buttons without a choice send nothing, which is not the empty text.
        control.value = None
    if control.kind == "yes_no" and not is_sent:
        return _unchosen(control)
    if text.strip() == "":
        return _empty(control, text, sent=is_sent)
    try:
        return _READERS.get(control.kind, _text)(control, text)
    except ValueError as error:
        control.error = str(error)
        return ABSENT


def errors(control: Control) -> list[Control]:
    """Return the controls that carry an error, in order."""
    return [inner for inner in control.walk() if inner.error]


def place(control: Control, path: str, message: str) -> bool:
    """Put a message beside the control at `path`, or beside the nearest one above it.
    Returns False if there is none.
    """
    controls = {inner.path: inner for inner in control.walk()}
    # The engine names the innermost place; a form may draw only what is around it.
    while path and path not in controls:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    if not path:
        return False
    controls[path].error = message
    return True


def _is_set(control: Control, posted: Mapping[str, Any]) -> bool:
    """Return whether the switch of an optional object is on, and leave it in that
    position. Without an answer it is as drawn.
    """
    drawn = NOT_SET if control.value is None else SET
    is_on = str(posted.get(control.name, drawn)) != NOT_SET
    if not is_on:
        control.value = None
    elif control.value is None:
        control.value = {}
    return is_on


def _unchosen(control: Control) -> Any:
    """Return the value of a boolean for which no button was chosen."""
    # The value as a whole cannot be left out, even where it may be null.
    if control.required or not control.path:
        control.error = MISSING["value"]
    return ABSENT


def _empty(control: Control, text: str, *, sent: bool) -> Any:
    """Return the value of a field that was left empty."""
    if control.kind == "lines":
        return []
    # The empty text is a value here, which the person chose.
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
    file = posted.get(control.name)
    if isinstance(file, dict):
        control.value = file
        return file
    if control.required:
        control.error = MISSING["file"]
    return ABSENT


def _text(control: Control, text: str) -> Any:
    # A browser sends line breaks as CR LF; the value that was proposed has LF.
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
    # Python reads "nan" and "inf", JSON has neither.
    if not math.isfinite(number):
        raise ValueError("This must be a number.")
    return number


def _yes_or_no(control: Control, text: str) -> Any:
    answers = {"true": True, "false": False}
    if text not in answers:
        raise ValueError("Choose yes or no.")
    return answers[text]


def _stripped(control: Control, text: str) -> Any:
    return text.strip()


def _lines(control: Control, text: str) -> Any:
    reader = _READERS.get(control.item, _text)
    lines = text.replace("\r\n", "\n").split("\n")
    return [reader(control, line) for line in lines if line.strip()]


def parse_json(control: Control, text: str) -> Any:
    """Return the value of a JSON text. Raises `ValueError` with a sentence on where it
    breaks.
    """
    try:
        return parse_strict(text)
    except NotStrict as error:
        raise ValueError(f"This is not valid JSON: {error}.") from None


_READERS = {
    "whole": _whole,
    "number": _number,
    "money": _stripped,
    "date": _stripped,
    "datetime": _stripped,
    "time": _stripped,
    "choice": _stripped,
    "radio": _stripped,
    "yes_no": _yes_or_no,
    "lines": _lines,
    "json": parse_json,
}
