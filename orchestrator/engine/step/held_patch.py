"""A patch of guarded channels, which waits in the frontier for signatures. Until the
people of its gates have signed, no node starts. Pure.

It waits like a visit of a node `$patch` with one task per gate, and is applied as a
whole once every gate has approved. Its values replace what was there, whatever the
channel's reducer does with writes. If it is rejected the run is over, and the tokens
are gone.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from orchestrator.engine.graphs.effect import DIVERGED, REJECTED
from orchestrator.engine.step.frontier import Frontier, Part, visit_key, visit_of
from orchestrator.engine.values.identity import Task

PATCH = "$patch"
"""The node that stands for the patching person. No graph has a node of this name."""


def is_patch(task: Task) -> bool:
    """Return whether the task is a patch."""
    return task.node == PATCH


def is_patch_held(frontier: Frontier) -> bool:
    """Return whether a patch waits for people."""
    return any(_is_patch_visit(key) for key in frontier.waiting)


def without_patch(frontier: Frontier) -> Frontier:
    """Return the frontier as if no patch waited: what runs once it has been signed."""
    return replace(frontier, waiting=_without_patch_visits(frontier.waiting))


def next_patch(frontier: Frontier) -> int:
    """Return the number of the next patch of a line. Settled patches keep their number,
    as the visits of a node do.
    """
    return 1 + max(frontier.visits.get(PATCH, 0), _highest_held(frontier))


def renumbered_patches(frontier: Frontier) -> Frontier:
    """Return the frontier with which a line begins: its patches are renumbered, after
    those that still wait.
    """
    visits = dict(frontier.visits)
    # Patches that were settled before the line began do not count on it.
    visits.pop(PATCH, None)
    highest = _highest_held(frontier)
    if highest:
        visits[PATCH] = highest
    return replace(frontier, visits=visits)


def _highest_held(frontier: Frontier) -> int:
    """Return the highest number of a patch that waits, 0 if none does."""
    highest = 0
    for key in frontier.waiting:
        node, visit = visit_of(key)
        if node == PATCH:
            highest = max(highest, visit)
    return highest


def undecided_patches(frontier: Frontier, decided: Collection[Task]) -> set[int]:
    """Return the numbers of the patches that still wait for a gate, not counting the
    gates of the `decided` tasks.
    """
    numbers: set[int] = set()
    for task, part in _held_parts(frontier):
        if part.status == "gated" and task not in decided:
            numbers.add(task.visit)
    return numbers


def rejected_patches(frontier: Frontier) -> set[int]:
    """Return the numbers of the patches that wait and that a gate has rejected."""
    numbers: set[int] = set()
    for task, part in _held_parts(frontier):
        if part.status == REJECTED:
            numbers.add(task.visit)
    return numbers


def _held_parts(frontier: Frontier) -> Iterator[tuple[Task, Part]]:
    for key, parts in frontier.waiting.items():
        node, visit = visit_of(key)
        if node != PATCH:
            continue
        for index, part in enumerate(parts):
            yield Task(PATCH, visit, index), part


def hold_patch(
    frontier: Frontier,
    number: int,
    gates: int,
) -> Frontier:
    """Return the frontier at which the patch of this number waits for that many gates.
    The tokens stay as they were.
    """
    parts = tuple([Part("gated")] * gates)
    waiting = {**frontier.waiting, visit_key(PATCH, number): parts}
    visits = {**frontier.visits, PATCH: number}
    return replace(
        frontier,
        waiting=waiting,
        visits=visits,
    )


def settled_patch(
    frontier: Frontier, waiting: Mapping[str, tuple[Part, ...]]
) -> Frontier | None:
    """Return the frontier once all gates of the patch have decided, None while one is
    undecided or if no patch waits. `waiting` are the visits as they wait now.

    If every gate has approved, only the patch is gone. If one has rejected it, or a
    replay finds no decision, nothing is left that could run.
    """
    is_held = False
    statuses: set[str] = set()
    for key, parts in waiting.items():
        if _is_patch_visit(key):
            is_held = True
            statuses.update(part.status for part in parts)
    if not is_held or "gated" in statuses:
        return None
    # Before a rejection: nobody has rejected anything if a replay finds no decision.
    if DIVERGED in statuses:
        return _over(frontier, rejected=frontier.rejected)
    if REJECTED in statuses:
        return _over(frontier, rejected=True)
    return replace(frontier, waiting=_without_patch_visits(waiting))


def _over(frontier: Frontier, *, rejected: bool) -> Frontier:
    """Return the frontier of a run that is over: nothing of it can start."""
    return replace(
        frontier,
        tokens={},
        errors={},
        sends=(),
        waiting={},
        rejected=rejected,
    )


def _without_patch_visits(
    waiting: Mapping[str, tuple[Part, ...]],
) -> dict[str, tuple[Part, ...]]:
    other: dict[str, tuple[Part, ...]] = {}
    for key, parts in waiting.items():
        if not _is_patch_visit(key):
            other[key] = parts
    return other


def _is_patch_visit(key: str) -> bool:
    return visit_of(key)[0] == PATCH
