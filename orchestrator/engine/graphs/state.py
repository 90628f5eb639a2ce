"""The state as channels, read from a pydantic model once, at registration. Only
`compile` calls it.

`channels_of` collects the faults of the model instead of stopping at the first.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from orchestrator.engine.errors import BROKEN, InvalidValue, text_of
from orchestrator.engine.graphs.channel import Channel
from orchestrator.engine.graphs.reducer import (
    Append,
    ArtifactMark,
    Custom,
    Reducer,
    Replace,
    reducer_in,
)
from orchestrator.engine.values import values
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.exact import exact
from orchestrator.engine.values.view import STATE, can_be_viewed, read_only, viewed

RESERVED = ("input", "diagnostics", "scratch", "artifacts")
"""Names of partitions; a channel of such a name could not be distinguished from one."""

_KINDS: dict[str, type] = {"Append": list, "Merge": dict, "Union": list}
"""The kinds of values that some reducers need."""


_schemas: WeakKeyDictionary[type[BaseModel], dict[str, Any]] = WeakKeyDictionary()
"""Graphs share models, and pydantic needs longer for a schema than all the rest of a
registration takes.
"""


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a model, which must not be changed. Raises
    `InvalidValue` if a type has none.
    """
    if model not in _schemas:
        _schemas[model] = _schema_from_pydantic(model)
    return _schemas[model]


def _schema_from_pydantic(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema(by_alias=False)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(
            f"{model.__name__} has a type without a JSON Schema: {reason}"
        ) from error


def holds_sets(schema: dict[str, Any]) -> bool:
    """Return whether a JSON Schema contains a set anywhere."""
    # As text, because a set may be at any depth; a quote within a text is escaped.
    return '"uniqueItems": true' in json.dumps(schema, default=str)


def channels_of(model: type[BaseModel]) -> tuple[dict[str, Channel], list[str]]:
    """Return the channels of a state model, and the faults of fields that cannot be
    one.
    """
    faults = _faults_of(model)
    if faults:
        return {}, faults
    try:
        schema = schema_of(model)
        # A default factory is the author's code, and may raise anything.
        instance = model()
    except BROKEN as error:
        return {}, [f"state {model.__name__}: {text_of(error)}"]
    channels: dict[str, Channel] = {}
    for name in model.model_fields:
        try:
            channels[name] = _channel(model, name, schema, getattr(instance, name))
        except InvalidValue as error:
            faults.append(f"state field {name}: {error.message}")
    return channels, faults


def _faults_of(model: type[BaseModel]) -> list[str]:
    faults: list[str] = []
    for name, field in model.model_fields.items():
        if field.is_required():
            faults.append(f"state field {name} has no default; every channel needs one")
    for name in model.model_fields:
        if name in RESERVED:
            faults.append(f"state field {name} has the name of a partition")
    decorators = model.__pydantic_decorators__
    if decorators.model_validators or decorators.root_validators:
        faults.append(
            f"state {model.__name__} has a model validator, "
            "but its channels are set one at a time; check fields"
        )
    return faults


def _channel(
    model: type[BaseModel],
    name: str,
    schema: dict[str, Any],
    default: Any,
) -> Channel:
    metadata = model.model_fields[name].metadata
    own_schema = schema["properties"][name]
    sets = holds_sets(own_schema)
    # References are not followed: a set in any definition counts.
    if not sets and "$ref" in json.dumps(own_schema, default=str):
        sets = holds_sets(schema.get("$defs", {}))
    # The channel stages its own default, so it is made first without one.
    channel = Channel(
        name=name,
        model=model,
        reducer=_reducer(metadata),
        artifact=any(isinstance(mark, ArtifactMark) for mark in metadata),
        default=None,
        schema=own_schema,
        sets=sets,
        is_set=bool(own_schema.get("uniqueItems")),
        exact=exact(model, name),
    )
    plain, lax = fresh_value(channel, default)
    _check_shape(channel, plain)
    return replace(
        channel,
        default=plain,
        lax_none=lax,
    )


def _reducer(metadata: list[Any]) -> Reducer | Custom:
    reducers = reducer_in(metadata)
    if len(reducers) > 1:
        raise InvalidValue("names more than one reducer")
    return reducers[0] if reducers else Replace


def fresh_value(channel: Channel, default: Any) -> tuple[Json, bool]:
    """Return a default as JSON, and whether it is a None that the type itself would
    refuse (`risk: int = None`).
    """
    try:
        return channel.stage(default), False
    except InvalidValue as error:
        if default is None:
            return None, True
        raise InvalidValue(
            f"its default does not fit its type: {error.message}"
        ) from error


def _check_shape(channel: Channel, default: Json) -> None:
    """Raise `InvalidValue` if the channel's reducer cannot work on its type."""
    kind = None
    if isinstance(channel.reducer, Reducer):
        kind = _KINDS.get(channel.reducer.name)
    # A default of None says nothing about the type.
    if kind and default is not None and not isinstance(default, kind):
        raise InvalidValue(f"{channel.reducer.name} needs a {kind.__name__}")
    if channel.is_set and channel.reducer == Append:
        raise InvalidValue("Append would repeat items of a set; use Union")


def fresh(
    channels: dict[str, Channel], model: type[BaseModel]
) -> dict[str, dict[str, Json]]:
    """Return a new state at its defaults: {"scratch": {...}, "artifacts": {...}}."""
    instance = model()
    state: dict[str, dict[str, Json]] = {"scratch": {}, "artifacts": {}}
    for name, channel in channels.items():
        value, _ = fresh_value(channel, getattr(instance, name))
        state[channel.partition][name] = value
    return state


def viewer(
    channels: dict[str, Channel],
    model: type[BaseModel],
    state: dict[str, dict[str, Json]],
    *,
    reads: tuple[str, ...] | None,
    record: set[str] | None = None,
) -> Callable[[], BaseModel]:
    """Return a function that makes the state as a node sees it: a fresh instance, with
    only the channels in `reads` if that is given. The names of channels that are read
    are added to `record`; a model that has to be read whole adds all.
    """
    state_values = {**state["scratch"], **state["artifacts"]}
    plain: dict[str, Json] = {}
    loaders: dict[str, Callable[[], Any]] = {}
    for name in state_values if reads is None else reads:
        channel = channels.get(name)
        # Those that the state declares: memory is no part of a state.
        if channel is not None:
            plain[name] = state_values[name]
            loaders[name] = partial(channel.load, state_values[name])
    # Such a state is read channel by channel, as far as the node looks at it.
    if can_be_viewed(model):
        if record is not None:
            loaders = _recording(loaders, record)
        return partial(viewed, model, loaders)
    if record is not None:
        record.update(plain)
    _drop_lax_nones(channels, plain)
    without: frozenset[str] = frozenset()
    if reads is not None:
        without = frozenset(channels.keys() - set(reads))
    return partial(_read_whole, model, plain, without)


def _drop_lax_nones(channels: dict[str, Channel], plain: dict[str, Json]) -> None:
    for name, value in list(plain.items()):
        # The model would refuse such a None, and has it as its default anyway.
        if value is None and channels[name].lax_none:
            del plain[name]


def _recording(
    loaders: dict[str, Callable[[], Any]], record: set[str]
) -> dict[str, Callable[[], Any]]:
    """Return these functions so wrapped that each adds the name of its channel to the
    record once it loads a value.
    """
    recording: dict[str, Callable[[], Any]] = {}
    for name, load in loaders.items():
        recording[name] = partial(_recorded, record, name, load)
    return recording


def _recorded(
    record: set[str],
    name: str,
    load: Callable[[], Any],
) -> Any:
    record.add(name)
    return load()


def _read_whole(
    model: type[BaseModel],
    plain: dict[str, Json],
    without: frozenset[str],
) -> BaseModel:
    instance = values.read(model, plain)
    # The model has filled these with defaults, which are not the state's values.
    for name in without:
        instance.__dict__.pop(name, None)
    return read_only(instance, STATE)
