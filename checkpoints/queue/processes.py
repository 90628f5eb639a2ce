"""Which process is this, and is that one still there? An attempt is over when its process is gone: nothing else proves
it. Whoever takes a live process for a dead one makes an effect twice, so what cannot be told is never "gone".
"""

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one host. `pid_space` says where its pid means anything: the host's boot and the pid namespace.
    `started` tells it from a later process that got the same id. Empty and 0: unknown.
    """

    host: str
    pid_space: str
    pid: int
    started: int

    def is_gone(self) -> bool:
        """Whether it has surely ended. False where nobody can tell from here: on another host, since another boot, from
        another pid namespace (a container beside this one may have its host name), and where one of them is unknown.
        """
        if not (self.started and self.pid_space):
            return False
        if (self.host, self.pid_space) != (socket.gethostname(), pid_space()):
            return False
        try:
            return _ticks(_stat(self.pid)) != self.started
        except (FileNotFoundError, ProcessLookupError):
            return not _is_hidden(self.pid)
        except OSError:
            return False


def this_process() -> Process:
    """The process that asks."""
    return Process(socket.gethostname(), pid_space(), os.getpid(), started_ticks(os.getpid()))


def pid_space() -> str:
    """Id of the host's boot, and inode of this process's pid namespace. Empty where the system does not say, and where
    /proc is another namespace's: there the pids of this one name other processes.
    """
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"
    except (OSError, UnicodeError):
        return ""


def started_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot (field 22 of /proc/<pid>/stat, proc(5)). 0: there is none.

    A process that has ended and was not yet waited for (a zombie) counts as none: it cannot act any more.
    """
    try:
        return _ticks(_stat(pid))
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """State of a process, and the fields behind it. Raises `OSError`."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _ticks(fields: list[str]) -> int:
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process though /proc does not show it: one of another user, mounted with `hidepid`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
