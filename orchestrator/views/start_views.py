"""The two views of the input of a run, a form and JSON: what was typed in one of them is carried over to the other.

As on the page that goes on from a checkpoint, a page shows one view and is drawn over `base`, which comes back with
what was typed. What another view would lose keeps the view where it is.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from approvals.forms import controls, reading, sent
from approvals.forms.controls import Control
from checkpoints.core.diff import ADDED, differences, written
from checkpoints.core.strict_json import NotStrict, parse_strict
from checkpoints.core.visible_json import escaped, indented

VIEWS = {"form": "Form", "json": "JSON"}
PREFIX = "i"

File = Callable[[Any], Any]
"""Gives the file that a value refers to, None where the form could not send it again."""


def drawn_over(schema: Mapping[str, Any], base: str) -> Control:
    """Return the form over a value, as JSON. Raises `ValueError` where that is none."""
    try:
        value = parse_strict(base or "{}")
    except NotStrict as error:
        raise ValueError(str(error)) from None
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return _drawn(schema, value)


def _drawn(schema: Mapping[str, Any], value: dict[str, Any]) -> Control:
    """Return the form over a value. A file that is referred to is one that was chosen before, not a piece of JSON."""
    root = controls.root(schema, prefix=PREFIX, value=value or None)
    files = {control.name for control in controls.root(schema, prefix=PREFIX).walk() if control.kind == "file"}
    for control in root.walk():
        if control.kind == "json" and control.name in files and control.value:
            reference = parse_strict(control.value)
            if isinstance(reference, dict) and reference.keys() == controls.KEYS_OF_A_FILE:
                control.kind = "file"
                control.value = reference
    return root


def unreadable(root: Control) -> list[Control]:
    """Return the controls with something typed that cannot be read. What is only missing can be typed as JSON."""
    return [control for control in reading.errors(root) if control.error not in reading.MISSING.values()]


def as_json(value: Any) -> str:
    """Return the text of the JSON view."""
    return str(escaped(indented(value)))


def lost_in_form(schema: Mapping[str, Any], value: dict[str, Any], *, file: File) -> str:
    """Return the path of the first thing that a form over this value would not send again, "" where there is none."""
    drawn = _drawn(schema, value)
    fields = {**sent.untouched(drawn), **dict(_files(drawn, file))}
    again = reading.read_form(_drawn(schema, value), fields)
    for place in differences(value, again):
        if place.kind != ADDED and not _reads_alike(place.before, place.after):
            return written(place.path)
    return ""


def _files(root: Control, file: File) -> Iterator[tuple[str, Any]]:
    for control in root.walk():
        if control.kind == "file" and isinstance(control.value, dict):
            yield control.name, file(control.value)


def _reads_alike(before: Any, after: Any) -> bool:
    """Return whether a field shows a value as it is: an amount is a number in JSON, and a text in a field."""
    return isinstance(before, str | int | float) and isinstance(after, str | int | float) and str(before) == str(after)
