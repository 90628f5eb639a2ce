"""Checks of the arguments of the verbs before anything is done: a wrong one is refused
by name. Pure.
"""

from datetime import datetime, timedelta
from typing import Any

from checkpoints.core.ids import is_storable
from orchestrator.engine.errors import InvalidValue

MOST_WHOLE = 2**63 - 1
"""The largest number that a column holds."""


def checked_number(
    value: Any,
    path: str,
    *,
    least: int = 0,
    most: int = MOST_WHOLE,
) -> int:
    """Return a whole number within bounds. Raises `InvalidValue`."""
    # In Python, True is an int too.
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not least <= value <= most
    ):
        raise InvalidValue(
            f"{path} is a whole number from {least} to {most}", path=path
        )
    return value


def checked_seconds(
    value: Any,
    path: str,
    *,
    most: float,
) -> float:
    """Return a number of seconds from 0 on. Raises `InvalidValue`."""
    # NaN fails every comparison, so it is refused here too.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= most
    ):
        raise InvalidValue(f"{path} is a number of seconds up to {most}", path=path)
    return value


def checked_text(
    value: Any,
    path: str,
    *,
    most: int,
    least: int = 0,
) -> str:
    """Return a text that a column of that length holds. Raises `InvalidValue`."""
    if (
        not isinstance(value, str)
        or not least <= len(value) <= most
        or not is_storable(value)
    ):
        raise InvalidValue(
            f"{path} is a text of {least} to {most} characters, without NUL and whole",
            path=path,
        )
    return value


def checked_moment(value: Any, path: str) -> datetime:
    """Return a time with its zone, which can be written in every other zone too. Raises
    `InvalidValue`.
    """
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidValue(f"{path} is a time and needs a time zone", path=path)
    # Two days are more than the offset of any zone.
    margin = timedelta(days=2)
    try:
        value + margin
        value - margin
    except OverflowError:
        raise InvalidValue(
            f"{path} is too near the first or the last of all times", path=path
        ) from None
    return value


def checked_actor(value: Any, path: str) -> Any:
    """Return a user who is stored, or None, the system. Raises `InvalidValue`."""
    if value is None:
        return None
    return checked_person(value, path)


def checked_yes_or_no(value: Any, path: str) -> bool:
    """Return True or False. Raises `InvalidValue`."""
    if not isinstance(value, bool):
        raise InvalidValue(f"{path} is either true or false", path=path)
    return value


def checked_person(value: Any, path: str) -> Any:
    """Return a user who is stored. Raises `InvalidValue` for None, and for a user who is
    not signed in.
    """
    # A user who was never saved has no id that a row could name.
    is_stored = getattr(value, "pk", None) is not None
    if not is_stored or not getattr(value, "is_authenticated", False):
        raise InvalidValue(f"{path} is a user who is signed in", path=path)
    return value
