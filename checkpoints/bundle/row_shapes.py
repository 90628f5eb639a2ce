"""The form of the JSON in columns, as far as its readers rely on it. A bundle of a
house whose program is faulty may hold anything; values that no page could show are
refused before anything is written.

A shape is a type (`object`: anything), a set of texts of which it must be one, a tuple
of shapes of which one fits, a list [shape] of any length, an object {name: shape} that
may have more names, where a name that ends with "?" may be absent, or a function of the
value and its row.
"""

from collections.abc import Mapping
from typing import Any

Shape = Any
Shapes = Mapping[str, Shape]
"""By column. A column that is not named may hold anything."""
TEXTS = [str]
NOTHING = type(None)


def require_shapes(row: Any, contents: Mapping[str, Any], shapes: Shapes) -> None:
    """Raise `ValueError` if the JSON of a column of this row, by name, does not have
    the form that it must have.
    """
    for name, value in contents.items():
        if not _fits(value, shapes.get(name, object), row):
            raise ValueError(f"{name} has another form than such a column has")


def _fits(value: Any, shape: Shape, row: Any) -> bool:
    """Return whether a value has a shape."""
    if isinstance(shape, type):
        return _is_of_type(value, shape)
    if isinstance(shape, frozenset):
        return isinstance(value, str) and value in shape
    if isinstance(shape, tuple):
        return any(_fits(value, choice, row) for choice in shape)
    if isinstance(shape, list):
        return _is_list_of(value, shape[0], row)
    if isinstance(shape, dict):
        return _is_object_of(value, shape, row)
    return bool(shape(value, row))


def _is_of_type(value: Any, shape: type) -> bool:
    # To Python a truth value is a number, in JSON it is none.
    if isinstance(value, bool):
        return shape in (bool, object)
    return isinstance(value, shape)


def _is_list_of(value: Any, shape: Shape, row: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(_fits(item, shape, row) for item in value)


def _is_object_of(value: Any, shapes: Shapes, row: Any) -> bool:
    if not isinstance(value, dict):
        return False
    for name, shape in shapes.items():
        plain_name = name.removesuffix("?")
        if plain_name in value:
            if not _fits(value[plain_name], shape, row):
                return False
        elif plain_name == name:
            return False
    return True


ERROR = {"type?": str, "message?": str, "code?": str}
DOCUMENT = {
    "scratch": dict,
    "artifacts": dict,
    "diagnostics": dict,
    "frontier": dict,
    "versions": dict,
    "open": dict,
}
NODE = {
    "node": str,
    "visit?": int,
    "effect?": str,
    "tasks?": int,
    "ms?": (int, float),
    "outcome?": str,
}
EVENTS: dict[str, Shape] = {
    "decision_signed": {"write": str, "revision": int, "verdict": str},
    "results_reused": {"tasks": TEXTS},
}
"""The facts of an event that pages read, by its type; for all others an object."""


def _is_event_payload(value: Any, row: Any) -> bool:
    return _fits(value, EVENTS.get(row.type, dict), row)


def _is_memory_question(value: Any, row: Any) -> bool:
    """Return whether it is [kind, and at least two words of the question], or no more
    than the kind for the changes that a task wants.
    """
    if not isinstance(value, list):
        return False
    return row.kind == "journal" or len(value) >= 3


def _is_memory_answer(value: Any, row: Any) -> bool:
    """Return whether it is references, with contents where these were kept; for the
    changes that a task wants, one object a change.
    """
    if row.kind == "journal":
        return _fits(value, [dict], row)
    if row.mode == "live":
        return _fits(value, [_is_reference], row)
    return _fits(value, {"traces": [{"ref": _is_reference}]}, row)


def _is_reference(value: Any, row: Any) -> bool:
    return isinstance(value, list) and len(value) == 4


RUN: Shapes = {"facts": dict, "input": dict, "error": ERROR}
EVENT: Shapes = {"payload": _is_event_payload}
LINE: Shapes = {"stops": TEXTS, "patched": TEXTS, "patch": dict, "reason": str}
CHECKPOINT: Shapes = {"nodes": [NODE], "changed": TEXTS, "snapshot": DOCUMENT}
_LIMIT = {
    "path": str,
    "choices?": list,
}
WRITE: Shapes = {
    "base": {
        "value": object,
        "shows": dict,
        "bound": bool,
        "version?": (int, NOTHING),
    },
    "shown": {"limits?": [_LIMIT]},
}
RESULT: Shapes = {"error": (ERROR, NOTHING), "settled_reason": str}
MEMORY: Shapes = {"asked": _is_memory_question, "found": _is_memory_answer}
METADATA: Shapes = {"value": (str, int, float, bool)}
ERASURE: Shapes = {
    "paths": TEXTS,
    "inherited": [{"run": str, "key?": str, "how?": str}],
    "kept_files": TEXTS,
}
