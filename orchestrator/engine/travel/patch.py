"""Patches of a state: a merge patch (RFC 7396) if it is an object, operations (RFC
6902) if it is a list. Pure; stores and forks call it. Arguments are never changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.graphs.channel import LIMIT, Channel
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.travel.mend import NEAR, as_text, mend_of, value_at_fault
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json

PARTITIONS = ("scratch", "artifacts")
"""The partitions that a patch may change; the input is frozen, and diagnostics are the
engine's.
"""

MOST_SHOWN = 1000
"""The most bytes of a refused value that the refusal repeats."""

State = dict[str, dict[str, Json]]


def patched(
    state: State,
    patch: Mapping[str, Any],
    *,
    graph: Compiled | None = None,
    limit: int | None = LIMIT,
) -> State:
    """Return the state after a patch: {partition: merge patch or operations}, with the
    partitions scratch and artifacts.

    With a `graph`, each channel that changed must fit its type and the `limit` in
    bytes, and a channel that the patch removes is at its default again. Raises
    `InvalidValue` naming the place, `PayloadTooLarge`.
    """
    _refuse_other_partitions(patch)
    after = {name: dict(state[name]) for name in PARTITIONS}
    for name, part in patch.items():
        try:
            after[name] = _patched_partition(after[name], part)
        except InvalidValue as error:
            path = _path_in_partition(name, str(error.facts.get("path", "")))
            facts = {**error.facts, "path": path}
            raise InvalidValue(f"{name}: {error.message}", **facts) from error
    if graph is None:
        return after
    return _staged_state(
        state,
        after,
        graph,
        limit=limit,
    )


def _refuse_other_partitions(patch: Any) -> None:
    if not isinstance(patch, Mapping):
        raise InvalidValue(
            "a patch is an object with the partitions that it changes", path=""
        )
    for name in patch:
        if name not in PARTITIONS:
            raise InvalidValue(
                f"a patch may change {' and '.join(PARTITIONS)}, not {name}",
                path=str(name),
            )


def _path_in_partition(partition: str, inner: str) -> str:
    """Return the path in a state: scratch.total, but scratch[3] and scratch."""
    if inner and not inner.startswith("["):
        return f"{partition}.{inner}"
    return partition + inner


def json_of(patch: Any) -> Json:
    """Return the patch as plain JSON. Raises `InvalidValue` naming path and rule, with
    the mend for a Python value that JSON writes as text, such as a Decimal.
    """
    try:
        return canonical.normalised(patch)
    except InvalidValue as error:
        facts = {**error.facts, "rule": error.facts["reason"]}
        # A mend is offered for the very value that was refused, and for no other.
        for path, texts in _values_with_text(patch, ()):
            if canonical.path_text(path) == error.facts["path"]:
                facts["mend"] = texts[0]
                break
        raise InvalidValue(error.message, **facts) from error


def _values_with_text(
    value: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], list[str]]]:
    """Yield the values in a patch that JSON writes as text only, with their paths, no
    deeper than JSON may be nested.
    """
    texts = as_text(value)
    if texts:
        yield path, texts
    # A patch that contains itself would be walked forever.
    if len(path) >= canonical.DEEPEST:
        return
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, inner in items:
        yield from _values_with_text(inner, (*path, key))


def apply(value: Json, patch: Any) -> Json:
    """Return the value after a merge patch or operations. Raises `InvalidValue`."""
    if isinstance(patch, list):
        return operated(value, patch)
    return merged(value, canonical.normalised(patch))


def merged(value: Json, patch: Json) -> Json:
    """Return the value after a merge patch (RFC 7396): objects are merged, null
    removes, anything else replaces what was there.
    """
    if not isinstance(patch, dict):
        return patch
    # To the RFC anything but an object is an empty one, so that nulls never stay.
    after = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            after.pop(name, None)
        else:
            after[name] = merged(after.get(name), part)
    return after


def operated(value: Json, operations: Sequence[Any]) -> Json:
    """Return the value after all of the operations (RFC 6902), one after another.
    Raises `InvalidValue` naming the first that fails.
    """
    # The document hangs on a root, so that an operation can replace it as a whole.
    root: Json = {"": _copy(value)}
    for number, operation in enumerate(operations):
        try:
            _operate(root, operation)
        except _Wrong as error:
            message = f"operation {number}: {error}"
            raise InvalidValue(message, path=f"[{number}]") from error
    return root[""]


class _Wrong(Exception):
    """The reason why an operation cannot be applied."""


def _operate(root: Json, operation: Any) -> None:
    if not isinstance(operation, dict) or operation.get("op") not in _OPERATIONS:
        raise _Wrong(f"it needs an op: {', '.join(_OPERATIONS)}")
    needed, act = _OPERATIONS[operation["op"]]
    for name in ("path", *needed):
        if name not in operation:
            raise _Wrong(f"{operation['op']} needs {name}")
    act(root, _keys(operation["path"]), operation)


def _keys(pointer: Any) -> list[str]:
    """Return the keys of a JSON pointer (RFC 6901). The first is always "", the name of
    the document itself in `root`.
    """
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise _Wrong(f"{pointer!r} is no pointer: it begins with /")
    # ~1 first, as the RFC says: otherwise ~01 would become a slash.
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")]


def _parent(root: Json, keys: Sequence[str]) -> Json:
    container = root
    for key in keys[:-1]:
        container = _child(container, key)
    return container


def _child(container: Json, key: str) -> Json:
    if isinstance(container, list):
        return container[
            _index(
                container,
                key,
                most=len(container) - 1,
            )
        ]
    if isinstance(container, dict) and key in container:
        return container[key]
    raise _Wrong(f"there is no {key!r}")


def _index(
    items: list[Json],
    key: str,
    *,
    most: int,
) -> int:
    """Return the index that a key names, at most `most`. Leading zeros, signs and
    digits other than 0 to 9 are refused.
    """
    # `int` would also take other digits, signs, spaces and underscores.
    is_number = key.isascii() and key.isdigit()
    has_leading_zero = key.startswith("0") and key != "0"
    if not is_number or has_leading_zero or int(key) > most:
        raise _Wrong(f"{key!r} is no place in a list of {len(items)}")
    return int(key)


def _add(
    root: Json,
    keys: list[str],
    operation: dict[str, Json],
) -> None:
    _insert(root, keys, _copy(operation["value"]))


def _insert(
    root: Json,
    keys: list[str],
    value: Json,
) -> None:
    container = _parent(root, keys)
    key = keys[-1]
    if isinstance(container, dict):
        container[key] = value
    elif isinstance(container, list):
        index = len(container)
        # "-" is the place after the last one.
        if key != "-":
            index = _index(
                container,
                key,
                most=len(container),
            )
        container.insert(index, value)
    else:
        raise _Wrong(f"{key!r} can be added to an object or a list only")


def _remove(
    root: Json,
    keys: list[str],
    operation: dict[str, Json],
) -> None:
    _take_out(root, keys)


def _take_out(root: Json, keys: list[str]) -> Json:
    """Remove a value, and return it."""
    if len(keys) == 1:
        raise _Wrong("the whole cannot be removed")
    container = _parent(root, keys)
    value = _child(container, keys[-1])
    del container[_own_key(container, keys[-1])]
    return value


def _own_key(container: Json, key: str) -> str | int:
    """Return the key of a child that was found, as an index if it is in a list."""
    return int(key) if isinstance(container, list) else key


def _replace(
    root: Json,
    keys: list[str],
    operation: dict[str, Json],
) -> None:
    value = _copy(operation["value"])
    container = _parent(root, keys)
    # Only what is there can be replaced.
    _child(container, keys[-1])
    container[_own_key(container, keys[-1])] = value


def _move(
    root: Json,
    keys: list[str],
    operation: dict[str, Json],
) -> None:
    source = _keys(operation["from"])
    if keys == source:
        # Nothing moves, but the value must be there.
        _value_at(root, source)
        return
    # The place would be gone once the value is taken out.
    if keys[: len(source)] == source:
        raise _Wrong("nothing can be moved into itself")
    _insert(root, keys, _take_out(root, source))


def _copy_from(
    root: Json,
    keys: list[str],
    operation: dict[str, Json],
) -> None:
    source = _keys(operation["from"])
    _insert(root, keys, _copy(_value_at(root, source)))


def _test(
    root: Json,
    keys: list[str],
    operation: dict[str, Json],
) -> None:
    if not _are_equal(_value_at(root, keys), operation["value"]):
        raise _Wrong("the value is another one")


def _value_at(root: Json, keys: list[str]) -> Json:
    return _child(_parent(root, keys), keys[-1])


def _are_equal(value: Json, other: Json) -> bool:
    """Return whether both are equal as JSON: numbers by value, and true is not a
    number.
    """
    # To Python True is 1.
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, dict) and isinstance(other, dict):
        if value.keys() != other.keys():
            return False
        return all(_are_equal(value[name], other[name]) for name in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_are_equal, value, other))
    return bool(value == other)


_Act = Callable[[Json, list[str], dict[str, Json]], None]
_OPERATIONS: dict[str, tuple[tuple[str, ...], _Act]] = {
    "add": (("value",), _add),
    "remove": ((), _remove),
    "replace": (("value",), _replace),
    "move": (("from",), _move),
    "copy": (("from",), _copy_from),
    "test": (("value",), _test),
}
"""Each operation: the members that it needs beside its path, and what it does."""


def _copy(value: Json) -> Json:
    return canonical.normalised(value)


def _patched_partition(values: dict[str, Json], part: Any) -> dict[str, Json]:
    if not isinstance(part, list | dict):
        raise InvalidValue(
            "a patch of a partition is an object or a list of operations"
        )
    after = apply(values, part)
    if not isinstance(after, dict):
        raise InvalidValue("after a patch a partition is an object of channels still")
    return after


def _staged_state(
    before: State,
    after: State,
    graph: Compiled,
    *,
    limit: int | None,
) -> State:
    """Return the patched state with each changed channel staged, and with removed
    channels at their defaults.
    """
    # Before any value is staged, for a misspelt channel has no type to fit.
    for partition, values in after.items():
        for channel in values:
            if not _belongs(graph, channel, partition):
                raise _no_channel(graph, partition, channel)
    staged: State = {}
    fresh = graph.fresh_state()
    for partition in PARTITIONS:
        # A removed channel comes back here with its default.
        values = {**fresh[partition], **after[partition]}
        staged[partition] = _staged_partition(
            graph, partition, before[partition], values, limit
        )
    return staged


def _no_channel(
    graph: Compiled,
    partition: str,
    unknown: str,
) -> InvalidValue:
    channels = [name for name in graph.channels if _belongs(graph, name, partition)]
    near = get_close_matches(
        unknown,
        channels,
        n=1,
        cutoff=NEAR,
    )
    meant = f"; did you mean {near[0]}?" if near else ""
    return InvalidValue(
        f"{partition} of {graph.name} has no channel {unknown}{meant}",
        path=f"{partition}.{unknown}",
        rule="This must be a channel of the partition.",
        nearest=near,
    )


def _belongs(
    graph: Compiled,
    channel: str,
    partition: str,
) -> bool:
    if channel not in graph.channels:
        return False
    return graph.channels[channel].partition == partition


def _staged_partition(
    graph: Compiled,
    partition: str,
    before: dict[str, Json],
    after: dict[str, Json],
    limit: int | None,
) -> dict[str, Json]:
    """Return the partition with its changed channels staged. What did not change was
    staged when it was written, and is not checked again.
    """
    staged: dict[str, Json] = {}
    for name, value in after.items():
        channel = graph.channels[name]
        # A channel whose default is a None that its type refuses may have it again.
        is_lax = value is None and channel.lax_none
        if is_lax or _is_unchanged(before, name, value):
            staged[name] = value
        else:
            staged[name] = _stage(channel, partition, value, limit)
    return staged


def _is_unchanged(
    before: dict[str, Json],
    name: str,
    value: Json,
) -> bool:
    if name not in before:
        return False
    # As bytes, for to Python 1, 1.0 and True are equal.
    return canonical.encode(before[name]) == canonical.encode(value)


def _stage(
    channel: Channel,
    partition: str,
    value: Json,
    limit: int | None,
) -> Json:
    """Return the staged value. A refusal names path, rule and value, and the mend if
    there is one.
    """
    try:
        return channel.stage(value, limit=limit)
    except InvalidValue as error:
        path = f"{partition}.{error.facts.get('path') or channel.name}"
        rule = error.facts.get("reason", error.message)
        facts: dict[str, Any] = {**error.facts, "path": path, "rule": rule}
        # A refusal is shown, logged and sent, so long values stay out of it.
        refused = value_at_fault(channel, value)
        if _is_short(refused):
            facts["value"] = refused
        for mend in mend_of(channel, value):
            if _is_short(mend):
                facts["mend"] = mend
        raise InvalidValue(f"{partition}: {error.message}", **facts) from error


def _is_short(value: Json) -> bool:
    return len(canonical.encode(value)) <= MOST_SHOWN
