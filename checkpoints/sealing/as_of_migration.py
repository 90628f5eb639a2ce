"""Sealing in migrations: rows of older versions are sealed once, in the migration that gives them a seal.

The model of a migration has the fields of its moment, and none of the attributes that say how rows are sealed.
"""

from typing import Any

from checkpoints.models.fields import Sealed

_ATTRIBUTES = (
    "PAYLOADS",
    "IDENTITY",
    "UNSEALED",
    "ADDED",
    "SEALED_SINCE_2",
    "UNSEALED_SINCE_2",
    "SEALED_APART",
    "MOMENT",
)


def sealable(model: Any, **attributes: Any) -> Any:
    """Return the model of a migration, ready for `sealed_rows.seal`. `attributes` are those in which its rows differ
    from other sealed rows at that moment.
    """
    for name in _ATTRIBUTES:
        setattr(model, name, attributes.get(name, getattr(Sealed, name)))
    return model
