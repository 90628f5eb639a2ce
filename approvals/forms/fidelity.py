"""The kinds of control that give a value back unchanged. Browsers change line breaks,
strip blanks, and send nothing for no value; a value that would not survive its own
control unchanged gets a plainer one, in the end JSON. Pure.

Without it, a reviewer who edits one field would sign changes in others that he never
saw.
"""

import re
from collections.abc import Sequence
from typing import Any

_WORDS = {
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "datetime": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?"),
    "time": re.compile(r"\d\d:\d\d(:\d\d)?"),
    "email": re.compile(r"\S+"),
    "url": re.compile(r"\S+"),
}
_TYPES: dict[str, tuple[type, ...]] = {
    "whole": (int,),
    "number": (int, float),
    "money": (str, int, float),
    "bool": (bool,),
    "group": (dict,),
    "map": (dict,),
    "rows": (list,),
    "lines": (list,),
    "file": (),
}
"""Types of the values that a control gives back. A file's control gives none back: the
file would have to be sent again.
"""
_EMPTY = frozenset(
    {
        "text",
        "area",
        "whole",
        "number",
        "money",
        "choice",
        "radio",
        "yes_no",
        "json",
        "group",
    }
)
"""Controls that return null where they are left empty, or are switched off."""


def fitting(
    kind: str,
    item: str,
    value: Any,
    *,
    choices: Sequence[Any],
    blank: bool,
) -> tuple[str, str]:
    """Return the kind of control, and of a list's items, for this value: `kind` itself
    if it gives the value back. `blank`: a text field that is left empty returns this
    value.
    """
    if value is None:
        is_fit = kind in _EMPTY or kind in _WORDS
        return (kind, item) if is_fit else ("json", "")
    if _carries(kind, item, value, choices=choices, blank=blank):
        return kind, item
    # A text that is not in its format, as an odd date, is still a text.
    if kind in _WORDS and _carries("text", item, value, choices=choices, blank=blank):
        return "text", item
    return "json", ""


def _carries(
    kind: str,
    item: str,
    value: Any,
    *,
    choices: Sequence[Any],
    blank: bool,
) -> bool:
    """Return whether a control of this kind gives the value back unchanged."""
    if kind in ("text", "area"):
        return _is_text(value, lines=kind == "area", blank=blank)
    if kind in _WORDS:
        return isinstance(value, str) and _WORDS[kind].fullmatch(value) is not None
    if kind in ("choice", "radio"):
        return value in choices
    # By the exact type, because a bool is an int too.
    if kind in _TYPES and type(value) not in _TYPES[kind]:
        return False
    if kind == "money":
        # Money is sent as the text of the number, without blanks around it.
        return str(value) == str(value).strip() != ""
    if kind == "lines":
        return all(_carries(item, "", line, choices=(), blank=False) for line in value)
    return True


def _is_text(value: Any, *, lines: bool, blank: bool) -> bool:
    # Browsers send all line breaks as CR LF, which is read as LF.
    if not isinstance(value, str) or "\r" in value:
        return False
    if "\n" in value and not lines:
        return False
    return blank or bool(value.strip())
