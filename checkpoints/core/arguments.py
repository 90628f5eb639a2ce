"""What callers give to the verbs, checked before anything is done: what is of another kind is refused by name. Pure."""

from datetime import datetime, timedelta
from typing import Any

from checkpoints.core.ids import is_storable
from orchestrator.engine.errors import InvalidValue

MOST_WHOLE = 2**63 - 1
"""The largest number that a column holds."""


def checked_number(value: Any, path: str, *, least: int = 0, most: int = MOST_WHOLE) -> int:
    """A whole number within bounds. Raises `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidValue(f"{path} is a whole number from {least} to {most}", path=path)
    return value


def checked_seconds(value: Any, path: str, *, most: float) -> float:
    """A number of seconds from 0 on. Raises `InvalidValue`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidValue(f"{path} is a number of seconds up to {most}", path=path)
    return value


def checked_text(value: Any, path: str, *, most: int, least: int = 0) -> str:
    """A text that a column of that length holds. Raises `InvalidValue`."""
    if not isinstance(value, str) or not least <= len(value) <= most or not is_storable(value):
        raise InvalidValue(f"{path} is a text of {least} to {most} characters, without NUL and whole", path=path)
    return value


def checked_moment(value: Any, path: str) -> datetime:
    """A time with its zone, which another zone can tell too. Raises `InvalidValue`."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidValue(f"{path} is a time and needs a time zone", path=path)
    try:
        value + timedelta(days=2), value - timedelta(days=2)
    except OverflowError:
        raise InvalidValue(f"{path} is too near the first or the last of all times", path=path) from None
    return value


def checked_actor(value: Any, path: str) -> Any:
    """A user who is stored, or None, the system. Raises `InvalidValue`."""
    return value if value is None else checked_person(value, path)


def checked_yes_or_no(value: Any, path: str) -> bool:
    """True or False. Raises `InvalidValue`."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{path} is either true or false", path=path)
    return value


def checked_person(value: Any, path: str) -> Any:
    """A user who is stored. Raises `InvalidValue` for nobody, and for whoever is not signed in."""
    if getattr(value, "pk", None) is None or not getattr(value, "is_authenticated", False):
        raise InvalidValue(f"{path} is a user who is signed in", path=path)
    return value
