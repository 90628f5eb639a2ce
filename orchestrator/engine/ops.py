"""What changed in a value, as data. Built-in reducers say it themselves, so a differential store compares no values;
`between` finds it for everything else.

An op is `{"op": "set", "value": v}`, `{"op": "append", "items": [...]}` (at a list's end), `{"op": "insert",
"items": [...]}` (into a sorted set), `{"op": "merge", "items": {...}}` (keys of a dict), or
`{"op": "within", "keys": {key: op}, "gone": [key]}` (inside a dict; a key that was not there takes a "set"; no "gone"
where nothing went). All values are canonical JSON.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.engine.canonical import Json, encode

Op = dict[str, Any]


def apply(old: Json, op: Op) -> Json:
    """The value after the change. `old` is not touched."""
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
        kept = {key: value for key, value in old.items() if key not in op["gone"]} if "gone" in op else old
        return {**kept, **{key: apply(old.get(key), inner) for key, inner in op["keys"].items()}}
    raise ValueError(f"unknown op {kind!r}")


def apply_to_own(old: Json, op: Op) -> Json:
    """`apply` for who holds the only reference to `old` and has no more use for it, nor for the op: both may end up in
    the result, so a long list that many ops lengthen is not copied for each.
    """
    kind = op["op"]
    if kind == "within" and old:
        if "gone" in op:
            for key in op["gone"]:
                old.pop(key, None)
        for key, inner in op["keys"].items():
            old[key] = inner["value"] if inner["op"] == "set" else apply_to_own(old.get(key), inner)
        return old
    if kind == "append" and old:
        old.extend(op["items"])
        return old
    if kind == "merge" and old:
        old.update(op["items"])
        return old
    return apply(old, op)


def put(value: Json) -> Op:
    """The op that sets a value."""
    return {"op": "set", "value": value}


def within(keys: Mapping[str, Op], gone: list[str] | None = None) -> Op:
    """The op that changes some keys of a dict."""
    return {"op": "within", "keys": keys, "gone": gone} if gone else {"op": "within", "keys": keys}


def between(before: Json, after: Json) -> Op | None:
    """The op that makes `after` of `before`; None where they are the same value. Dicts are entered, a list that only
    grew is an append, anything else is set.
    """
    if same(before, after):
        return None
    if type(after) is dict and type(before) is dict:
        return within(_keys_between(before, after), sorted(before.keys() - after.keys()))
    if type(after) is list and type(before) is list:
        shared = len(before)
        if before and shared < len(after) and same(before, after[:shared]):
            return {"op": "append", "items": after[shared:]}
    return put(after)


_BOXES = frozenset({dict, list})


def _keys_between(before: dict[str, Json], after: dict[str, Json]) -> dict[str, Op]:
    keys: dict[str, Op] = {}
    for key, value in after.items():
        old = before.get(key)
        if type(old) is not type(value) or key not in before:
            keys[key] = put(value)
        elif type(value) in _BOXES:
            op = between(old, value) if old or value else None
            if op is not None:
                keys[key] = op
        elif old != value:
            keys[key] = put(value)
    return keys


def same(one: Json, other: Json) -> bool:
    """Whether two JSON values are the same value. To Python `True == 1 == 1.0`; to JSON they are three."""
    if one is other:
        return True
    if one != other or type(one) is not type(other):
        return False
    return not one or type(one) not in _BOXES or encode(one) == encode(other)


def in_order(items: list[Json]) -> list[Json]:
    """A set's items in their one order: text and numbers by value, anything else by canonical bytes."""
    kinds = {type(item) for item in items}
    if kinds <= {str} or kinds <= {int} or kinds <= {float}:
        return sorted(items)
    return sorted(items, key=encode)
