"""Running pure tasks that are over at once in the slice's own thread, because another
thread would cost more than most of them.

A node qualifies when its last attempts in this process took next to no time. What may
block must not run here. If such a node takes long after all, the heartbeat gives the
run back (`Heartbeat.busy_until`), and the next slice gives its tasks their own threads,
with their timeouts.
"""

import asyncio
from collections.abc import Sequence
from contextvars import Context

from orchestrator import connections
from orchestrator.engine.graphs.node import Node, NodeFunction
from orchestrator.execution.attempt import Attempt

QUICK_MS = 2
"""An attempt that took this many milliseconds or more was not quick."""
PROVEN = 3
"""After this many quick attempts in a row, the next one is made here."""
LONGEST = 0.05
"""The most seconds that a superstep spends here. The rest of its tasks goes to threads,
which can be watched.
"""

_quick: dict[NodeFunction, int] = {}
"""By function, how many attempts in a row were quick."""


def may_be_here() -> bool:
    """Return whether this thread has no running event loop, like the threads in which
    nodes run otherwise.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    # A node that runs a loop by itself would fail here: a thread has one at a time.
    return False


def are_quick(attempts: Sequence[Attempt]) -> bool:
    """Return whether all of these attempts may be made here."""
    proven = 0
    for attempt in attempts:
        node = attempt.node
        if node.is_pure_function and _quick.get(node.fn, 0) >= PROVEN:
            proven += 1
    return proven == len(attempts)


def note(node: Node, ms: int, *, done: bool) -> None:
    """Count an attempt of the node that ended; one that was not quick resets the
    count.
    """
    if not node.is_pure_function:
        return
    if done and ms < QUICK_MS:
        _quick[node.fn] = _quick.get(node.fn, 0) + 1
    else:
        _quick[node.fn] = 0


def attempt_inline(attempt: Attempt) -> None:
    """Make the attempt in this thread. The node gets its own database connections, as
    it would in a separate thread.
    """
    slice_connections = connections.taken_from_thread()
    try:
        # As in `threads`, the node sees no context variables of the slice.
        Context().run(attempt.work)
    finally:
        connections.give_to_thread(slice_connections)
    # Ctrl-C is delivered to whatever this thread does, but is meant for the process.
    if attempt.interrupted is not None:
        raise attempt.interrupted
