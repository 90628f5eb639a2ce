"""Values through a pydantic model, both ways: checked, dumped to canonical JSON, and
read back.

A later node reads exactly what an earlier one wrote, live or recovered, for both come
from the same bytes.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.values import fault
from orchestrator.engine.values.canonical import (
    DEEPEST,
    Json,
    encode,
    is_flat,
    normalised,
    path_text,
)
from orchestrator.engine.values.ops import in_order

M = TypeVar("M", bound=BaseModel)


def validated(
    model: type[M],
    data: Mapping[str, Any],
    *,
    by_alias: bool = False,
) -> M:
    """Return the model with these fields, the others at their defaults. Raises
    `InvalidValue` naming the first path at fault.

    A value that a strict model refuses as Python may still be valid as JSON: an edit or
    an API call can only write a date as text.
    """
    try:
        return model.model_validate(
            data,
            by_name=True,
            by_alias=by_alias,
        )
    except ValidationError as error:
        # The first error is reported, for it speaks of the value as it was given.
        try:
            text = encode(normalised(dict(data)))
            return model.model_validate_json(
                text,
                by_name=True,
                by_alias=by_alias,
            )
        except (ValidationError, InvalidValue):
            raise invalid(error) from error


def invalid(error: ValidationError) -> InvalidValue:
    """Return the refusal for an error of pydantic: the first path and reason, and all
    of them in `errors`.
    """
    faults: list[dict[str, str]] = []
    for details in error.errors(include_url=False, include_input=False):
        path = path_text(details["loc"])
        faults.append({"path": path, "reason": fault.sentence_of(details)})
    first = faults[0]
    message = f"{first['path'] or 'the value'}: {first['reason']}"
    if len(faults) > 1:
        message += f" (and {len(faults) - 1} more)"
    return InvalidValue(
        message,
        path=first["path"],
        reason=first["reason"],
        errors=faults,
    )


def refuse_floats_for_decimals(
    value: Any,
    became: Any,
    path: tuple[str | int, ...],
) -> None:
    """Raise `InvalidValue` naming the path at which a float became a Decimal: 0.1 + 0.2
    is no amount of money.
    """
    if isinstance(value, float) and isinstance(became, Decimal):
        where = path_text(path)
        reason = f"is the float {value!r}, which a Decimal cannot take exactly"
        message = f"{where} {reason}; write Decimal('{value!r}'), or text"
        raise InvalidValue(
            message,
            path=where,
            reason=reason,
        )
    # Deeper values are refused anyway, when their canonical form is written.
    if len(path) > DEEPEST:
        return
    for key, inner in _inner_values(value):
        refuse_floats_for_decimals(inner, _inner_value(became, key), (*path, key))


def _inner_values(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    return ()


def _inner_value(became: Any, key: Any) -> Any:
    """Return the value at a key of a dict, a field of a model or a place of a list;
    None if there is none.
    """
    if isinstance(became, BaseModel):
        return getattr(became, str(key), None)
    if isinstance(became, dict):
        return became.get(key)
    if not isinstance(became, list | tuple) or not isinstance(key, int):
        return None
    return became[key] if key < len(became) else None


def read(model: type[M], data: Mapping[str, Json]) -> M:
    """Return the model from canonical JSON of its fields; fresh objects each time."""
    return model.model_validate_json(
        encode(data),
        by_name=True,
        by_alias=False,
    )


def dumped(
    instance: BaseModel,
    *,
    sets: bool,
    only: str | None = None,
) -> dict[str, Json]:
    """Return the canonical JSON of the instance's fields (or of `only` one). `sets`: its
    types contain sets, which are written sorted.

    Raises `InvalidValue` naming the path of a value without a canonical form.
    """
    include = {only} if only else None
    try:
        plain = instance.model_dump(
            mode="json",
            include=include,
            by_alias=False,
            # A value of another type would only be warned about, and written somehow.
            warnings="error",
        )
        if sets:
            # JSON has only lists: the Python form alone shows which of them are sets.
            python = instance.model_dump(
                mode="python",
                include=include,
                by_alias=False,
            )
            plain = _with_sets_in_order(python, plain)
    except (ValueError, TypeError, RecursionError) as error:
        where, reason = _unwritable(instance, only, error)
        raise InvalidValue(
            f"{where or 'the value'} {reason}",
            path=where,
            reason=reason,
        ) from error
    return {name: normalised(value, path=(name,)) for name, value in plain.items()}


def _unwritable(
    instance: BaseModel,
    only: str | None,
    error: Exception,
) -> tuple[str, str]:
    """Return where and why a model cannot be written as JSON."""
    names = [only] if only else list(type(instance).model_fields)
    for name in names:
        # pydantic's error for such a value names neither the field nor a limit.
        if not is_flat(getattr(instance, name)):
            return name, f"is nested deeper than {DEEPEST}"
    return only or "", f"cannot be written as JSON: {str(error).splitlines()[0]}"


def round_trip(
    instance: M,
    *,
    sets: bool,
    only: str | None = None,
) -> dict[str, Json]:
    """Return what `dumped` returns, once it has read back as the same value. Raises
    `InvalidValue` if it does not.
    """
    plain = dumped(
        instance,
        sets=sets,
        only=only,
    )
    names = [only] if only else list(plain)
    try:
        back = read(type(instance), plain)
    except ValidationError as error:
        raise invalid(error) from error
    for name in names:
        written = getattr(instance, name)
        read_back = getattr(back, name)
        # A later node would see another value than the one that wrote it.
        if read_back != written:
            path = _first_difference(written, read_back, (name,))
            reason = (
                "does not read back from JSON as the same value; "
                "give it a type that keeps it"
            )
            raise InvalidValue(
                f"{path} {reason}",
                path=path,
                reason=reason,
            )
    return plain


def _first_difference(
    value: Any,
    other: Any,
    path: tuple[str | int, ...],
) -> str:
    """Return the path of the first place at which two values differ."""
    if isinstance(value, BaseModel) and isinstance(other, BaseModel):
        return _first_difference(dict(value), dict(other), path)
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict) and isinstance(other, dict):
        pairs = value.items()
        others = other
    elif _are_lists_of_one_length(value, other):
        pairs = enumerate(value)
        others = dict(enumerate(other))
    for key, inner in pairs:
        if key not in others or others[key] != inner:
            # Only places of a list are written as numbers in a path.
            step = key if isinstance(value, list | tuple) else str(key)
            return _first_difference(inner, others.get(key), (*path, step))
    return path_text(path)


def _are_lists_of_one_length(value: Any, other: Any) -> bool:
    if not isinstance(value, list | tuple) or not isinstance(other, list | tuple):
        return False
    return len(value) == len(other)


def _with_sets_in_order(python: Any, plain: Any) -> Any:
    """Return the JSON form with each list that stands for a set in order. Both forms
    are walked side by side.
    """
    if isinstance(python, set | frozenset):
        _refuse_inner_sets(python)
        return in_order(plain)
    if isinstance(python, dict) and isinstance(plain, dict):
        return _dict_with_sets_in_order(python, plain)
    if isinstance(plain, list) and _are_lists_of_one_length(python, plain):
        pairs = zip(
            python,
            plain,
            strict=True,
        )
        return [_with_sets_in_order(inner, written) for inner, written in pairs]
    return plain


def _dict_with_sets_in_order(
    python: dict[Any, Any], plain: dict[str, Any]
) -> dict[str, Any]:
    # Keys are written as text, so the two forms are matched by place.
    if len(python) != len(plain):
        return plain
    ordered: dict[str, Any] = {}
    pairs = zip(
        python.values(),
        plain.items(),
        strict=True,
    )
    for inner, (key, written) in pairs:
        ordered[key] = _with_sets_in_order(inner, written)
    return ordered


def _refuse_inner_sets(items: set[Any] | frozenset[Any]) -> None:
    if any(_holds_set(item) for item in items):
        raise TypeError("a set within a set has no order in which to write it")


def _holds_set(item: Any) -> bool:
    """Return whether an item of a set is a set, or a tuple that contains one."""
    if isinstance(item, set | frozenset):
        return True
    return isinstance(item, tuple) and any(_holds_set(inner) for inner in item)
