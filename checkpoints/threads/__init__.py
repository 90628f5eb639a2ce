"""Threads of another engine as runs: it works in its own processes and saves its
checkpoints here, where they are chained, sealed, shown, removed and erased like those
of our own runs. No worker drives a thread.

A thread is a run whose fingerprint is `FINGERPRINT`. This package knows no other
engine: it keeps bytes with the name of their format, and beside them a readable form
of those values that have one. Its callers ask for rights.
"""

from checkpoints.threads.contents import (
    NewThreadState,
    ThreadBlob,
    ThreadState,
    ThreadWrite,
    Typed,
)
from checkpoints.threads.names import (
    FINGERPRINT,
    all_threads,
    find_thread,
    is_thread,
    name_of_engine_run,
)
from checkpoints.threads.reader import (
    all_points,
    latest_point,
    named_point,
    saved_line_of,
    writes_of,
)
from checkpoints.threads.writer import (
    ThreadOrigin,
    copy_thread,
    require_origin,
    save_point,
    save_writes,
    wait_again,
)

__all__ = [
    "FINGERPRINT",
    "NewThreadState",
    "ThreadBlob",
    "ThreadOrigin",
    "ThreadState",
    "ThreadWrite",
    "Typed",
    "all_points",
    "all_threads",
    "copy_thread",
    "find_thread",
    "is_thread",
    "latest_point",
    "name_of_engine_run",
    "named_point",
    "require_origin",
    "save_point",
    "save_writes",
    "saved_line_of",
    "wait_again",
    "writes_of",
]
