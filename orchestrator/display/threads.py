"""The words with which the page of a run shows a thread of another engine."""

from collections.abc import Callable
from typing import Any

from checkpoints import threads
from checkpoints.models import Checkpoint, Run
from checkpoints.threads import ThreadWrite
from orchestrator.engine.errors import UNREADABLE

Facts = dict[str, Any]


def facts_of_thread(run: Run, at: Checkpoint) -> Facts | None:
    """Return the names under which the engine of a checkpoint finds it; None for a run
    that is no thread. One query for a thread.
    """
    if not threads.is_thread(run):
        return None
    facts: Facts = {"id": "", "namespace": "", "step": None, "engine_run": ""}
    try:
        saved = threads.saved_line_of(at)
    # What is wrong with the log is said elsewhere; the page stays open.
    except UNREADABLE:
        return facts
    if saved is None:
        return facts
    facts |= {
        "id": saved.id,
        "namespace": saved.namespace,
        "engine_run": saved.engine_run,
    }
    # Steps are counted from -1, the input; those of nested graphs are not counted here.
    if not saved.namespace:
        facts["step"] = at.superstep - 1
    return facts


def thread_writes(at: Checkpoint, *, as_text: Callable[[Any], str]) -> Facts:
    """Return the writes of tasks at a checkpoint of a thread, in the order in which its
    engine applies them. Two queries. Raises `TamperedRow`, `WrongKey`.
    """
    rows = []
    saved = threads.saved_line_of(at)
    if saved is not None:
        for write in threads.writes_of(at.run, saved):
            rows.append({**_row(write), "text": as_text(write.shown)})
    return {"thread": True, "rows": rows, "count": len(rows)}


def _row(write: ThreadWrite) -> Facts:
    return {
        "task": write.task,
        "node": _node_of(write.path),
        "channel": write.channel,
    }


def _node_of(path: str) -> str:
    """Return the node that a path of a task names, if it names one."""
    # A path reads "~__pregel_pull, write", for a task that was sent with further parts.
    parts = [part.strip() for part in path.removeprefix("~").split(",")]
    if len(parts) > 1 and parts[0] == "__pregel_pull":
        return parts[1]
    return ""
