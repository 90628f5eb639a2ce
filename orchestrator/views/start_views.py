"""The two views of the input of a run, a form and JSON: what was typed in one of them
is carried over to the other.

As on the page that goes on from a checkpoint, a page shows one view and is drawn over
`base`, which comes back with what was typed. If the other view would lose something,
the page stays in this one.
"""

from collections.abc import Callable, Mapping
from typing import Any

from approvals.forms import controls, reading, sent
from approvals.forms.controls import Control
from checkpoints.core.diff import ADDED, differences, written
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented

VIEWS = {"form": "Form", "json": "JSON"}
PREFIX = "i"

Schema = Mapping[str, Any]
File = Callable[[Any], Any]
"""Returns the file that a value refers to, None if the form could not send it again."""


def drawn_over(schema: Schema, base: str) -> Control:
    """Return the form over a value, which is JSON. Raises `ValueError` if it is not, or
    is no object.
    """
    try:
        value = parse_strict(base or "{}")
    except NotStrict as error:
        raise ValueError(str(error)) from None
    # The form is over the fields of an object.
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return _drawn(schema, value)


def _drawn(schema: Schema, value: dict[str, Any]) -> Control:
    """Return the form over a value. A reference to a file is drawn as a file that was
    chosen before, not as a piece of JSON.
    """
    root = controls.root(schema, prefix=PREFIX, value=value or None)
    # Over a value a file's control shows JSON: only the empty form shows its kind.
    files: set[str] = set()
    for control in controls.root(schema, prefix=PREFIX).walk():
        if control.kind == "file":
            files.add(control.name)

    for control in root.walk():
        if control.kind != "json" or control.name not in files or not control.value:
            continue
        reference = parse_strict(control.value)
        if _is_reference(reference):
            control.kind = "file"
            control.value = reference
    return root


def _is_reference(value: Any) -> bool:
    """Return whether a value can be shown as a file that was chosen before. A person may
    have typed it, so that its size need not be a number.
    """
    if not isinstance(value, dict) or value.keys() != controls.KEYS_OF_A_FILE:
        return False
    return type(value["size"]) is int


def unreadable(root: Control) -> list[Control]:
    """Return the controls whose text cannot be read. A value that is only missing is
    none of them: it can be typed as JSON.
    """
    only_missing = reading.MISSING.values()
    errors = reading.errors(root)
    return [control for control in errors if control.error not in only_missing]


def as_json(value: Any) -> str:
    """Return the text of the JSON view."""
    return str(escaped(indented(value)))


def lost_in_form(
    schema: Schema,
    value: dict[str, Any],
    *,
    file: File,
) -> str:
    """Return the path of the first thing that a form over this value would not send
    again, "" if there is none.
    """
    drawn = _drawn(schema, value)
    fields: dict[str, Any] = {**sent.untouched(drawn)}
    for control in drawn.walk():
        if control.kind == "file" and isinstance(control.value, dict):
            fields[control.name] = file(control.value)
    # Posted values are read into a form that is drawn again.
    sent_again = reading.read_form(_drawn(schema, value), fields)
    for place in differences(value, sent_again):
        # A value that the form adds is no loss.
        if place.kind == ADDED:
            continue
        if not _reads_alike(place.before, place.after):
            return written(place.path)
    return ""


def _reads_alike(before: Any, after: Any) -> bool:
    """Return whether a field shows a value as it is: an amount is a number in JSON, and
    a text in a field.
    """
    simple = str | int | float
    if not isinstance(before, simple) or not isinstance(after, simple):
        return False
    return str(before) == str(after)
