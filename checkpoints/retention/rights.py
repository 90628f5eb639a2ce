"""Who may say what is kept, removed and erased: whoever manages retention, and the system."""

from typing import Any

from checkpoints.core.arguments import checked_person
from orchestrator.engine.errors import Forbidden

PERMISSION = "checkpoints.manage_retention"


def require_manager(by: Any) -> None:
    """Raise `Forbidden` for a person who may not manage retention, `InvalidValue` for what is no person. None, which
    means the system, may.
    """
    if by is not None and not checked_person(by, "by").has_perm(PERMISSION):
        raise Forbidden("you may not manage retention", permission=PERMISSION)
