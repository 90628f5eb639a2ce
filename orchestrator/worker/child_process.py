"""Processes that never outlive the one which started them, whoever is killed and however. Used by `worker` and `up`."""

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_parent = 0


def end_with_parent() -> None:
    """Ask the system to kill this process when its parent ends. Only Linux can; elsewhere it does nothing."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def bind_forks() -> None:
    """From now on each process forked from here, and from those, dies with the one that forked it. Cannot be undone."""
    os.register_at_fork(before=_note_parent, after_in_child=_bind)


def _note_parent() -> None:
    global _parent
    # The signal comes when the forking *thread* ends, so what a node's own thread forks is left alone.
    _parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0


def _bind() -> None:
    if _parent:
        end_with_parent()
        if os.getppid() != _parent:  # it died before we could ask
            os._exit(1)
