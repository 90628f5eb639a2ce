"""Ops: the change of a value as data. Built-in reducers return it themselves, so a
differential store compares no values; `between` finds it for everything else.

An op is `{"op": "set", "value": v}`, `{"op": "append", "items": [...]}` (at a list's
end), `{"op": "insert", "items": [...]}` (into a sorted set), `{"op": "merge", "items":
{...}}` (keys of a dict), or `{"op": "within", "keys": {key: op}, "gone": [key]}`
(inside a dict; a key that was not there takes a "set"; no "gone" where nothing went).
All values are canonical JSON.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.engine.values.canonical import Json, encode

Op = dict[str, Any]


def apply(
    old: Json,
    op: Op,
) -> Json:
    """Return the value after the change. `old` is not touched."""
    kind = op["op"]
    if kind == "set":
        return op["value"]
    if kind == "append":
        return [*(old or []), *op["items"]]
    if kind == "insert":
        return in_order([*(old or []), *op["items"]])
    if kind == "merge":
        return {**(old or {}), **op["items"]}
    if kind == "within":
        return _apply_within(old, op)
    raise ValueError(f"unknown op {kind!r}")


def _apply_within(
    old: dict[str, Json],
    op: Op,
) -> dict[str, Json]:
    after = dict(old)
    for key in op.get("gone", ()):
        after.pop(key, None)
    for key, inner in op["keys"].items():
        after[key] = apply(old.get(key), inner)
    return after


def apply_to_own(
    old: Json,
    op: Op,
) -> Json:
    """Apply an op for a caller with the only reference to `old`, who no longer needs
    either: both may end up in the result, so that a long list that many ops lengthen is
    not copied for each.
    """
    kind = op["op"]
    # If nothing is there yet, `apply` makes the new container.
    if kind == "within" and old:
        for key in op.get("gone", ()):
            old.pop(key, None)
        for key, inner in op["keys"].items():
            if inner["op"] == "set":
                old[key] = inner["value"]
            else:
                old[key] = apply_to_own(old.get(key), inner)
        return old
    if kind == "append" and old:
        old.extend(op["items"])
        return old
    if kind == "merge" and old:
        old.update(op["items"])
        return old
    return apply(old, op)


def put(value: Json) -> Op:
    """Return the op that sets a value."""
    return {"op": "set", "value": value}


def within(
    keys: Mapping[str, Op],
    removed: list[str] | None = None,
) -> Op:
    """Return the op that changes some keys of a dict."""
    op: Op = {"op": "within", "keys": keys}
    if removed:
        op["gone"] = removed
    return op


def between(
    before: Json,
    after: Json,
) -> Op | None:
    """Return the op that makes `after` of `before`, None if they are the same value.
    Dicts are entered, a list that only grew is an append, anything else is set.
    """
    if same(before, after):
        return None
    return _change(before, after)


def _change(
    before: Json,
    after: Json,
) -> Op:
    """Return `between` for two values that differ."""
    if type(after) is dict and type(before) is dict:
        removed = sorted(before.keys() - after.keys())
        return within(_keys_between(before, after), removed)
    if type(after) is list and type(before) is list:
        shared = len(before)
        if before and shared < len(after) and same(before, after[:shared]):
            return {"op": "append", "items": after[shared:]}
    return put(after)


_BOXES = frozenset({dict, list})


def _keys_between(
    before: dict[str, Json],
    after: dict[str, Json],
) -> dict[str, Op]:
    keys: dict[str, Op] = {}
    for key, value in after.items():
        # To Python, 1 and true are equal, so that types are compared first.
        old = before.get(key)
        if type(old) is not type(value) or key not in before:
            keys[key] = put(value)
        elif type(value) in _BOXES:
            # Equal containers may still differ inside, as [1] and [true] do.
            if old == value and encode(old) == encode(value):
                continue
            keys[key] = _change(old, value)
        elif old != value:
            keys[key] = put(value)
    return keys


def same(
    value: Json,
    other: Json,
) -> bool:
    """Return whether two JSON values are the same value. To Python `True == 1 == 1.0`;
    to JSON they are three.
    """
    if value is other:
        return True
    if value != other or type(value) is not type(other):
        return False
    # Equal containers may still differ inside, as [1] and [true] do.
    if not value or type(value) not in _BOXES:
        return True
    return encode(value) == encode(other)


def in_order(items: list[Json]) -> list[Json]:
    """Return a set's items in their one order: text and numbers by value, anything else
    by canonical bytes.
    """
    kinds = {type(item) for item in items}
    # Items of one comparable kind; any others could not be compared with each other.
    if kinds <= {str} or kinds <= {int} or kinds <= {float}:
        return sorted(items)
    return sorted(
        items,
        key=encode,
    )
