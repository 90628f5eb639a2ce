"""Which process is this, and is that one still there? An attempt is over when its process is gone: nothing else proves
it.
"""

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one host. `started` tells it from a later one that got the same id; 0 where that is unknown."""

    host: str
    pid: int
    started: int

    def is_gone(self) -> bool:
        """Whether it has surely ended. False for processes of other hosts: from here nobody can tell."""
        if not self.started or self.host != socket.gethostname():
            return False
        return started_ticks(self.pid) != self.started


def this_process() -> Process:
    """The process that asks."""
    return Process(socket.gethostname(), os.getpid(), started_ticks(os.getpid()))


def started_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot (field 22 of /proc/<pid>/stat, proc(5)). 0: there is none.

    A process that has ended and was not yet waited for (a zombie) counts as none: it cannot act any more.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state in ("Z", "X") else int(fields[18])
