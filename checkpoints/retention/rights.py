"""Who may say what is kept, removed and erased: whoever manages retention, and the system."""

from typing import Any

from checkpoints.rights import require_right

PERMISSION = "checkpoints.manage_retention"


def require_manager(by: Any) -> None:
    """Raise `Forbidden` for a person who may not manage retention, `InvalidValue` for what is no person. None, which
    means the system, may.
    """
    require_right(by, "manage_retention")
