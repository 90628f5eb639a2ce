"""The threads in which node code runs. They are reused, because starting one for each
task would cost more than most tasks.

They are daemons: a process can always exit, and what that cuts off is an unknown
outcome, as after a crash.
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
    """A job for a thread, which has the job's name in the meantime."""

    @property
    def name(self) -> str: ...

    def work(self) -> None: ...


J = TypeVar("J", bound=Work)

_idle: "deque[queue.SimpleQueue[Iterator[Work]]]" = deque()
"""The inboxes of threads that wait for jobs. Appending and popping are atomic."""


class BoundedPool(Generic[J]):
    """Jobs in order, and the threads that do them. At most `places` jobs have a place
    at once: they are at work, or begin as soon as a thread gets to them. A thread that
    ends a job takes the next one itself, and calls one more thread in case that one
    takes long; so no thread is woken for each of many short jobs.

    While `stopped` returns true, a job that ends gives its place to no other.
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
        """Add jobs, which begin now. Raises `RuntimeError` if no thread can be
        started.
        """
        with self._lock:
            self._waiting.extend(jobs)
            self._give_places()
            self._call()

    def give_up(self, job: J) -> None:
        """Stop waiting for this job: its place is free."""
        with self._lock:
            self._at_work.discard(job)
            if len(self._waiting) > self._placed and not self._stopped():
                self._give_places()
            # If no thread can be started, those at work do the rest; if there are none,
            # the caller has to know.
            with suppress(RuntimeError) if self._at_work else nullcontext():
                self._call()

    def take_back(self) -> list[J]:
        """Take out and return the jobs that have no place yet, so that they do not
        begin.
        """
        taken: list[J] = []
        with self._lock:
            while len(self._waiting) > self._placed:
                taken.append(self._waiting.pop())
        return taken

    def _give_places(self) -> None:
        self._placed = min(len(self._waiting), self._most - len(self._at_work))

    def _call(self) -> None:
        if self._placed and not self._coming:
            run(self._jobs())
            self._coming = True

    def _jobs(self) -> Iterator[J]:
        """Yield the jobs that one thread does, one after another."""
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
            if not self._placed:
                return None
            job = self._waiting.popleft()
            self._placed -= 1
            self._at_work.add(job)
            # If no thread can be started, those at work do the rest.
            with suppress(RuntimeError):
                self._call()
            return job


def run(jobs: Iterator[Work]) -> None:
    """Do the jobs one after another in one thread, beginning now. Raises `RuntimeError`
    if no thread can be started.
    """
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
            # An idle thread must not keep its last job alive.
            del job
        _idle.append(inbox)


def _do(job: Work) -> None:
    try:
        # Each job has its own context, so that no node sees what an earlier one set.
        Context().run(job.work)
    except BaseException:
        log.exception("thread_failed", task=job.name)


os.register_at_fork(after_in_child=_idle.clear)
