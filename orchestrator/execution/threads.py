"""The threads that node code runs in, used again and again: to start one for each task would cost more than most tasks.

They are daemons: a process can always leave, and what that cuts off is an unknown outcome like in a crash.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from contextvars import Context
from typing import Generic, Protocol, TypeVar

import structlog

log = structlog.get_logger(__name__)


class Work(Protocol):
    """Something to do in a thread that bears its name meanwhile."""

    @property
    def name(self) -> str: ...

    def work(self) -> None: ...


J = TypeVar("J", bound=Work)

_idle: "deque[queue.SimpleQueue[Iterator[Work]]]" = deque()
"""The inboxes of threads that wait for jobs. Appending and popping are atomic."""


class BoundedPool(Generic[J]):
    """Jobs in order, and the threads that do them. So many have a place at once: they are at work, or begin as soon as
    a thread comes to it. Whoever is done takes the next one himself, and calls one more thread in case it takes long;
    so nobody is woken for each of many short ones.

    While `stopped` says so, who is done gives his place to nobody.
    """

    def __init__(self, places: int, stopped: Callable[[], bool]) -> None:
        self._most = places
        self._stopped = stopped
        self._waiting: deque[J] = deque()
        self._placed = 0
        self._at_work: set[J] = set()
        self._coming = False
        self._lock = threading.Lock()

    def put(self, jobs: Iterable[J]) -> None:
        """Let these be done, beginning now. Raises `RuntimeError` where there is no thread to be had."""
        with self._lock:
            self._waiting.extend(jobs)
            self._give_places()
            self._call()

    def give_up(self, job: J) -> None:
        """Do not wait for this one: its place is free."""
        with self._lock:
            self._at_work.discard(job)
            if len(self._waiting) > self._placed and not self._stopped():
                self._give_places()
            # Where no thread is to be had, those at work do the rest; where nobody is, nobody would.
            with suppress(RuntimeError) if self._at_work else nullcontext():
                self._call()

    def take_back(self) -> list[J]:
        """Gives the jobs that have no place yet: they do not begin."""
        with self._lock:
            return [self._waiting.pop() for _ in range(len(self._waiting) - self._placed)]

    def _give_places(self) -> None:
        self._placed = min(len(self._waiting), self._most - len(self._at_work))

    def _call(self) -> None:
        if self._placed and not self._coming:
            run(self._jobs())
            self._coming = True

    def _jobs(self) -> Iterator[J]:
        """What one thread does."""
        job = self._next(None)
        while job is not None:
            yield job
            job = self._next(job)

    def _next(self, done: J | None) -> J | None:
        with self._lock:
            if done is None:
                self._coming = False
            else:
                self._at_work.discard(done)
            if len(self._waiting) > self._placed and not self._stopped():
                self._give_places()
            return self._begun() if self._placed else None

    def _begun(self) -> J:
        job = self._waiting.popleft()
        self._placed -= 1
        self._at_work.add(job)
        with suppress(RuntimeError):  # no thread to be had: those at work do the rest
            self._call()
        return job


def run(jobs: Iterator[Work]) -> None:
    """Do the jobs one after another in one thread, beginning now. Raises `RuntimeError` where none is to be had."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = queue.SimpleQueue()
        threading.Thread(target=_work, args=(inbox,), daemon=True).start()
    inbox.put(jobs)


def _work(inbox: "queue.SimpleQueue[Iterator[Work]]") -> None:
    me = threading.current_thread()
    while True:
        for job in inbox.get():
            me.name = job.name
            _do(job)
            del job
        _idle.append(inbox)


def _do(job: Work) -> None:
    try:
        # A context of its own: what a node sets in it is not the next node's to see.
        Context().run(job.work)
    except BaseException:
        log.exception("thread_failed", task=job.name)


os.register_at_fork(after_in_child=_idle.clear)
