"""Cures in messages: the name that was probably meant, and how the arguments of a declaration are written.

Authors read these where they made the mistake; whatever refuses a name or an argument asks here for its last words.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

MOST_NAMES = 12
"""Names that a message lists."""


def nearest(name: object, names: Iterable[str], *, what: str = "known") -> str:
    """Return "did you mean total?", or which names there are: "known: amount, total"."""
    there = sorted(set(names))
    near = difflib.get_close_matches(str(name), there, n=2)
    if near:
        return f"did you mean {' or '.join(near)}?"
    if not there:
        return "there is none"
    more = f" and {len(there) - MOST_NAMES} more" if len(there) > MOST_NAMES else ""
    return f"{what}: {', '.join(there[:MOST_NAMES])}{more}"


def explains_arguments(title: str) -> Callable[[F], F]:
    """Decorate a function: a call that does not fit its signature raises `TypeError` with the cure. `title` is how
    authors write the call.
    """

    def decorated(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        def explained(*args: Any, **named: Any) -> Any:
            try:
                return function(*args, **named)
            except TypeError as error:
                fault = _fault_of_call(title, signature, args, named)
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
    title: str, signature: inspect.Signature, args: tuple[Any, ...], named: dict[str, Any]
) -> str | None:
    """Return what is wrong with a call, with its cure; None where it fits, so that the error came from inside."""
    parameters = signature.parameters
    takes = [name for name in parameters if name != "self" and not name.startswith("_")]
    for name in named:
        if name not in takes:
            return f"{title}({name}=...): there is no {name}; {nearest(name, takes, what='it takes')}"
    by_name = next((n for n in takes if parameters[n].kind == inspect.Parameter.KEYWORD_ONLY), takes[-1])
    try:
        there = signature.bind_partial(*args, **named).arguments
    except TypeError as error:
        return f"{title}(...): {error}; name the arguments, as in {title}({by_name}=...)"
    for name in takes:
        if name not in there and parameters[name].default is inspect.Parameter.empty:
            return f"{title}(...) needs {name}; write {title}({name}=...)"
    return None
