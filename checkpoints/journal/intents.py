"""Intents, and the lines of the log that say which attempts began. The journal writes them; whoever recovers or
verifies a run reads there which rows must exist.
"""

from collections.abc import Sequence
from itertools import groupby

from checkpoints.event_log import NewEvent
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen


@frozen
class Intent:
    """That an attempt is about to begin. `timeout` in seconds."""

    task: Task
    attempt: int
    effect: str
    input_hash: str
    timeout: float


def intent_events(intents: Sequence[Intent]) -> list[NewEvent]:
    """The lines for intents that are written together: one for a fan-out, which names its tasks by their first and last
    index.
    """
    events = []
    for (attempt, effect, *_), some in groupby(enumerate(intents), key=_alike):
        tasks = [intent.task for _, intent in some]
        name = str(tasks[0]) if len(tasks) == 1 else f"{tasks[0]}-{tasks[-1].index}"
        events.append(
            NewEvent("effects_started", {"attempt": attempt, "effect": effect}, node=tasks[0].node, task=name)
        )
    return events


def _alike(numbered: tuple[int, Intent]) -> tuple[int, str, str, int, int]:
    """The same for neighbours that belong to one fan-out and whose indices follow each other."""
    place, intent = numbered
    return intent.attempt, intent.effect, intent.task.node, intent.task.visit, intent.task.index - place


def tasks_of(content: str) -> list[Task]:
    """The tasks that a line names: one, or those of a fan-out from the first index to the last. Raises `ValueError`."""
    visit, _, indices = content.rpartition(":")
    first, to, last = indices.partition("-")
    task = Task.parse(f"{visit}:{first}")
    tasks = [Task(task.node, task.visit, index) for index in range(task.index, int(last if to else first) + 1)]
    if not tasks:
        raise ValueError(f"{content!r} names no task; its last index is before its first")
    return tasks
