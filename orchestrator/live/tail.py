"""Reads of what a socket or a stream sends: lines of the log after a number, how far
runs have come, and what waits for a person.

Each look checks first who is looking and what they may see now, in the same round trip
to the database.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from channels.db import database_sync_to_async

from approvals import inbox, permissions
from approvals.people.comments import comment_counts
from approvals.people.notice_list import count_unread
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
"""Seconds after which session and right are checked again if nothing happens, or nobody
reads. They are also checked before anything is sent.
"""

Scope = Mapping[str, Any]
T = TypeVar("T")


def message(event: RunEvent, protection: Protection) -> dict[str, Any]:
    """Return a line of the log as a socket sends it, with {"refused": why} for a
    payload that cannot be opened. `fault` is the reason why the line does not verify,
    {code, row, reason}; null if it does.
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
    """Return the run's id; `run` is its id or key. Raises `UnknownThing` if the person
    may not see it, and `SignedOut`.
    """
    return await _in_thread(
        lambda: permissions.visible_run(current_person(scope), run).id
    )


async def after(scope: Scope, run: UUID, seq: int) -> list[dict[str, Any]]:
    """Return the messages of the next lines after `seq`, at most `BATCH`.

    Raises `UnknownThing` if the person may not see them, and `SignedOut`.
    """

    def look() -> list[dict[str, Any]]:
        # First the lines, then the right to see them: it may be taken away in between.
        events = timeline.events_after(run, seq, limit=BATCH)
        protection = protection_of(permissions.visible_run(current_person(scope), run))
        return [message(event, protection) for event in events]

    return await _in_thread(look)


class LogGap(Exception):
    """A line of the log is missing. It is never skipped: the client comes back with the
    last number that it has.
    """


async def news(scope: Scope, run: UUID, seq: int) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of all lines after `seq` that are there now, each once, in
    order. Sockets and streams send these.

    The right to see them is checked before each batch, and again if the client takes
    long to read one. Raises `LogGap`, `UnknownThing`, `SignedOut`.
    """
    full = True
    while full:
        lines = await after(scope, run, seq)
        read = time.monotonic()
        full = len(lines) == BATCH
        for line in lines:
            if line["seq"] != seq + 1:
                raise LogGap
            # The right may have been taken away while the client was reading.
            if time.monotonic() - read > CHECK_AGAIN:
                full = True
                break
            seq = line["seq"]
            yield line


async def count_comments(scope: Scope, run: UUID) -> int:
    """Return how many comments there are on the requests of a run. Raises
    `UnknownThing` if the person may not see them, and `SignedOut`.
    """

    def look() -> int:
        permissions.visible_run(current_person(scope), run)
        return comment_counts([run]).get(run, 0)

    return await _in_thread(look)


async def heads(scope: Scope, runs: Iterable[UUID]) -> dict[UUID, int]:
    """Return how far the runs have come that the person may see. Raises `SignedOut`."""
    run_ids = list(runs)

    def look() -> dict[UUID, int]:
        seen = permissions.visible_among(
            current_person(scope), Run.objects.filter(id__in=run_ids)
        )
        return dict(seen.values_list("id", "event_seq"))

    return await _in_thread(look)


async def standing(scope: Scope) -> dict[str, Any]:
    """Return the numbers in a page's bar: how much waits for the person, how many
    notices are unread, and since when no worker was heard from if none is there.
    Raises `SignedOut`.
    """

    def look() -> dict[str, Any]:
        person = current_person(scope)
        mark = inbox.mark_of(person)
        silence = workers.silence()
        return {
            "waiting": mark.waiting,
            "more": mark.is_capped,
            "mark": mark.mark,
            "notices": count_unread(person),
            "silence": silence and _silence(silence),
        }

    return await _in_thread(look)


def _silence(silence: workers.Silence) -> dict[str, Any]:
    """Return since when no worker was heard from, as a moment and in the words of a
    page; empty if none ever was.
    """
    since = silence.since
    return {
        "since": since.isoformat() if since else None,
        "text": moment_text(since) if since else "",
    }


async def _in_thread(look: Callable[[], T]) -> T:
    # Not in the one thread that all synchronous code of the process shares: a slow page
    # must not hold up live views.
    answer: T = await database_sync_to_async(look, thread_sensitive=False)()
    return answer
