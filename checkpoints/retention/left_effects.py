"""Keeping the outside effects of a run known when its rows are removed: they pass to
the run that it was forked from, as results on a line that no run has, so that plans of
its relatives still list them.

A run that is not a fork leaves nothing: it is removed only when none of its forks
exists.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from checkpoints.models import MemoryLanding, Run, RunLine, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.past_effects import LEFT_LINES, MEMORY
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen

ROWS = 100
"""How many results are read at once: each may hold a large output."""

Left = tuple[Task, str, bool]
"""A task, its effect, and whether it certainly happened."""


@frozen
class LeftEffects:
    """The effects that a run leaves with the run `origin`."""

    origin: UUID
    effects: Sequence[Left]


def find_effects(run: Run) -> LeftEffects | None:
    """Return the effects of a run, and those that others had left with it; None if it
    was not forked or has none. Raises `TamperedRow` and `WrongKey` if a result does not
    verify. Three statements.
    """
    lines = RunLine.objects.filter(run=run.id, number=1)
    departure = lines.values_list("departure_run", flat=True).first()
    if not departure:
        return None
    # Attempts of a task, and its starts on several lines, are one effect.
    effects = dict.fromkeys([*_effects_of_nodes(run), *_landings(run)])
    if not effects:
        return None
    return LeftEffects(departure, tuple(effects))


def leave_effects(leftover: LeftEffects) -> None:
    """Leave effects with their origin if it exists, at the end of the caller's
    transaction: the origin may be at work, and its worker waits for the lock. One
    statement, and two for each task.
    """
    # Locked, so that it is not removed before the rows that are left with it are there.
    origins = Run.objects.select_for_update(no_key=True).filter(id=leftover.origin)
    origin = origins.only("id", "encrypted", "hash_key").first()
    if origin is None:
        return
    at = timezone.now()
    for effect in leftover.effects:
        _leave(origin, effect, at)


def _effects_of_nodes(run: Run) -> list[Left]:
    """Return what the nodes of a run did, or may have done; the certain ones first.
    Raises `TamperedRow` and `WrongKey` if a result does not verify: it would be sealed
    as an effect of the family of its origin.
    """
    certain: list[Left] = []
    uncertain: list[Left] = []
    rows = TaskResult.objects.filter(run=run.id).order_by("id")
    for row in rows.iterator(chunk_size=ROWS):
        sealed_rows.verify_row(row, protection_of(run))
        task = Task(row.node, row.visit, row.index)
        if row.outcome == Outcome.DONE:
            certain.append((task, row.effect, True))
        elif row.outcome != Outcome.NOT_DONE:
            uncertain.append((task, row.effect, False))
    # In this order no uncertain attempt is left beside a certain one.
    return certain + uncertain


def _landings(run: Run) -> Iterator[Left]:
    rows = MemoryLanding.objects.filter(run=run.id).order_by("id")
    for node, visit, index in rows.values_list("node", "visit", "index"):
        yield Task(node, visit, index), MEMORY, True


def _leave(origin: Run, left_effect: Left, at: datetime) -> None:
    """Leave one effect, unless the same is there already."""
    task, effect, certain = left_effect
    line = LEFT_LINES[effect == MEMORY]
    place = {
        "run": origin,
        "line": line,
        "node": task.node,
        "visit": task.visit,
        "index": task.index,
    }
    results = TaskResult.objects.filter(**place).order_by("attempt")
    outcomes = list(results.values_list("outcome", flat=True))
    if Outcome.DONE in outcomes or (outcomes and not certain):
        return
    row = TaskResult(
        **place,
        # The number of an attempt is unique, and an uncertain one may be there already.
        attempt=len(outcomes) + 1,
        effect=effect,
        epoch=0,
        superstep=0,
        intent_at=at,
        over_at=at,
        thread_ended_at=at,
        result_at=at,
        # Plans list a failed attempt as one that may have happened.
        outcome=Outcome.DONE if certain else Outcome.FAILED,
    )
    sealed_rows.seal_and_encrypt([row], protection_of(origin))
    row.save(force_insert=True)
