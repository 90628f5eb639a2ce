"""Identifies this process, and finds out whether another one has ended. An attempt is
over when its process is gone: nothing else proves it. Taking a live process for a dead
one would repeat an effect, so a process in doubt is never "gone".
"""

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one host. `pid_space` is where its pid has a meaning: the host's
    boot and the pid namespace. `started` distinguishes it from a later process with the
    same pid. Empty and 0 mean unknown.
    """

    host: str
    pid_space: str
    pid: int
    started: int

    def is_gone(self) -> bool:
        """Return whether it has certainly ended. False where that cannot be known: on
        another host, after another boot, in another pid namespace (a container beside
        this one may have its host name), and where one of them is unknown.
        """
        if not (self.started and self.pid_space):
            return False
        if (self.host, self.pid_space) != (socket.gethostname(), pid_space()):
            return False
        try:
            return _ticks(_stat(self.pid)) != self.started
        except (FileNotFoundError, ProcessLookupError):
            return not _is_hidden(self.pid)
        # In doubt it is not gone, and its effect not repeated.
        except OSError:
            return False


def this_process() -> Process:
    """Return the process that calls this."""
    return Process(
        socket.gethostname(), pid_space(), os.getpid(), started_ticks(os.getpid())
    )


def pid_space() -> str:
    """Return the id of the host's boot, and the inode of this process's pid namespace.
    Empty where the system does not provide them, and where /proc belongs to another
    namespace, in which the pids of this one name other processes.
    """
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return ""
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}:{os.stat('/proc/self/ns/pid').st_ino}"
    except (OSError, UnicodeError):
        return ""


def started_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot (field 22 of
    /proc/<pid>/stat, proc(5)); 0 where there is none.

    A process that has ended but was not yet waited for (a zombie) counts as none,
    because it can no longer act.
    """
    try:
        return _ticks(_stat(pid))
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """Return the state of a process, and the fields after it. Raises `OSError`."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        # The name before it, in brackets, may hold blanks and brackets itself.
        return file.read().rpartition(")")[2].split()


def _ticks(fields: list[str]) -> int:
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def _is_hidden(pid: int) -> bool:
    """Return whether there is such a process although /proc does not show it, as it
    does not for those of other users if mounted with `hidepid`.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # It is there, and another user's.
    except PermissionError:
        pass
    return True
