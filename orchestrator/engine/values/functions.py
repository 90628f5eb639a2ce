"""The functions that authors hand in: their names, and the arguments that they take."""

import inspect
from typing import Any


def name_of(thing: Any) -> str:
    """Return the name under which a function or class stands in structures."""
    return getattr(thing, "__qualname__", None) or type(thing).__qualname__


def takes_one(fn: Any) -> bool:
    """Return whether a function can be called with one argument."""
    return _takes(fn, None)


def takes_two(fn: Any) -> bool:
    """Return whether a function can be called with two arguments."""
    return _takes(fn, None, None)


def _takes(fn: Any, *arguments: None) -> bool:
    try:
        # Bound instead of counted, for defaults and *args fit as well.
        inspect.signature(fn).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True
