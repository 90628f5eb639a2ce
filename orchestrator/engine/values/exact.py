"""Exact values: those that are their own JSON form, which pydantic would take, write and
read back unchanged. `state` looks once at each channel. A type that is not known to have
exact values counts as having none.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.values.view import can_be_viewed

Exact = Callable[[Any], bool]
"""Tells whether a value is its own JSON form, apart from values that JSON refuses."""

SCALARS = frozenset({str, int, float, bool})
"""The types of values that have no parts, so that they may be shared."""
_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_KEYS = {
    "model": {
        "type",
        "cls",
        "schema",
        "config",
        "metadata",
        "ref",
        "custom_init",
        "root_model",
    },
    "model-fields": {"type", "fields", "model_name", "computed_fields"},
    "model-field": {"type", "schema", "metadata"},
    "default": {
        "type",
        "schema",
        "metadata",
        "default",
        "default_factory",
        "default_factory_takes_data",
    },
    "nullable": {"type", "schema", "metadata"},
    "list": {"type", "items_schema", "metadata"},
    "dict": {"type", "keys_schema", "values_schema", "metadata"},
    **{scalar: {"type", "metadata"} for scalar in _SCALARS},
}
"""The keys of a core schema, by its type, that change no value. Those of a constraint, a
serialiser or an alias are not among them.
"""
# The keys of a model's configuration that change no value.
_CONFIG = {"title", "strict", "frozen", "extra_fields_behavior"}
# The methods through which values pass; a model that overrides one may change them.
_OWN = ("model_validate", "model_validate_json", "model_dump")


def exact(model: type[BaseModel], name: str) -> Exact | None:
    """Return the function that recognizes exact values of this field, None if there can
    be none.
    """
    # Each guard passes only what is known to leave values as they are.
    if not can_be_viewed(model) or _validates_its_own_way(model):
        return None
    whole: Mapping[str, Any] = model.__pydantic_core_schema__
    if not _is(whole, "model") or set(whole.get("config", {})) - _CONFIG:
        return None
    fields = whole["schema"]
    if not _is(fields, "model-fields") or fields.get("computed_fields"):
        return None
    field = fields["fields"][name]
    if not _is(field, "model-field"):
        return None
    return _exact_of(field["schema"])


def _validates_its_own_way(model: type[BaseModel]) -> bool:
    """Return whether the author's model reads or writes differently from pydantic's."""
    for method in _OWN:
        of_model = inspect.getattr_static(model, method)
        if of_model is not inspect.getattr_static(BaseModel, method):
            return True
    return False


def _is(schema: Mapping[str, Any], kind: str) -> bool:
    """Return whether a core schema is of this type, and contains nothing unknown."""
    return schema["type"] == kind and not set(schema) - _KEYS[kind]


def _exact_of(schema: Mapping[str, Any]) -> Exact | None:
    kind = schema["type"]
    if kind in _SCALARS and _is(schema, kind):
        return _scalar(_SCALARS[kind])
    # A kind that is not listed may change values, so pydantic has to look at them.
    if kind not in _INNER or not _is(schema, kind):
        return None
    # In JSON, keys are text.
    if kind == "dict" and not _is(schema["keys_schema"], "str"):
        return None
    inner = _exact_of(schema[_INNER[kind]])
    if inner is None:
        return None
    return _CONTAINERS[kind](inner)


def _scalar(kind: type) -> Exact:
    # The very type: True is an int too, and a subclass would come back as its base.
    return lambda value: type(value) is kind


def _default(inner: Exact) -> Exact:
    return inner


def _nullable(inner: Exact) -> Exact:
    return lambda value: value is None or inner(value)


def _list(inner: Exact) -> Exact:
    return lambda value: type(value) is list and all(map(inner, value))


def _dict(inner: Exact) -> Exact:
    def is_exact(value: Any) -> bool:
        if type(value) is not dict:
            return False
        if not all(type(key) is str for key in value):
            return False
        return all(map(inner, value.values()))

    return is_exact


_INNER = {
    "default": "schema",
    "nullable": "schema",
    "list": "items_schema",
    "dict": "values_schema",
}
_CONTAINERS: dict[str, Callable[[Exact], Exact]] = {
    "default": _default,
    "nullable": _nullable,
    "list": _list,
    "dict": _dict,
}
