"""Values through a pydantic model, both ways: checked, dumped to canonical JSON, and read back.

What a node wrote and what a later one reads are the same, live or recovered, for both came out of the same bytes.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.engine import fault
from orchestrator.engine.canonical import DEEPEST, Json, encode, is_flat, normalised, path_text
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.ops import in_order

M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], data: Mapping[str, Any], *, by_alias: bool = False) -> M:
    """The model with these fields, the others at their defaults. Raises `InvalidValue` naming the first path at fault.

    What a strict model refuses as Python it may still take as JSON: an edit or an API call can say a date only as text.
    """
    try:
        return model.model_validate(data, by_name=True, by_alias=by_alias)
    except ValidationError as error:
        try:
            return model.model_validate_json(encode(normalised(dict(data))), by_name=True, by_alias=by_alias)
        except (ValidationError, InvalidValue):
            raise invalid(error) from error


def invalid(error: ValidationError) -> InvalidValue:
    """The refusal for what pydantic found: the first path and reason, and all of them in `errors`."""
    errors = error.errors(include_url=False, include_input=False)
    found = [{"path": path_text(e["loc"]), "reason": fault.sentence_of(e)} for e in errors]
    first = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    message = f"{first['path'] or 'the value'}: {first['reason']}{more}"
    return InvalidValue(message, path=first["path"], reason=first["reason"], errors=found)


def refuse_floats_for_decimals(value: Any, became: Any, path: tuple[str | int, ...]) -> None:
    """Raise `InvalidValue` naming the path where a float became a Decimal: 0.1 + 0.2 is no amount of money."""
    if isinstance(value, float) and isinstance(became, Decimal):
        where = path_text(path)
        reason = f"is the float {value!r}, which a Decimal cannot take exactly"
        message = f"{where} {reason}; write Decimal('{value!r}'), or text"
        raise InvalidValue(message, path=where, reason=reason)
    # What is nested deeper is refused anyway, when its canonical form is written.
    if len(path) > DEEPEST:
        return
    for key, inner in _inner_values(value):
        refuse_floats_for_decimals(inner, _inner_value(became, key), (*path, key))


def _inner_values(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _inner_value(became: Any, key: Any) -> Any:
    """What stands at a key of a dict, at a field of a model or at a place of a list; None where nothing does."""
    if isinstance(became, BaseModel):
        return getattr(became, str(key), None)
    if isinstance(became, dict):
        return became.get(key)
    there = isinstance(became, list | tuple) and isinstance(key, int) and key < len(became)
    return became[key] if there else None


def read(model: type[M], data: Mapping[str, Json]) -> M:
    """The model from canonical JSON of its fields; fresh objects each time."""
    return model.model_validate_json(encode(data), by_name=True, by_alias=False)


def dumped(instance: BaseModel, *, sets: bool, only: str | None = None) -> dict[str, Json]:
    """Canonical JSON of the instance's fields (or of `only` one). `sets`: its types hold sets, which are written
    sorted.

    Raises `InvalidValue` naming the path of what has no canonical form.
    """
    include = {only} if only else None
    try:
        plain = instance.model_dump(mode="json", include=include, by_alias=False, warnings="error")
        if sets:
            python = instance.model_dump(mode="python", include=include, by_alias=False)
            plain = _with_sets_in_order(python, plain)
    except (ValueError, TypeError, RecursionError) as error:
        where, reason = _unwritable(instance, only, error)
        raise InvalidValue(f"{where or 'the value'} {reason}", path=where, reason=reason) from error
    return {name: normalised(value, path=(name,)) for name, value in plain.items()}


def _unwritable(instance: BaseModel, only: str | None, error: Exception) -> tuple[str, str]:
    """Where and why a model cannot be written as JSON."""
    for name in [only] if only else list(type(instance).model_fields):
        if not is_flat(getattr(instance, name)):
            return name, f"is nested deeper than {DEEPEST}"
    return only or "", f"cannot be written as JSON: {str(error).splitlines()[0]}"


def round_trip(instance: M, *, sets: bool, only: str | None = None) -> dict[str, Json]:
    """As `dumped`, and sure to read back as the same value. Raises `InvalidValue` where it would not."""
    plain = dumped(instance, sets=sets, only=only)
    names = [only] if only else list(plain)
    try:
        back = read(type(instance), plain)
    except ValidationError as error:
        raise invalid(error) from error
    for name in names:
        if getattr(back, name) != getattr(instance, name):
            path = _where(getattr(instance, name), getattr(back, name), (name,))
            reason = "does not read back from JSON as the same value; give it a type that keeps it"
            raise InvalidValue(f"{path} {reason}", path=path, reason=reason)
    return plain


def _where(one: Any, other: Any, path: tuple[str | int, ...]) -> str:
    """The path of the first place where two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, value in one.items():
            if key not in other or other[key] != value:
                return _where(value, other.get(key), (*path, str(key)))
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for n, (left, right) in enumerate(zip(one, other, strict=True)):
            if left != right:
                return _where(left, right, (*path, n))
    if isinstance(one, BaseModel) and isinstance(other, BaseModel):
        return _where(dict(one), dict(other), path)
    return path_text(path)


def _with_sets_in_order(python: Any, plain: Any) -> Any:
    """The JSON form, with each list that stands for a set in order. Walks both forms side by side."""
    if isinstance(python, set | frozenset):
        if any(isinstance(item, set | frozenset | tuple) and _holds_set(item) for item in python):
            raise TypeError("a set within a set has no order in which to write it")
        return in_order(plain)
    if isinstance(python, dict) and isinstance(plain, dict) and len(python) == len(plain):
        return {k: _with_sets_in_order(p, v) for p, (k, v) in zip(python.values(), plain.items(), strict=True)}
    if isinstance(python, list | tuple) and isinstance(plain, list) and len(python) == len(plain):
        return [_with_sets_in_order(p, v) for p, v in zip(python, plain, strict=True)]
    return plain


def _holds_set(item: Any) -> bool:
    return isinstance(item, set | frozenset) or (isinstance(item, tuple) and any(_holds_set(one) for one in item))
