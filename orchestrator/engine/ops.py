"""What a reducer did, as data: a differential store keeps the change without comparing values. Channels make ops.

An op is `{"op": "set", "value": v}`, `{"op": "append", "items": [...]}` (at a list's end), `{"op": "insert",
"items": [...]}` (into a sorted set) or `{"op": "merge", "items": {...}}` (keys of a dict). All values are canonical
JSON.
"""

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
    raise ValueError(f"unknown op {kind!r}")


def in_order(items: list[Json]) -> list[Json]:
    """A set's items in their one order: text and numbers by value, anything else by canonical bytes."""
    kinds = {type(item) for item in items}
    if kinds <= {str} or kinds <= {int} or kinds <= {float}:
        return sorted(items)
    return sorted(items, key=encode)
