"""Starting a run for a person: may he, and what may he learn of a run that has the key already. Pages and API call it.

`runs.start` does the starting; commands call that, having no person to ask.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model

from approvals.permissions import may, visible_runs
from checkpoints.models import Run
from orchestrator.engine.errors import Forbidden, InvalidValue, KeyConflict
from orchestrator.runs import verbs as runs


@dataclass(frozen=True, slots=True)
class Started:
    """The run, and whether this call made it."""

    run: Run
    new: bool


def require(user: Any, right: str) -> None:
    """Raises `Forbidden` where the user lacks a right of `permissions.RIGHTS`."""
    if not may(user, right):
        raise Forbidden(f"you lack the right {right}", right=right)


def start_for(
    user: Any,
    graph: str,
    input: Mapping[str, Any],
    *,
    key: str | None = None,
    on_behalf_of: str | None = None,
    resume_failed: bool = False,
    queued: runs.Queued | None = None,
) -> Started:
    """Start as `user`; `on_behalf_of` is another user's name.

    Raises `Forbidden`, what `runs.start` raises, and a `KeyConflict` that tells nothing where the key's run is one that
    the user may not see.
    """
    require(user, "start_run")
    if resume_failed:
        require(user, "steer_run")
    person = _person(on_behalf_of)
    earlier = Run.objects.filter(key=key).only("id").first() if key else None
    if earlier:
        _require_visible(user, earlier)
    run, new = runs.start_or_find(
        graph, input, key=key, by=user, on_behalf_of=person, resume_failed=resume_failed, queued=queued
    )
    if not new:
        # Somebody else may have started it between the two looks.
        _require_visible(user, run)
    return Started(run, new)


def _require_visible(user: Any, run: Run) -> None:
    if not visible_runs(user).filter(id=run.id).exists():
        raise KeyConflict("this key is taken")


def _person(name: str | None) -> Any:
    if name is None:
        return None
    users = get_user_model()
    found = users._default_manager.filter(**{users.USERNAME_FIELD: name, "is_active": True}).first()
    if found is None:
        raise InvalidValue(f"there is no user {name}", path="on_behalf_of")
    return found
