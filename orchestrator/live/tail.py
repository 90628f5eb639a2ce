"""What a socket sends: lines of the log after a number, and how far runs have come. Reads only; asks permission."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser

from approvals import permissions
from checkpoints import timeline
from checkpoints.models import Run, RunEvent
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.engine.errors import UnknownThing

BATCH = 500


def message(event: RunEvent) -> dict[str, Any]:
    """A line of the log as a socket sends it; where its payload cannot be opened, {"refused": why}."""
    facts = read_or_reason(event, "payload") or {}
    return {
        "seq": event.seq,
        "type": event.type,
        "at": event.at.isoformat(),
        "node": event.node,
        "task": event.task,
        "actor": event.actor,
        "payload": facts if isinstance(facts, dict) else {"refused": facts},
    }


def _as_now(user: Any) -> Any:
    """The person as the database has him now: an open socket would remember the rights of when it was opened."""
    if not user.is_authenticated:
        return user
    return get_user_model()._default_manager.filter(pk=user.pk).first() or AnonymousUser()


async def visible(user: Any, run: str | UUID) -> UUID | None:
    """The run's id where the user may see it, else None. `run` is its id or key."""

    def look() -> UUID | None:
        try:
            return permissions.visible_run(_as_now(user), run).id
        except UnknownThing:
            return None

    found: UUID | None = await database_sync_to_async(look, thread_sensitive=False)()
    return found


async def after(run: UUID, seq: int) -> list[RunEvent]:
    """The next lines after `seq`, at most `BATCH`."""
    look = database_sync_to_async(timeline.events_after, thread_sensitive=False)
    lines: list[RunEvent] = await look(run, seq, limit=BATCH)
    return lines


async def heads(user: Any, runs: Iterable[UUID]) -> dict[UUID, int]:
    """How far those of the runs have come that the user may see."""
    wanted = list(runs)

    def look() -> dict[UUID, int]:
        seen = permissions.visible_runs(_as_now(user)).filter(id__in=wanted)
        return dict(Run.objects.filter(id__in=seen.values("id")).values_list("id", "event_seq"))

    found: dict[UUID, int] = await database_sync_to_async(look, thread_sensitive=False)()
    return found
