"""JSON Pointers (RFC 6901): the places in a body at which a door looks."""

import re
from typing import Any

from orchestrator.engine.errors import InvalidValue

_FORM = re.compile(r"(/([^~/]|~[01])*)*")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def is_pointer(text: str) -> bool:
    """Return whether a text is a JSON Pointer. The empty one points to the whole body."""
    return _FORM.fullmatch(text) is not None


def value_at(body: Any, pointer: str) -> Any:
    """Return the value to which a pointer leads. Raises `InvalidValue`, which names the
    pointer and nothing of the body.
    """
    value = body
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            value = _member(value, name)
        except LookupError:
            words = f"the body has nothing at {pointer}"
            raise InvalidValue(words, path=pointer) from None
    return value


def _member(value: Any, name: str) -> Any:
    """Return a member of an object or an item of a list. Raises `LookupError`."""
    if isinstance(value, dict):
        return value[name]
    is_index = _INDEX.fullmatch(name)
    if isinstance(value, list) and is_index:
        return value[int(name)]
    raise LookupError(name)
