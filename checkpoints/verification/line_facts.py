"""The facts that lines of a log must hold, by their type: whoever examines a run reads them here, and nowhere else.

A line that lacks a fact, or has another kind of value in its place, was not written by this product, whatever its seal
says. The examiner of the log names it, and no examiner believes it.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from checkpoints.core.tombstone import is_tombstone
from checkpoints.journal.intents import tasks_of
from checkpoints.models import RunEvent
from checkpoints.verification.base import Subject
from orchestrator.engine import Task, canonical
from orchestrator.engine.errors import CountersignError

Kind = Callable[[Any], bool]


def _anything(_: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    # A text of a person may have been erased.
    return isinstance(value, str) or is_tombstone(value)


def _name(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _yes_or_no(value: Any) -> bool:
    return isinstance(value, bool)


def _id(value: Any) -> bool:
    try:
        UUID(value)
    except (ValueError, TypeError, AttributeError):
        return False
    return True


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_name, value))


def _ids(value: Any) -> bool:
    return isinstance(value, list) and all(map(_id, value))


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _pairs(value: Any) -> bool:
    return isinstance(value, list) and all(_names(pair) and len(pair) == 2 for pair in value)


def _counts(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_task(task) and _number(count) for task, count in value.items())


def _is_task(text: str) -> bool:
    try:
        Task.parse(text)
    except ValueError:
        return False
    return True


_DEPARTED: dict[str, Kind] = {
    "departure": _id,
    "departure_seq": _number,
    "stops": _names,
    "patched": _names,
    "travel": _name,
}
_STOPPED: dict[str, Kind] = {"code": _name, "message": _text}
_REVISED: dict[str, Kind] = {"write": _id, "revision": _number}
_REMEMBERED: dict[str, Kind] = {"namespace": _name, "key": _name, "version": _number, "n": _number}
_SAVED: dict[str, Kind] = {"checkpoint": _id, "kept": _yes_or_no, "superstep": _number}

NEEDED: Mapping[str, Mapping[str, Kind]] = {
    "run_started": {"checkpoint": _id, "graph": _name, "version": _name, "input_hash": _name},
    "line_begun": {**_SAVED, **_DEPARTED, "line": _number},
    "checkpoint_saved": _SAVED,
    "checkpoint_kept": {"checkpoint": _id, "superstep": _number},
    "version_changed": {"version": _name},
    "effects_started": {"attempt": _number, "effect": _name},
    "effects_allowed": {"nodes": _names},
    "memory_written": _REMEMBERED,
    "memory_deleted": _REMEMBERED,
    "erased": {"record": _id, "rows_hash": _name},
    "run_failed": _STOPPED,
    "run_unknown": _STOPPED,
    "run_incompatible": _STOPPED,
    "request_opened": {"request": _id, "writes": _ids},
    "request_settled": {"request": _id, "outcome": _name},
    "request_withdrawn": {"request": _id},
    "decision_signed": {**_REVISED, "request": _id, "verdict": _name},
    "write_rebased": _REVISED,
    "texts_changed": _REVISED,
    "approval_not_needed": {"decisions": _ids},
    "gate_applied": {"outcome": _name},
}
"""Type -> the facts that each line of it has had since there are lines of it."""

POSSIBLE: Mapping[str, Mapping[str, Kind]] = {
    "run_started": {"change": _name, "label": _anything, "facts": _anything, "ties": _object},
    "line_begun": {"change": _name},
    "checkpoint_saved": {"change": _name, "started_at": _name, "reads": _counts},
    "effects_allowed": {"line": _number},
    "erased": {"metadata": _object},
    "memory_written": {"did": _name},
    "memory_deleted": {"did": _name},
    "cancel_requested": {"cancel_at": _name},
    "history_removed": {"checkpoints": _object, "events": _object, "snapshots": _pairs},
}
"""Type -> facts that a line of it may have."""

TOGETHER = (("run_started", "departure", tuple(_DEPARTED)), ("run_started", "ties", ("label", "facts")))
"""(type, fact, the facts that are there where this one is)."""


def lacks(line: RunEvent, facts: Any) -> str:
    """Return in words what keeps a payload from being that of a line of its type; empty where nothing does."""
    if not isinstance(facts, dict):
        return "holds no facts"
    for name, fits in NEEDED.get(line.type, {}).items():
        if name not in facts:
            return f"lacks the fact {name!r}"
        if not fits(facts[name]):
            return f"holds another kind of value as its fact {name!r}"
    for name, fits in {**_DEPARTED, **POSSIBLE.get(line.type, {})}.items():
        if name in facts and line.type in POSSIBLE and not fits(facts[name]):
            return f"holds another kind of value as its fact {name!r}"
    for type_, fact, others in TOGETHER:
        if line.type == type_ and fact in facts:
            missing = [name for name in others if name not in facts]
            if missing:
                return f"lacks the fact {missing[0]!r}"
    return _names_no_task(line)


def _names_no_task(line: RunEvent) -> str:
    try:
        if line.type == "effects_started":
            tasks_of(line.task)
        elif NEEDED.get(line.type) is _REMEMBERED:
            Task.parse(line.task)
    except ValueError:
        return f"names no task: {line.task!r}"
    return ""


def facts_of(subject: Subject, line: RunEvent) -> dict[str, Any] | None:
    """Return what a line says; None where it can't be read or lacks a fact, which the log's own examiner names."""
    try:
        data = subject.payload(line, "payload")
        facts = canonical.loads(data) if data else {}
    except (CountersignError, ValueError):
        return None
    return None if lacks(line, facts) else dict(facts)
