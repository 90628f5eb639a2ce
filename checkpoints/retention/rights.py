"""The right to keep, remove and erase: that of people who manage retention, and of the
system.
"""

from typing import Any

from checkpoints.rights import require_right

PERMISSION = "checkpoints.manage_retention"


def require_manager(by: Any) -> None:
    """Raise `Forbidden` for a person who may not manage retention, `InvalidValue` for
    a value that is no person. None, which means the system, may.
    """
    require_right(by, "manage_retention")
