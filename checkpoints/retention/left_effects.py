"""What a run did outside stays known when its rows are removed: its effects are left with the run that it was forked
from, as results on a line that no run has. So plans of its relatives still list them.

A run that was not forked leaves nothing: it is removed only when no fork of it is there any more.
"""

from collections.abc import Iterator
from datetime import datetime

from django.utils import timezone

from checkpoints.models import MemoryLanding, Run, RunLine, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.past_effects import LEFT_LINES, MEMORY
from orchestrator.engine import Task

ROWS = 100
"""Results that are read at once: each may hold a large output."""

Left = tuple[Task, str, bool]
"""A task, its effect, and whether it certainly happened."""


def leave_effects(run: Run) -> None:
    """Leave what a run did, and what others had left with it, with its origin, in the caller's transaction; nothing
    where it has none. Five statements, and one for each task.
    """
    departure = RunLine.objects.filter(run=run.id, number=1).values_list("departure_run", flat=True).first()
    origin = Run.objects.filter(id=departure).only("id", "encrypted", "hash_key").first() if departure else None
    if origin is None:
        return
    at = timezone.now()
    for left in dict.fromkeys([*_acted(run), *_landed(run)]):
        _leave(origin, left, at)


def _acted(run: Run) -> Iterator[Left]:
    """What its nodes did, or may have done; the certain ones first. Raises `TamperedRow` and `WrongKey` where a result
    does not verify: it would be sealed as an effect of the family of its origin.
    """
    rows = TaskResult.objects.filter(run=run.id).order_by("id")
    found: list[Left] = []
    for row in rows.iterator(chunk_size=ROWS):
        sealed_rows.verify_row(row, protection_of(run))
        if row.outcome != Outcome.NOT_DONE:
            found.append((Task(row.node, row.visit, row.index), row.effect, row.outcome == Outcome.DONE))
    yield from sorted(found, key=lambda left: not left[2])


def _landed(run: Run) -> Iterator[Left]:
    rows = MemoryLanding.objects.filter(run=run.id).order_by("id").values_list("node", "visit", "index")
    yield from ((Task(node, visit, index), MEMORY, True) for node, visit, index in rows)


def _leave(origin: Run, left: Left, at: datetime) -> None:
    """Leave one effect, unless the same is there already."""
    task, effect, certain = left
    line = LEFT_LINES[effect == MEMORY]
    place = {"run": origin, "line": line, "node": task.node, "visit": task.visit, "index": task.index}
    there = TaskResult.objects.filter(**place).order_by("attempt")
    outcomes = list(there.values_list("outcome", flat=True))
    if Outcome.DONE in outcomes or (outcomes and not certain):
        return
    row = TaskResult(
        **place,
        attempt=len(outcomes) + 1,
        effect=effect,
        epoch=0,
        superstep=0,
        intent_at=at,
        over_at=at,
        thread_ended_at=at,
        result_at=at,
        outcome=Outcome.DONE if certain else Outcome.FAILED,
    )
    sealed_rows.seal_and_encrypt([row], protection_of(origin))
    row.save(force_insert=True)
