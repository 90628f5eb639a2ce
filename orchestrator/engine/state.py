"""The state as channels: read from a pydantic model once, at registration. `compile` calls it and nobody else.

`channels_of` collects what is wrong with the model instead of stopping at the first fault.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import BaseModel

from orchestrator.engine import values
from orchestrator.engine.canonical import Json
from orchestrator.engine.channel import Channel
from orchestrator.engine.errors import BROKEN, InvalidValue, text_of
from orchestrator.engine.exact import exact
from orchestrator.engine.reducer import Append, ArtifactMark, Custom, Reducer, Replace, reducer_in
from orchestrator.engine.view import STATE, can_be_viewed, read_only, viewed

RESERVED = ("input", "diagnostics", "scratch", "artifacts")
"""Names of partitions; a channel of that name could not be told from them."""

_SHAPES = {"Append": "array", "Merge": "object", "Union": "array"}


_schemas: WeakKeyDictionary[type[BaseModel], dict[str, Any]] = WeakKeyDictionary()
"""Graphs share models, and a schema takes pydantic longer than all the rest of a registration."""


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of a model, which nobody may change. Raises `InvalidValue` where a type has none."""
    if model not in _schemas:
        _schemas[model] = _made(model)
    return _schemas[model]


def _made(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema(by_alias=False)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise InvalidValue(f"{model.__name__} has a type without a JSON Schema: {reason}") from error


def holds_sets(schema: dict[str, Any]) -> bool:
    """Whether a JSON Schema has sets in it anywhere."""
    return '"uniqueItems": true' in json.dumps(schema, default=str)


def channels_of(model: type[BaseModel]) -> tuple[dict[str, Channel], list[str]]:
    """The channels of a state model, and the faults of those that cannot be one."""
    faults = _faults_of(model)
    if faults:
        return {}, faults
    try:
        schema, fresh = schema_of(model), model()
    except BROKEN as error:  # a default factory is user code
        return {}, [f"state {model.__name__}: {text_of(error)}"]
    found, faults = {}, []
    for name in model.model_fields:
        try:
            found[name] = _channel(model, name, schema, getattr(fresh, name))
        except InvalidValue as error:
            faults.append(f"state field {name}: {error.message}")
    return found, faults


def _faults_of(model: type[BaseModel]) -> list[str]:
    faults = [
        f"state field {name} has no default; every channel needs one"
        for name, field in model.model_fields.items()
        if field.is_required()
    ]
    faults += [f"state field {name} has the name of a partition" for name in model.model_fields if name in RESERVED]
    marks = model.__pydantic_decorators__
    if marks.model_validators or marks.root_validators:
        what = f"state {model.__name__} has a model validator"
        faults.append(f"{what}, but its channels are set one at a time; check fields")
    return faults


def _channel(model: type[BaseModel], name: str, schema: dict[str, Any], default: Any) -> Channel:
    metadata = model.model_fields[name].metadata
    own = schema["properties"][name]
    sets = holds_sets(own) or ("$ref" in json.dumps(own, default=str) and holds_sets(schema.get("$defs", {})))
    channel = Channel(
        name=name,
        model=model,
        reducer=_reducer(metadata),
        artifact=any(isinstance(mark, ArtifactMark) for mark in metadata),
        default=None,
        schema=own,
        sets=sets,
        is_set=bool(own.get("uniqueItems")),
        exact=exact(model, name),
    )
    plain, lax = fresh_value(channel, default)
    _check_shape(channel, plain)
    return replace(channel, default=plain, lax_none=lax)


def _reducer(metadata: list[Any]) -> Reducer | Custom:
    found = reducer_in(metadata)
    if len(found) > 1:
        raise InvalidValue("names more than one reducer")
    return found[0] if found else Replace


def fresh_value(channel: Channel, default: Any) -> tuple[Json, bool]:
    """A default as JSON, and whether it is a None that the type itself would refuse (`risk: int = None`)."""
    try:
        return channel.stage(default), False
    except InvalidValue as error:
        if default is None:
            return None, True
        raise InvalidValue(f"its default does not fit its type: {error.message}") from error


def _check_shape(channel: Channel, default: Json) -> None:
    shape = _SHAPES.get(channel.reducer.name) if isinstance(channel.reducer, Reducer) else None
    kind = {"array": list, "object": dict}.get(shape or "")
    if kind and default is not None and not isinstance(default, kind):
        raise InvalidValue(f"{channel.reducer.name} needs {'a list' if shape == 'array' else 'a dict'}")
    if channel.is_set and channel.reducer == Append:
        raise InvalidValue("Append would repeat items of a set; use Union")


def fresh(channels: dict[str, Channel], model: type[BaseModel]) -> dict[str, dict[str, Json]]:
    """A new state at its defaults: {"scratch": {...}, "artifacts": {...}}."""
    instance = model()
    state: dict[str, dict[str, Json]] = {"scratch": {}, "artifacts": {}}
    for name, channel in channels.items():
        state[channel.partition][name] = fresh_value(channel, getattr(instance, name))[0]
    return state


def viewer(
    channels: dict[str, Channel],
    model: type[BaseModel],
    state: dict[str, dict[str, Json]],
    *,
    reads: tuple[str, ...] | None,
    record: set[str] | None = None,
) -> Callable[[], BaseModel]:
    """What makes the state as a node sees it: a fresh instance, of the channels in `reads` alone where it is given.
    The names of the channels that are looked at are added to `record`; of a model that has to be read whole, all.
    """
    known = {**state["scratch"], **state["artifacts"]}
    wanted = known if reads is None else {name: known[name] for name in reads}
    if can_be_viewed(model):
        loaders = {k: partial(channels[k].load, v) for k, v in wanted.items() if k in channels}
        if record is not None:
            loaders = {name: partial(_recorded, record, name, load) for name, load in loaders.items()}
        return partial(viewed, model, loaders)
    if record is not None:
        record.update(name for name in wanted if name in channels)
    given = {k: v for k, v in wanted.items() if k in channels and not (v is None and channels[k].lax_none)}
    return partial(_whole, model, given, frozenset(() if reads is None else channels.keys() - set(reads)))


def _recorded(record: set[str], name: str, load: Callable[[], Any]) -> Any:
    record.add(name)
    return load()


def _whole(model: type[BaseModel], given: dict[str, Json], without: frozenset[str]) -> BaseModel:
    instance = values.read(model, given)
    for name in without:
        instance.__dict__.pop(name, None)
    return read_only(instance, STATE)
