"""Cures in messages: the name that was probably meant, and how the arguments of a
declaration are written.

Authors read these where they made the mistake, at the end of a message that refuses a
name or an argument.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

MOST_NAMES = 12
"""The most names that a message lists."""


def nearest(
    name: object,
    names: Iterable[str],
    *,
    what: str = "known",
) -> str:
    """Return "did you mean total?", or which names there are: "known: amount, total"."""
    all_names = sorted(set(names))
    near = difflib.get_close_matches(
        str(name),
        all_names,
        n=2,
    )
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not all_names:
        return "there is none"
    listed = f"{what}: {', '.join(all_names[:MOST_NAMES])}"
    if len(all_names) > MOST_NAMES:
        listed += f" and {len(all_names) - MOST_NAMES} more"
    return listed


def explains_arguments(title: str) -> Callable[[F], F]:
    """Decorate a function: a call that does not fit its signature raises `TypeError`
    with the cure. `title` is how authors write the call.
    """

    def decorated(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        def explained(*args: Any, **named: Any) -> Any:
            # Only a call that failed is examined, so the others pay nothing for it.
            try:
                return function(*args, **named)
            except TypeError as error:
                fault = _fault_of_call(title, signature, args, named)
                # The call fits, so the error was raised inside the function.
                if fault is None:
                    raise
                raise TypeError(fault) from error

        return explained  # type: ignore[return-value]

    return decorated


def explained_class(cls: C) -> C:
    """Decorate a class: wrong arguments of its constructor are explained."""
    constructor = inspect.getattr_static(cls, "__init__")
    type.__setattr__(cls, "__init__", explains_arguments(cls.__name__)(constructor))
    return cls


def _fault_of_call(
    title: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> str | None:
    """Return the fault of a call, with its cure; None if the call fits, so that the
    error came from inside.
    """
    parameters = signature.parameters
    takes = [name for name in parameters if name != "self" and not name.startswith("_")]
    for name in named:
        if name not in takes:
            cure = nearest(
                name,
                takes,
                what="it takes",
            )
            return f"{title}({name}=...): there is no {name}; {cure}"
    try:
        # Partial, for what is missing is named below, with the way to write it.
        bound = signature.bind_partial(*args, **named).arguments
    except TypeError as error:
        example = _named_parameter(parameters, takes)
        return (
            f"{title}(...): {error}; name the arguments, as in {title}({example}=...)"
        )
    for name in takes:
        if name not in bound and parameters[name].default is inspect.Parameter.empty:
            return f"{title}(...) needs {name}; write {title}({name}=...)"
    return None


def _named_parameter(
    parameters: Mapping[str, inspect.Parameter], takes: list[str]
) -> str:
    """Return a parameter that must be named, as an example; the last one if none must."""
    for name in takes:
        if parameters[name].kind == inspect.Parameter.KEYWORD_ONLY:
            return name
    return takes[-1]
