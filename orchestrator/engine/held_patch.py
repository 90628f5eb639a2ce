"""A patch of guarded channels: a gate's people must sign it, and until they did no node starts. Pure.

It waits like a visit of a node `$patch` with one task a gate, and is applied as a whole, once each gate has approved.
What it sets takes the place of what was there, whatever the channel's reducer says. Where it is rejected the run is
over; the tokens are gone.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from orchestrator.engine.effect import DIVERGED, REJECTED
from orchestrator.engine.frontier import Frontier, Part, visit_key, visit_of
from orchestrator.engine.identity import Task

PATCH = "$patch"
"""The node that stands for whoever patched. No graph has a node of this name."""


def is_patch(task: Task) -> bool:
    """Whether the task is a patch."""
    return task.node == PATCH


def is_patch_held(frontier: Frontier) -> bool:
    """Whether a patch waits for people."""
    return any(visit_of(key)[0] == PATCH for key in frontier.waiting)


def without_patch(frontier: Frontier) -> Frontier:
    """The frontier as if no patch waited: what runs once people have signed it."""
    waiting = {key: parts for key, parts in frontier.waiting.items() if visit_of(key)[0] != PATCH}
    return replace(frontier, waiting=waiting)


def next_patch(frontier: Frontier) -> int:
    """The number of the next patch of a line. Those that were settled keep theirs, as the visits of a node do."""
    return 1 + max(frontier.visits.get(PATCH, 0), _highest_held(frontier))


def renumbered_patches(frontier: Frontier) -> Frontier:
    """The frontier with which a line begins: its patches are numbered anew, behind those that wait."""
    visits = {node: n for node, n in frontier.visits.items() if node != PATCH}
    highest = _highest_held(frontier)
    return replace(frontier, visits=visits | ({PATCH: highest} if highest else {}))


def _highest_held(frontier: Frontier) -> int:
    return max((visit for node, visit in map(visit_of, frontier.waiting) if node == PATCH), default=0)


def undecided_patches(frontier: Frontier, decided: Collection[Task]) -> set[int]:
    """Return the numbers of the patches that a gate is asked about beside those of these tasks."""
    return {task.visit for task, part in _held_parts(frontier) if part.status == "gated" and task not in decided}


def rejected_patches(frontier: Frontier) -> set[int]:
    """Return the numbers of the patches that wait and that a gate has rejected."""
    return {task.visit for task, part in _held_parts(frontier) if part.status == REJECTED}


def _held_parts(frontier: Frontier) -> Iterator[tuple[Task, Part]]:
    for key, parts in frontier.waiting.items():
        node, visit = visit_of(key)
        if node == PATCH:
            yield from ((Task(PATCH, visit, index), part) for index, part in enumerate(parts))


def hold_patch(frontier: Frontier, number: int, gates: int) -> Frontier:
    """The frontier at which the patch of this number waits for so many gates. Its tokens stay as they were."""
    parts = tuple(Part("gated") for _ in range(gates))
    waiting, visits = {**frontier.waiting, visit_key(PATCH, number): parts}, {**frontier.visits, PATCH: number}
    return replace(frontier, waiting=waiting, visits=visits)


def settled_patch(frontier: Frontier, waiting: Mapping[str, tuple[Part, ...]]) -> Frontier | None:
    """What a patch, as it waits now, leaves of the frontier: everything without it once each gate approved; nothing
    once all have decided and one rejected, or where a replay finds nobody's decision. None while a gate is asked, or
    where no patch waits.
    """
    held = {key: parts for key, parts in waiting.items() if visit_of(key)[0] == PATCH}
    statuses = [part.status for parts in held.values() for part in parts]
    if not held or "gated" in statuses:
        return None
    if DIVERGED in statuses:
        return replace(frontier, tokens={}, errors={}, sends=(), waiting={})
    if REJECTED in statuses:
        return replace(frontier, tokens={}, errors={}, sends=(), waiting={}, rejected=True)
    return replace(frontier, waiting={key: parts for key, parts in waiting.items() if key not in held})
