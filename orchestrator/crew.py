"""The threads that node code runs in, used again and again: to start a thread for each task would cost more than most
tasks. `attempt` hands out jobs.

They are daemons: a process can always leave, and what that cuts off is an unknown outcome like in a crash.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context

import structlog

Job = Callable[[], None]

log = structlog.get_logger(__name__)

_idle: "deque[queue.SimpleQueue[tuple[str, Job]]]" = deque()
"""The inboxes of threads that wait for a job. Appending and popping are atomic."""


def run(name: str, job: Job) -> None:
    """Do the job in a thread of that name, beginning now."""
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = queue.SimpleQueue()
        threading.Thread(target=_work, args=(inbox,), daemon=True).start()
    inbox.put((name, job))


def _work(inbox: "queue.SimpleQueue[tuple[str, Job]]") -> None:
    me = threading.current_thread()
    while True:
        me.name, job = inbox.get()
        try:
            # A context of its own: what a node sets in it is not the next node's to see.
            Context().run(job)
        except BaseException:
            log.exception("thread_failed", task=me.name)
        finally:
            del job
            _idle.append(inbox)


os.register_at_fork(after_in_child=_idle.clear)
