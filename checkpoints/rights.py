"""The rule of rights of verbs in Python: a person acts with his own rights; None is the system, which may do all.

Verbs that keep, remove and erase always ask. Those of `runs` and `bundle` ask where the setting `VERBS_ASK_RIGHTS` says
so; without it they trust the code that calls them. docs/api.md has the table. A name is never taken for a person.
"""

from typing import Any

from checkpoints.conf import conf
from checkpoints.core.arguments import checked_actor
from orchestrator.engine.errors import Forbidden


def require_right(by: Any, right: str) -> None:
    """Raise `Forbidden` for a person who lacks this right, and `InvalidValue` for what is no person."""
    if checked_actor(by, "by") is not None and not by.has_perm(f"checkpoints.{right}"):
        raise Forbidden(f"you lack the right {right}", right=right)


def require_right_of_verb(by: Any, right: str) -> None:
    """As `require_right`, where the settings say that verbs ask for rights; what is no person is refused always."""
    checked_actor(by, "by")
    if conf().verbs_ask_rights:
        require_right(by, right)
