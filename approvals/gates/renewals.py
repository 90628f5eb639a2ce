"""Renewals: requests in which people are asked again about what a node acts on, because
the signatures that let it no longer count. Values only; other modules of this folder
open and read them.

A renewal belongs to the task that acts. It has one write of the channel `$authority`,
which changes nothing when it is approved: the task starts, as a call does.
"""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.engine.step.reduce import HeldWrite

AUTHORITY_KIND = "authority"
"""The kind of a request that asks again about what a node acts on."""

FIRST_POSITION = 1_000_000
"""The position of the write of a task's first renewal; later ones follow. No task
proposes so many writes, and what it proposes itself must not meet them.
"""


def renewed_at(ordinal: int, proposal: Sequence[HeldWrite]) -> list[HeldWrite]:
    """Return the write of a renewal with the position that its request has for it.
    `ordinal` says how often the task had asked before.
    """
    position = FIRST_POSITION + ordinal
    return [replace(write, position=position) for write in proposal]
