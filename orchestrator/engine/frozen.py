"""`frozen`: a dataclass whose instances never change, as cheap as one whose instances
may. For values made at every superstep.

A dataclass that Python itself freezes sets each field by `object.__setattr__`, and
costs three times as much to make. Here the type checker refuses an assignment instead,
before anything runs.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make the class a dataclass with slots, equal and hashed by its fields. mypy
    refuses assignments to them.
    """
    # A dataclass that compares its fields and is not frozen has no hash unless it asks.
    return dataclass(slots=True, unsafe_hash=True)(cls)
