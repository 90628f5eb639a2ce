"""Which values are numbers to a person: to Python True is one too, but nobody means it
as a number.
"""

import math
from typing import Any


def is_whole(value: Any, *, least: int = 1) -> bool:
    """Return whether this is a whole number from `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: Any) -> bool:
    """Return whether this is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
