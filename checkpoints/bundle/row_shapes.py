"""Which form the JSON in a column has, as far as those who read it rely on that. A bundle of a house whose program is
faulty may say anything; what no page could show is refused before anything is written.

A shape is a type (`object`: anything), a set of texts of which it must be one, a tuple of shapes of which one fits, a
list [shape] of any length, an object {name: shape} that may say more, where a name that ends with "?" may be absent, or
a function of the value and its row.
"""

from collections.abc import Mapping
from typing import Any

Shape = Any
Shapes = Mapping[str, Shape]
"""By column. Of a column that is not named anything can be shown."""
TEXTS = [str]
NOTHING = type(None)


def require_shapes(row: Any, contents: Mapping[str, Any], shapes: Shapes) -> None:
    """Raise `ValueError` where the JSON of a column of this row, by name, has not the form that it must have."""
    for name, value in contents.items():
        if not _fits(value, shapes.get(name, object), row):
            raise ValueError(f"{name} has another form than such a column has")


def _fits(value: Any, shape: Shape, row: Any) -> bool:
    if isinstance(shape, type):
        return isinstance(value, shape) and (shape in (bool, object) or not isinstance(value, bool))
    if isinstance(shape, frozenset):
        return isinstance(value, str) and value in shape
    if isinstance(shape, tuple):
        return any(_fits(value, one, row) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(one, shape[0], row) for one in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(_holds(value, name, one, row) for name, one in shape.items())
    return bool(shape(value, row))


def _holds(value: dict[str, Any], name: str, shape: Shape, row: Any) -> bool:
    plain = name.removesuffix("?")
    return _fits(value[plain], shape, row) if plain in value else plain != name


ERROR = {"type?": str, "message?": str, "code?": str}
DOCUMENT = {
    "scratch": dict, "artifacts": dict, "diagnostics": dict, "frontier": dict, "versions": dict, "open": dict,
}  # fmt: skip
NODE = {
    "node": str, "visit?": int, "effect?": str, "tasks?": int, "ms?": (int, float), "outcome?": str,
}  # fmt: skip
EVENTS: dict[str, Shape] = {
    "decision_signed": {"write": str, "revision": int, "verdict": str},
    "results_reused": {"tasks": TEXTS},
}
"""What pages read of a line of the log, by its type; of all others it is an object."""


def _is_told(value: Any, row: Any) -> bool:
    return _fits(value, EVENTS.get(row.type, dict), row)


def _is_asked(value: Any, row: Any) -> bool:
    """[kind, and two words or more of what it was], or no more than the kind for what a task wants to change."""
    return isinstance(value, list) and (row.kind == "journal" or len(value) >= 3)


def _is_found(value: Any, row: Any) -> bool:
    """References, with contents where these were kept; of what a task wants to change, one object a change."""
    if row.kind == "journal":
        return _fits(value, [dict], row)
    return _fits(value, [_is_reference] if row.mode == "live" else {"traces": [{"ref": _is_reference}]}, row)


def _is_reference(value: Any, row: Any) -> bool:
    return isinstance(value, list) and len(value) == 4


RUN: Shapes = {"facts": dict, "input": dict, "error": ERROR}
EVENT: Shapes = {"payload": _is_told}
LINE: Shapes = {"stops": TEXTS, "patched": TEXTS, "patch": dict, "reason": str}
CHECKPOINT: Shapes = {"nodes": [NODE], "changed": TEXTS, "snapshot": DOCUMENT}
WRITE: Shapes = {"base": {"value": object, "shows": dict, "bound": bool, "version?": (int, NOTHING)}, "shown": dict}
RESULT: Shapes = {"error": (ERROR, NOTHING), "settled_reason": str}
MEMORY: Shapes = {"asked": _is_asked, "found": _is_found}
METADATA: Shapes = {"value": (str, int, float, bool)}
ERASURE: Shapes = {"paths": TEXTS, "inherited": [{"run": str, "key?": str, "how?": str}], "kept_files": TEXTS}
