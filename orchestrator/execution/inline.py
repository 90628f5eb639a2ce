"""Pure tasks that are over at once are done by the slice's own thread: another one would cost more than most of them.

A node earns it: its last attempts in this process took next to no time. What may block has no business here. Where such
a node takes long after all, the heartbeat lets go of the run (`Heartbeat.busy_until`); whoever gets it then gives its
tasks threads of their own, with their timeouts.
"""

import asyncio
from contextvars import Context
from inspect import CO_COROUTINE
from types import FunctionType

from django.db import connections

from orchestrator.engine.effect import PURE
from orchestrator.engine.node import Node, NodeFunction
from orchestrator.execution.attempt import Attempt

QUICK_MS = 2
"""Milliseconds. An attempt that took as long was not quick."""
PROVEN = 3
"""So many quick attempts, one after another, and the next is made here."""
LONGEST = 0.05
"""Seconds that a superstep spends here at most, before it gives what is left to threads: they can be watched."""

_quick: dict[NodeFunction, int] = {}
"""By function, how many attempts were quick since one was not."""


def may_be_here() -> bool:
    """Whether this thread is like those that nodes else have: without a loop that runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def is_quick(node: Node) -> bool:
    """Whether the node's next attempt may be made here."""
    return _may_be(node) and _quick.get(node.fn, 0) >= PROVEN


def note(node: Node, ms: int, *, done: bool) -> None:
    """An attempt of the node ended."""
    if _may_be(node):
        _quick[node.fn] = _quick.get(node.fn, 0) + 1 if done and ms < QUICK_MS else 0


def _may_be(node: Node) -> bool:
    """What is async needs a thread without a loop; what is no plain function may be anything."""
    return node.effect == PURE and type(node.fn) is FunctionType and not node.fn.__code__.co_flags & CO_COROUTINE


def attempt_inline(attempt: Attempt) -> None:
    """Make the attempt in this thread. Like in a thread of its own it sees no connection of ours, nor we one of its."""
    ours = connections.all(initialized_only=True)
    for one in ours:
        del connections[one.alias]
    try:
        Context().run(attempt.work)
    finally:
        for one in ours:
            connections[one.alias] = one
    if attempt.interrupted is not None:
        raise attempt.interrupted
