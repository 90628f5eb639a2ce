"""Intents, and the lines of the log that record which attempts began. The journal writes
them; recovery and verification of a run read there which rows must exist.
"""

from collections.abc import Sequence
from itertools import groupby

from checkpoints.event_log import NewEvent
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen


@frozen
class Intent:
    """The record that an attempt is about to begin. `timeout` in seconds."""

    task: Task
    attempt: int
    effect: str
    input_hash: str
    timeout: float


def intent_events(intents: Sequence[Intent]) -> list[NewEvent]:
    """Return the lines for intents that are written together: one for a fan-out, which
    names its tasks by their first and last index.
    """
    events = []
    for (attempt, effect, *_), group in groupby(enumerate(intents), key=_fan_out_of):
        tasks = [intent.task for _, intent in group]
        name = str(tasks[0])
        if len(tasks) > 1:
            name += f"-{tasks[-1].index}"
        event = NewEvent(
            "effects_started",
            {"attempt": attempt, "effect": effect},
            node=tasks[0].node,
            task=name,
        )
        events.append(event)
    return events


def _fan_out_of(numbered: tuple[int, Intent]) -> tuple[int, str, str, int, int]:
    """Return a key that is the same for neighbours of one fan-out with consecutive
    indices.
    """
    position, intent = numbered
    # Index less position stays the same until the indices have a gap.
    return (
        intent.attempt,
        intent.effect,
        intent.task.node,
        intent.task.visit,
        intent.task.index - position,
    )


def tasks_of(content: str) -> list[Task]:
    """Return the tasks that a line names: one, or those of a fan-out from the first
    index to the last. Raises `ValueError`.
    """
    # From the end, for the name of a node may hold dashes itself.
    visit, _, indices = content.rpartition(":")
    first, dash, last = indices.partition("-")
    task = Task.parse(f"{visit}:{first}")
    if not dash:
        last = first
    tasks = []
    for index in range(task.index, int(last) + 1):
        tasks.append(Task(task.node, task.visit, index))
    if not tasks:
        raise ValueError(
            f"{content!r} names no task; its last index is before its first"
        )
    return tasks
