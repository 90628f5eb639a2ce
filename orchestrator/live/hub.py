"""One look for all watchers: a task per event loop reads how far the watched runs have
come, in one query; another reads, less often, whether anything about which people are
asked has changed.

Consumers watch, and the hubs set their events. The hubs send nothing to clients, and
read only a few columns.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, NamedTuple, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from channels.db import database_sync_to_async
from django.db import Error

from approvals import inbox
from approvals.models import PersonNotice
from approvals.people.comments import comment_counts
from checkpoints.models import Run
from checkpoints.queue import workers

PERIOD = 0.15
"""Seconds between two looks at runs."""
INBOX_PERIOD = 1.0
"""Seconds between two looks at the inboxes."""
BROKEN_PERIOD = 2.0
"""Seconds after a look that failed."""
EVERYBODY = "everybody"
"""The key under which the hub of the inboxes watches: they all share one answer."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Talk(NamedTuple):
    """The comments on the requests of a run, as a thing to watch."""

    run: UUID


class Hub:
    """The watchers of the runs of one event loop."""

    _hubs: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, "Hub"]] = (
        WeakKeyDictionary()
    )

    def __init__(self) -> None:
        self._bells: dict[Hashable, set[asyncio.Event]] = {}
        self._seen: dict[Hashable, Any] = {}
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def here(cls) -> "Hub":
        """Return the hub of the running loop."""
        return cls._hubs.setdefault(asyncio.get_running_loop(), cls())

    def watch(self, things: Iterable[Hashable], nudge: asyncio.Event) -> None:
        """Set the event whenever one of these has changed. It may have changed before,
        so look first.
        """
        for thing in things:
            self._bells.setdefault(thing, set()).add(nudge)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look_on())

    def leave(self, things: Iterable[Hashable], nudge: asyncio.Event) -> None:
        """Stop watching. When nobody is watching, the task ends at its next look."""
        for thing in things:
            bells = self._bells.get(thing, set())
            bells.discard(nudge)
            if not bells:
                self._bells.pop(thing, None)
                self._seen.pop(thing, None)

    async def look(self) -> Iterable[tuple[Hashable, Any]]:
        """Return what is watched, each with the number that it has reached."""
        heads = await _heads([run for run in self._bells if isinstance(run, UUID)])
        talks = [talk for talk in self._bells if isinstance(talk, Talk)]
        return [*heads, *await _comments(talks)]

    @property
    def period(self) -> float:
        """Return the seconds between two looks."""
        return PERIOD

    async def _look_on(self) -> None:
        while self._bells:
            try:
                for thing, state in await self.look():
                    self._ring(thing, state)
            except Exception as error:
                # The task goes on whatever it was, because nothing else looks for the
                # sockets. When the database is back, the next look catches up.
                log.warning(
                    "live_look_failed",
                    error=type(error).__name__,
                    exc_info=not isinstance(error, Error),
                )
                await asyncio.sleep(BROKEN_PERIOD)
            await asyncio.sleep(self.period)

    def _ring(self, thing: Hashable, state: Any) -> None:
        if self._seen.get(thing) == state:
            return
        self._seen[thing] = state
        for nudge in self._bells.get(thing, ()):
            nudge.set()


class InboxHub(Hub):
    """The watchers of inboxes: each request or decision wakes all of them, and each
    looks at its own inbox.
    """

    # Apart from those of the base, which has a hub of runs for the same loop.
    _hubs: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, "Hub"]] = (
        WeakKeyDictionary()
    )

    async def look(self) -> Iterable[tuple[Hashable, Any]]:
        return [
            (
                EVERYBODY,
                await _in_thread(_news_of_everybody),
            )
        ]

    @property
    def period(self) -> float:
        return INBOX_PERIOD


def _news_of_everybody() -> tuple[Any, ...]:
    """Return values that change when anything in anybody's bar may have changed."""
    newest = PersonNotice.objects.order_by("-id").values_list("id", flat=True).first()
    return inbox.mark_of_all(), newest, workers.any_alive()


async def _heads(runs: list[UUID]) -> list[tuple[UUID, int]]:
    return await _in_thread(
        lambda: list(Run.objects.filter(id__in=runs).values_list("id", "event_seq"))
    )


async def _comments(talks: list[Talk]) -> list[tuple[Talk, int]]:
    if not talks:
        return []
    counts = await _in_thread(lambda: comment_counts(talk.run for talk in talks))
    return [(talk, counts.get(talk.run, 0)) for talk in talks]


async def _in_thread(look: Callable[[], T]) -> T:
    # Not in the one thread that all synchronous code of the process shares: a slow page
    # must not hold up live views.
    answer: T = await database_sync_to_async(look, thread_sensitive=False)()
    return answer
