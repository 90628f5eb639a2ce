"""What a socket or a stream sends: lines of the log after a number, how far runs have come, what waits for a person.
Reads only.

Each look asks first who looks and what he may see now, in the same visit to the database.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from channels.db import database_sync_to_async

from approvals import inbox, permissions
from checkpoints import timeline
from checkpoints.models import Run, RunEvent
from checkpoints.queue import workers
from checkpoints.sealing.seal_fault import fault_of, json_of
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.sealing.sealed_rows import Protection, protection_of
from orchestrator.live.viewers import current_person
from orchestrator.templatetags.console import moment_text

BATCH = 500
CHECK_AGAIN = 5.0
"""Seconds after which session and right are asked again where nothing happens, or nobody reads. Before anything is sent
they are too.
"""

Scope = Mapping[str, Any]
T = TypeVar("T")


def message(event: RunEvent, protection: Protection) -> dict[str, Any]:
    """A line of the log as a socket sends it; where its payload cannot be opened, {"refused": why}. `fault` says why it
    does not prove to be what was written, {code, row, reason}; null where it does.
    """
    facts = read_or_reason(event, "payload") or {}
    return {
        "seq": event.seq,
        "type": event.type,
        "at": event.at.isoformat(),
        "node": event.node,
        "task": event.task,
        "actor": event.actor,
        "payload": facts if isinstance(facts, dict) else {"refused": facts},
        "fault": json_of(fault_of(event, protection)),
    }


async def visible(scope: Scope, run: str | UUID) -> UUID:
    """The run's id; `run` is its id or key. Raises `UnknownThing` where it may not be seen, `SignedOut`."""
    return await _in_thread(lambda: permissions.visible_run(current_person(scope), run).id)


async def after(scope: Scope, run: UUID, seq: int) -> list[dict[str, Any]]:
    """The messages of the next lines after `seq`, at most `BATCH`.

    Raises `UnknownThing` where they may not be seen, `SignedOut`.
    """

    def look() -> list[dict[str, Any]]:
        # First the lines, then the right to see them: it may be taken away in between.
        events = timeline.events_after(run, seq, limit=BATCH)
        protection = protection_of(permissions.visible_run(current_person(scope), run))
        return [message(event, protection) for event in events]

    return await _in_thread(look)


class Gap(Exception):
    """A line of the log is missing. Never papered over: the client comes back with the last number that it has."""


async def news(scope: Scope, run: UUID, seq: int) -> AsyncIterator[dict[str, Any]]:
    """The messages of all lines after `seq` that are there now, each once, in order. Sockets and streams send these.

    The right to see them is asked before each batch, and again where somebody takes long to read one. Raises `Gap`,
    `UnknownThing`, `SignedOut`.
    """
    full = True
    while full:
        lines, read = await after(scope, run, seq), time.monotonic()
        full = len(lines) == BATCH
        for line in lines:
            if line["seq"] != seq + 1:
                raise Gap
            if time.monotonic() - read > CHECK_AGAIN:
                full = True
                break
            seq = line["seq"]
            yield line


async def heads(scope: Scope, runs: Iterable[UUID]) -> dict[UUID, int]:
    """How far those of the runs have come that may be seen. Raises `SignedOut`."""
    wanted = list(runs)

    def look() -> dict[UUID, int]:
        seen = permissions.visible_among(current_person(scope), Run.objects.filter(id__in=wanted))
        return dict(seen.values_list("id", "event_seq"))

    return await _in_thread(look)


async def standing(scope: Scope) -> dict[str, Any]:
    """What the bar of a page says now: how much waits for the person, and since when no worker was heard from, where
    none is there. Raises `SignedOut`.
    """

    def look() -> dict[str, Any]:
        now = inbox.mark_of(current_person(scope))
        silence = workers.silence()
        return {"waiting": now.waiting, "more": now.more, "mark": now.mark, "silence": silence and _silence(silence)}

    return await _in_thread(look)


def _silence(silence: workers.Silence) -> dict[str, Any]:
    """Since when no worker was heard from, exactly and as pages say it; empty where none ever was."""
    since = silence.since
    return {"since": since.isoformat() if since else None, "text": moment_text(since) if since else ""}


async def _in_thread(look: Callable[[], T]) -> T:
    # Not in the one thread that all synchronous code of the process shares: a slow page must not hold up live views.
    found: T = await database_sync_to_async(look, thread_sensitive=False)()
    return found
