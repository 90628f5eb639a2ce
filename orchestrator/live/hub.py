"""One look for all: a task per event loop asks the database, in one query, how far the watched runs have come.

Consumers watch; the hub rings their bells. It sends nothing to anybody, and reads nothing but two columns.
"""

import asyncio
from collections.abc import Iterable
from typing import ClassVar
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from channels.db import database_sync_to_async
from django.db import Error

from checkpoints.models import Run

PERIOD = 0.15
"""Seconds between two looks."""
BROKEN_PERIOD = 2.0
"""Seconds after a look that failed."""

log = structlog.get_logger(__name__)


class Hub:
    """The watchers of one event loop."""

    _hubs: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, "Hub"]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._bells: dict[UUID, set[asyncio.Event]] = {}
        self._seen: dict[UUID, int] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def here(cls) -> "Hub":
        """The hub of the running loop."""
        return cls._hubs.setdefault(asyncio.get_running_loop(), cls())

    def watch(self, runs: Iterable[UUID], nudge: asyncio.Event) -> None:
        """Ring the bell whenever the log of one of these runs has grown. A run may have grown before: look first."""
        for run in runs:
            self._bells.setdefault(run, set()).add(nudge)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_on())

    def leave(self, runs: Iterable[UUID], nudge: asyncio.Event) -> None:
        """Stop watching. The last one to leave ends the task at its next look."""
        for run in runs:
            bells = self._bells.get(run, set())
            bells.discard(nudge)
            if not bells:
                self._bells.pop(run, None)
                self._seen.pop(run, None)

    async def _look_on(self) -> None:
        while self._bells:
            try:
                for run, seq in await _heads(list(self._bells)):
                    self._ring(run, seq)
            except Error as error:
                # The sockets stay: a database that is back is simply caught up with.
                log.warning("live_look_failed", error=type(error).__name__)
                await asyncio.sleep(BROKEN_PERIOD)
            await asyncio.sleep(PERIOD)

    def _ring(self, run: UUID, seq: int) -> None:
        if self._seen.get(run) == seq:
            return
        self._seen[run] = seq
        for nudge in self._bells.get(run, ()):
            nudge.set()


async def _heads(runs: list[UUID]) -> list[tuple[UUID, int]]:
    def look() -> list[tuple[UUID, int]]:
        return list(Run.objects.filter(id__in=runs).values_list("id", "event_seq"))

    # Not in the one thread that all synchronous code of the process shares: a slow page must not hold up live views.
    found: list[tuple[UUID, int]] = await database_sync_to_async(look, thread_sensitive=False)()
    return found
