"""Which control gives a value back as it was. Browsers change line ends, cut blanks, and send nothing for nothing; a
value that would not survive its own control unchanged gets a plainer one, in the end JSON. Pure.

Without it, a reviewer who edits one field would sign changes in others that he never saw.
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
"""Types of the values that a control gives back. A file's control gives none: what is there would have to be sent anew.
"""
_EMPTY = frozenset({"text", "area", "whole", "number", "money", "choice", "radio", "json", "group"})
"""Controls that give null where they are left empty, or are switched off."""


def fitting(kind: str, item: str, value: Any, *, choices: Sequence[Any], blank: bool) -> tuple[str, str]:
    """The kind of control, and of a list's items, for this value: the one given, if it gives the value back. `blank`:
    a field of text that is left empty gives this value.
    """
    if value is None:
        return (kind, item) if kind in _EMPTY or kind in _WORDS else ("json", "")
    for one in (kind, "text") if kind in _WORDS else (kind,):
        if _carries(one, item, value, choices=choices, blank=blank):
            return one, item
    return "json", ""


def _carries(kind: str, item: str, value: Any, *, choices: Sequence[Any], blank: bool) -> bool:
    if kind in ("text", "area"):
        return _is_text(value, lines=kind == "area", blank=blank)
    if kind in _WORDS:
        return isinstance(value, str) and _WORDS[kind].fullmatch(value) is not None
    if kind in ("choice", "radio"):
        return value in choices
    if kind in _TYPES and type(value) not in _TYPES[kind]:
        return False
    if kind == "money":
        return str(value) == str(value).strip() != ""
    return kind != "lines" or all(_carries(item, "", one, choices=(), blank=False) for one in value)


def _is_text(value: Any, *, lines: bool, blank: bool) -> bool:
    if not isinstance(value, str) or "\r" in value or ("\n" in value and not lines):
        return False
    return blank or bool(value.strip())
