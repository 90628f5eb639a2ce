"""Starting a run for a person: may he, and what may he learn of a run that has the key already. Pages, API and
commands call it; a command that nobody is named for calls `runs.start_or_find`.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from approvals.permissions import may, may_see_run
from checkpoints import audit_log
from checkpoints.models import Run
from orchestrator.engine.errors import Forbidden, InvalidValue, KeyConflict
from orchestrator.runs.verbs import StartRequest, start_or_find


def require(user: Any, right: str, *, run: UUID | None = None) -> None:
    """Raises `Forbidden` where the user lacks a right of `permissions.RIGHTS`, and leaves an audit line."""
    if not may(user, right):
        audit_log.record("refused_right", actor=user, run=run, right=right)
        raise Forbidden(f"you lack the right {right}", right=right)


def start_for(asked: StartRequest, *, on_behalf_of: str | None = None) -> tuple[Run, bool]:
    """`start_or_find` as the user who asks (`by`); `on_behalf_of` is another user's name.

    Raises `Forbidden`, what `runs.start` raises, and a `KeyConflict` that tells nothing where the key's run is not his
    to see.
    """
    user = asked.by
    require(user, "start_run")
    if asked.again.resume_failed or asked.again.restart:
        require(user, "steer_run")
    person = _person(on_behalf_of)
    earlier = Run.objects.filter(key=asked.key).only("id").first() if asked.key else None
    if earlier:
        _require_visible(user, earlier)
    run, new = start_or_find(replace(asked, on_behalf_of=person))
    if not new:
        # Somebody else may have started it between the two looks.
        _require_visible(user, run)
    return run, new


def _require_visible(user: Any, run: Run) -> None:
    if not may_see_run(user, run):
        raise KeyConflict("this key is taken")


def _person(name: str | None) -> Any:
    if name is None:
        return None
    users = get_user_model()
    found = users._default_manager.filter(**{users.USERNAME_FIELD: name, "is_active": True}).first()
    if found is None:
        raise InvalidValue(f"there is no user {name}", path="on_behalf_of")
    return found
