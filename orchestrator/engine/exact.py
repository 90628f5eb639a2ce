"""Fields whose values may be their own JSON form: pydantic would take such a value, write it and read it back as it is.
`state` asks once for each channel. Whatever is not known to be so counts as not being so.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from orchestrator.engine.view import can_be_viewed

Exact = Callable[[Any], bool]
"""Whether a value is its own JSON form, but for what JSON itself refuses."""

_SCALARS: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_KEYS = {
    "model": {"type", "cls", "schema", "config", "metadata", "ref", "custom_init", "root_model"},
    "model-fields": {"type", "fields", "model_name", "computed_fields"},
    "model-field": {"type", "schema", "metadata"},
    "default": {"type", "schema", "metadata", "default", "default_factory", "default_factory_takes_data"},
    "nullable": {"type", "schema", "metadata"},
    "list": {"type", "items_schema", "metadata"},
    "dict": {"type", "keys_schema", "values_schema", "metadata"},
    **{scalar: {"type", "metadata"} for scalar in _SCALARS},
}
"""What a core schema may say, by its type, that changes no value. A constraint, a serialiser, an alias is not here."""
_CONFIG = {"title", "strict", "frozen", "extra_fields_behavior"}
_OWN = ("model_validate", "model_validate_json", "model_dump")


def exact(model: type[BaseModel], name: str) -> Exact | None:
    """What tells of values of this field whether they are; None where nothing can."""
    own = any(inspect.getattr_static(model, one) is not inspect.getattr_static(BaseModel, one) for one in _OWN)
    whole: Mapping[str, Any] = model.__pydantic_core_schema__
    if own or not can_be_viewed(model) or not _is(whole, "model"):
        return None
    fields = whole["schema"]
    if set(whole.get("config", {})) - _CONFIG or not _is(fields, "model-fields") or fields.get("computed_fields"):
        return None
    field = fields["fields"][name]
    return _of(field["schema"]) if _is(field, "model-field") else None


def _is(schema: Mapping[str, Any], kind: str) -> bool:
    """Whether a core schema is of this type, and says nothing unknown."""
    return schema["type"] == kind and not set(schema) - _KEYS[kind]


def _of(schema: Mapping[str, Any]) -> Exact | None:
    kind = schema["type"]
    if kind in _SCALARS and _is(schema, kind):
        return _scalar(_SCALARS[kind])
    if kind not in _INNER or not _is(schema, kind) or (kind == "dict" and not _is(schema["keys_schema"], "str")):
        return None
    inner = _of(schema[_INNER[kind]])
    return inner and _BOXES[kind](inner)


def _scalar(kind: type) -> Exact:
    return lambda value: type(value) is kind


_INNER = {"default": "schema", "nullable": "schema", "list": "items_schema", "dict": "values_schema"}
_BOXES: dict[str, Callable[[Exact], Exact]] = {
    "default": lambda inner: inner,
    "nullable": lambda inner: lambda value: value is None or inner(value),
    "list": lambda inner: lambda value: type(value) is list and all(map(inner, value)),
    "dict": lambda inner: (
        lambda value: type(value) is dict and all(type(k) is str for k in value) and all(map(inner, value.values()))
    ),
}
