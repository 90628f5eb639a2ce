"""Patches of a state: a merge patch (RFC 7396) where one is an object, operations (RFC 6902) where it is a list. Pure;
stores and forks call it. Nothing that is given is changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from orchestrator.engine import canonical
from orchestrator.engine.canonical import Json
from orchestrator.engine.channel import LIMIT, Channel
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.mend import NEAR, as_text, mend_of, value_at_fault

PARTITIONS = ("scratch", "artifacts")
"""What a patch may change; the input is frozen, diagnostics are the engine's."""

MOST_SHOWN = 1000
"""Bytes of a refused value that the refusal repeats."""

State = dict[str, dict[str, Json]]


def patched(
    state: State, patch: Mapping[str, Any], *, graph: Compiled | None = None, limit: int | None = LIMIT
) -> State:
    """The state after a patch: {partition: merge patch or operations}, partitions being scratch and artifacts.

    With a `graph`, each channel that changed must fit its type and the `limit` in bytes, and one that the patch removes
    is at its default again. Raises `InvalidValue` naming the place, `PayloadTooLarge`.
    """
    if not isinstance(patch, Mapping):
        raise InvalidValue("a patch is an object with the partitions that it changes", path="")
    for name in patch:
        if name not in PARTITIONS:
            raise InvalidValue(f"a patch may change {' and '.join(PARTITIONS)}, not {name}", path=str(name))
    after = {name: dict(state[name]) for name in PARTITIONS}
    for name, part in patch.items():
        try:
            after[name] = _partition(after[name], part)
        except InvalidValue as error:
            inner = str(error.facts.get("path", ""))
            facts = {**error.facts, "path": f"{name}.{inner}" if inner and not inner.startswith("[") else name + inner}
            raise InvalidValue(f"{name}: {error.message}", **facts) from error
    return _checked(state, after, graph, limit=limit) if graph else after


def json_of(patch: Any) -> Json:
    """The patch as plain JSON. Raises `InvalidValue` naming path and rule, with the mend for what Python has and JSON
    writes as text, such as a Decimal.
    """
    try:
        return canonical.normalised(patch)
    except InvalidValue as error:
        found = next(
            (texts for path, texts in _texts(patch, ()) if canonical.path_text(path) == error.facts["path"]), []
        )
        facts = {**error.facts, "rule": error.facts["reason"], **dict(zip(("mend",), found, strict=False))}
        raise InvalidValue(error.message, **facts) from error


def _texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    """The values in a patch that JSON writes as text only, with their paths, no deeper than JSON may be nested."""
    if texts := as_text(value):
        yield path, texts
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    if len(path) < canonical.DEEPEST:
        for key, inner in pairs:
            yield from _texts(inner, (*path, key))


def apply(value: Json, patch: Any) -> Json:
    """The value after a merge patch or operations. Raises `InvalidValue`."""
    return operated(value, patch) if isinstance(patch, list) else merged(value, canonical.normalised(patch))


def merged(value: Json, patch: Json) -> Json:
    """RFC 7396: objects are merged, null removes, anything else takes the place of what was there."""
    if not isinstance(patch, dict):
        return patch
    after = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            after.pop(name, None)
        else:
            after[name] = merged(after.get(name), part)
    return after


def operated(value: Json, operations: Sequence[Any]) -> Json:
    """RFC 6902: the operations one after another, all or none. Raises `InvalidValue` naming the one that fails."""
    root: Json = {"": _copy(value)}
    for number, operation in enumerate(operations):
        try:
            _operate(root, operation)
        except _Wrong as error:
            raise InvalidValue(f"operation {number}: {error}", path=f"[{number}]") from error
    return root[""]


class _Wrong(Exception):
    """Why an operation cannot be done."""


def _operate(root: Json, operation: Any) -> None:
    if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
        raise _Wrong(f"it needs an op: {', '.join(_OPERATIONS)}")
    needed, act = _OPERATIONS[operation["op"]]
    for name in ("path", *needed):
        if name not in operation:
            raise _Wrong(f"{operation['op']} needs {name}")
    act(root, _keys(operation["path"]), operation)


def _keys(pointer: Any) -> list[str]:
    """RFC 6901. The first is always "", the name of the document itself in `root`."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise _Wrong(f"{pointer!r} is no pointer: it begins with /")
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")]


def _parent(root: Json, keys: Sequence[str]) -> Json:
    at = root
    for key in keys[:-1]:
        at = _child(at, key)
    return at


def _child(at: Json, key: str) -> Json:
    if isinstance(at, list):
        return at[_index(at, key, most=len(at) - 1)]
    if isinstance(at, dict) and key in at:
        return at[key]
    raise _Wrong(f"there is no {key!r}")


def _index(at: list[Json], key: str, *, most: int) -> int:
    if not (key.isascii() and key.isdigit()) or (key[0] == "0" and key != "0") or int(key) > most:
        raise _Wrong(f"{key!r} is no place in a list of {len(at)}")
    return int(key)


def _add(root: Json, keys: list[str], value: Json) -> None:
    at, key = _parent(root, keys), keys[-1]
    if isinstance(at, dict):
        at[key] = value
    elif isinstance(at, list):
        at.insert(len(at) if key == "-" else _index(at, key, most=len(at)), value)
    else:
        raise _Wrong(f"{key!r} can be added to an object or a list only")


def _remove(root: Json, keys: list[str]) -> Json:
    if len(keys) == 1:
        raise _Wrong("the whole cannot be removed")
    at, key = _parent(root, keys), keys[-1]
    gone = _child(at, key)
    del at[int(key) if isinstance(at, list) else key]
    return gone


def _replace(root: Json, keys: list[str], value: Json) -> None:
    at, key = _parent(root, keys), keys[-1]
    _child(at, key)
    at[int(key) if isinstance(at, list) else key] = value


def _move(root: Json, keys: list[str], source: list[str]) -> None:
    if keys[: len(source)] == source and keys != source:
        raise _Wrong("nothing can be moved into itself")
    if keys == source:
        _value(root, source)
    else:
        _add(root, keys, _remove(root, source))


def _test(root: Json, keys: list[str], value: Json) -> None:
    if not _equal(_value(root, keys), value):
        raise _Wrong("the value is another one")


def _value(root: Json, keys: list[str]) -> Json:
    return _child(_parent(root, keys), keys[-1])


def _equal(one: Json, other: Json) -> bool:
    """Equal as JSON: numbers by value, and true is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_Act = Callable[[Json, list[str], dict[str, Json]], object]
_OPERATIONS: dict[str, tuple[tuple[str, ...], _Act]] = {
    "add": (("value",), lambda root, at, op: _add(root, at, _copy(op["value"]))),
    "remove": ((), lambda root, at, op: _remove(root, at)),
    "replace": (("value",), lambda root, at, op: _replace(root, at, _copy(op["value"]))),
    "move": (("from",), lambda root, at, op: _move(root, at, _keys(op["from"]))),
    "copy": (("from",), lambda root, at, op: _add(root, at, _copy(_value(root, _keys(op["from"]))))),
    "test": (("value",), lambda root, at, op: _test(root, at, op["value"])),
}


def _copy(value: Json) -> Json:
    return canonical.normalised(value)


def _partition(values: dict[str, Json], part: Any) -> dict[str, Json]:
    if not isinstance(part, list | dict):
        raise InvalidValue("a patch of a partition is an object or a list of operations")
    after = apply(values, part)
    if not isinstance(after, dict):
        raise InvalidValue("after a patch a partition is an object of channels still")
    return after


def _checked(before: State, after: State, graph: Compiled, *, limit: int | None) -> State:
    """The patched state with each changed channel staged, and those that were removed at their defaults."""
    for name, values in after.items():
        for unknown in [channel for channel in values if not _belongs(graph, channel, name)]:
            raise _no_channel(graph, name, unknown)
    fresh = graph.fresh_state()
    return {name: dict(_staged(graph, name, before, {**fresh[name], **after[name]}, limit)) for name in PARTITIONS}


def _no_channel(graph: Compiled, partition: str, unknown: str) -> InvalidValue:
    known = [channel for channel in graph.channels if _belongs(graph, channel, partition)]
    near = get_close_matches(unknown, known, n=1, cutoff=NEAR)
    meant = f"; did you mean {near[0]}?" if near else ""
    facts = {"path": f"{partition}.{unknown}", "rule": "This must be a channel of the partition."}
    return InvalidValue(f"{partition} of {graph.name} has no channel {unknown}{meant}", **facts, nearest=near)


def _belongs(graph: Compiled, channel: str, partition: str) -> bool:
    return channel in graph.channels and graph.channels[channel].partition == partition


def _staged(
    graph: Compiled, partition: str, before: State, after: dict[str, Json], limit: int | None
) -> Iterator[tuple[str, Json]]:
    for name, value in after.items():
        old, channel = before[partition], graph.channels[name]
        same = name in old and canonical.encode(old[name]) == canonical.encode(value)
        lax = value is None and channel.lax_none
        yield name, value if same or lax else _stage(channel, partition, value, limit)


def _stage(channel: Channel, partition: str, value: Json, limit: int | None) -> Json:
    """The staged value. A refusal says path, rule and value, and the mend where there is one."""
    try:
        return channel.stage(value, limit=limit)
    except InvalidValue as error:
        facts: dict[str, Any] = {**error.facts, "path": f"{partition}.{error.facts.get('path') or channel.name}"}
        facts["rule"] = error.facts.get("reason", error.message)
        shown = {"value": [value_at_fault(channel, value)], "mend": mend_of(channel, value)}
        facts |= {name: one for name, found in shown.items() for one in found if _is_short(one)}
        raise InvalidValue(f"{partition}: {error.message}", **facts) from error


def _is_short(value: Json) -> bool:
    return len(canonical.encode(value)) <= MOST_SHOWN
