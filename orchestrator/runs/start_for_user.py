"""Starts a run for a person: checks the rights, and what the person may learn of a run
that has the key already. Pages, API and commands call it; a command without `--by`
calls `runs.start_or_find`.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model

from approvals.permissions import may, may_see_run
from checkpoints.audit import lines as audit_log
from checkpoints.models import Run
from orchestrator.engine.errors import Forbidden, InvalidValue, KeyConflict
from orchestrator.runs.verbs import StartRequest, start_or_find


def require(user: Any, right: str, *, run: UUID | None = None) -> None:
    """Raise `Forbidden` if the user lacks a right of `permissions.RIGHTS`, and leave an
    audit line.
    """
    if not may(user, right):
        audit_log.record("refused_right", actor=user, run=run, right=right)
        raise Forbidden(f"you lack the right {right}", right=right)


def start_for(
    request: StartRequest,
    *,
    on_behalf_of: str | None = None,
) -> tuple[Run, bool]:
    """Start a run as `start_or_find` does, for the user `by` of the request.
    `on_behalf_of` is another user's name.

    Raises `Forbidden`, what `runs.start` raises, and a `KeyConflict` without facts if
    the key belongs to a run that the user may not see.
    """
    user = request.by
    require(user, "start_run")
    if request.again.resume_failed or request.again.restart:
        require(user, "steer_run")
    person = _person(on_behalf_of)

    # Before anything is started, because an earlier run with this key may be resumed or
    # rewound.
    if request.key:
        earlier = Run.objects.filter(key=request.key).only("id").first()
        if earlier is not None:
            _require_visible(user, earlier)
    run, new = start_or_find(replace(request, on_behalf_of=person))
    if not new:
        # Another caller may have started it between the two queries.
        _require_visible(user, run)
    return run, new


def _require_visible(user: Any, run: Run) -> None:
    if not may_see_run(user, run):
        raise KeyConflict("this key is taken")


def _person(name: str | None) -> Any:
    """Return the active user of a name; None for None. Raises `InvalidValue`."""
    if name is None:
        return None
    users = get_user_model()
    active = users._default_manager.filter(
        **{users.USERNAME_FIELD: name, "is_active": True}
    )
    user = active.first()
    if user is None:
        raise InvalidValue(f"there is no user {name}", path="on_behalf_of")
    return user
