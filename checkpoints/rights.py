"""The check of rights by verbs in Python: a person acts with the rights of the account;
None is the system, which may do everything.

Verbs of holds, removal and erasure always check rights. Those of `runs` and `bundle` do
so if the setting `VERBS_ASK_RIGHTS` is on; otherwise they trust the calling code.
docs/api.md has the table. A name is never accepted as a person.
"""

from typing import Any

from checkpoints.conf import conf
from checkpoints.core.arguments import checked_actor
from orchestrator.engine.errors import Forbidden


def require_right(by: Any, right: str) -> None:
    """Raise `Forbidden` for a person who lacks this right, and `InvalidValue` for
    anything that is no person.
    """
    person = checked_actor(by, "by")
    if person is None:
        return
    if not person.has_perm(f"checkpoints.{right}"):
        raise Forbidden(f"you lack the right {right}", right=right)


def require_right_of_verb(by: Any, right: str) -> None:
    """Check as `require_right` does, if the settings say that verbs check rights.
    Anything that is no person is always refused.
    """
    checked_actor(by, "by")
    if conf().verbs_ask_rights:
        require_right(by, right)
