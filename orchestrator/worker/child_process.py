"""Processes that never outlive their parent, whichever process is killed and however.
Used by `worker` and `up`.
"""

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_parent = 0


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends. Only Linux can; elsewhere
    this does nothing.
    """
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def bind_forks() -> None:
    """Make every process forked from now on, and its own children, die with its parent.
    This cannot be undone.
    """
    os.register_at_fork(before=_note_parent, after_in_child=_bind)


def _note_parent() -> None:
    global _parent
    # The signal comes when the forking *thread* ends, so what a node's own thread forks
    # is left alone.
    if threading.current_thread() is threading.main_thread():
        _parent = os.getpid()
    else:
        _parent = 0


def _bind() -> None:
    if _parent:
        end_with_parent()
        # The parent may have died before the system knew of the request.
        if os.getppid() != _parent:
            os._exit(1)
