"""Declares the facts that lines of a log must hold, by the type of the line. Every
examiner of a run takes them from here.

A line that lacks a fact, or holds another kind of value for it, was not written by this
product, whatever its seal says. The examiner of the log names it, and no examiner
believes it.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from checkpoints.core.outcome_lines import REPORTED, ReportedOn
from checkpoints.core.tombstone import is_tombstone
from checkpoints.journal.intents import tasks_of
from checkpoints.models import RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.verification.base import Subject
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError, TamperedRow
from orchestrator.engine.values import canonical

Kind = Callable[[Any], bool]


def _anything(_: Any) -> bool:
    return True


def _text(value: Any) -> bool:
    # A person's text may have been erased; a tombstone then stands there.
    return isinstance(value, str) or is_tombstone(value)


def _name(value: Any) -> bool:
    return isinstance(value, str)


def _number(value: Any) -> bool:
    # In Python, True is an int too.
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
    return isinstance(value, list) and all(map(_is_pair, value))


def _is_pair(value: Any) -> bool:
    return _names(value) and len(value) == 2


def _snapshots(value: Any) -> bool:
    return _pairs(value) and all(_id(checkpoint) for checkpoint, _ in value)


def _counts(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(map(_is_task, value)) and all(map(_number, value.values()))


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
_REMEMBERED: dict[str, Kind] = {
    "namespace": _name,
    "key": _name,
    "version": _number,
    "n": _number,
}
_SAVED: dict[str, Kind] = {"checkpoint": _id, "kept": _yes_or_no, "superstep": _number}

NEEDED: Mapping[str, Mapping[str, Kind]] = {
    "run_started": {
        "checkpoint": _id,
        "graph": _name,
        "version": _name,
        "input_hash": _name,
    },
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
    "request_expired": {"request": _id},
    "request_reminded": {"request": _id, "tier": _number},
    "request_escalated": {"request": _id, "tier": _number, "to": _names},
    "request_reopened": {"request": _id, "opened": _id, "reason": _text},
    "request_claimed": {"request": _id},
    "request_released": {"request": _id, "subject": _name},
    "request_assigned": {"request": _id, "subject": _name},
    "decision_signed": {**_REVISED, "request": _id, "verdict": _name},
    "outcome_reported": {
        **_REVISED,
        "request": _id,
        "result": _name,
        "hash": _name,
        "detail": _text,
    },
    "write_rebased": _REVISED,
    "texts_changed": _REVISED,
    "approval_not_needed": {"decisions": _ids},
    "gate_applied": {"outcome": _name},
    "thread_copied": {"origin": _id},
    "thread_saved": {"checkpoint": _id, "namespace": _name},
    "thread_written": {"namespace": _name, "values": _anything},
}
"""Type -> the facts that every line of it has had since the type exists."""

POSSIBLE: Mapping[str, Mapping[str, Kind]] = {
    "run_started": {
        "change": _name,
        "label": _anything,
        "facts": _anything,
        "ties": _object,
        "trace": _name,
        "line": _number,
    },
    "line_begun": {"change": _name},
    "checkpoint_saved": {
        "change": _name,
        "started_at": _name,
        "reads": _counts,
        "source": _name,
    },
    "effects_allowed": {"line": _number},
    "erased": {"metadata": _object},
    "memory_written": {"did": _name},
    "memory_deleted": {"did": _name},
    "cancel_requested": {"cancel_at": _name},
    "decision_signed": {"delegator": _name},
    "request_reminded": {"to": _names},
    "request_claimed": {"until": _name},
    "request_assigned": {"until": _name},
    "thread_saved": {"engine_run": _name},
    "history_removed": {
        "checkpoints": _object,
        "events": _object,
        "snapshots": _snapshots,
    },
    "approval_not_needed": {
        "superstep": _number,
        "input_hash": _name,
        "goto": _names,
        "sends": _pairs,
    },
}
"""Type -> facts that a line of it may have. A line of these types may also have those
of a departure.
"""

TOGETHER = (
    ("run_started", "departure", tuple(_DEPARTED)),
    ("run_started", "ties", ("label", "facts")),
    ("approval_not_needed", "sends", ("superstep",)),
    ("approval_not_needed", "input_hash", ("superstep",)),
)
"""(type, fact, the facts that a line with this fact must have too)."""


def fault_in_facts(line: RunEvent, facts: Any) -> str:
    """Return in words why a payload cannot be that of a line of its type; empty if it
    can.
    """
    if not isinstance(facts, dict):
        return "holds no facts"
    for fault_in in (
        _fault_in_needed_facts,
        _fault_in_possible_facts,
        _fault_in_facts_together,
        _fault_in_task,
    ):
        reason = fault_in(line, facts)
        if reason:
            return reason
    return ""


def _fault_in_needed_facts(line: RunEvent, facts: dict[str, Any]) -> str:
    for name, fits in NEEDED.get(line.type, {}).items():
        if name not in facts:
            return f"lacks the fact {name!r}"
        if not fits(facts[name]):
            return f"holds another kind of value as its fact {name!r}"
    return ""


def _fault_in_possible_facts(line: RunEvent, facts: dict[str, Any]) -> str:
    if line.type not in POSSIBLE:
        return ""
    for name, fits in {**_DEPARTED, **POSSIBLE[line.type]}.items():
        if name in facts and not fits(facts[name]):
            return f"holds another kind of value as its fact {name!r}"
    return ""


def _fault_in_facts_together(line: RunEvent, facts: dict[str, Any]) -> str:
    for type_, fact, companions in TOGETHER:
        if line.type != type_ or fact not in facts:
            continue
        for companion in companions:
            if companion not in facts:
                return f"lacks the fact {companion!r}"
    return ""


def _fault_in_task(line: RunEvent, facts: dict[str, Any]) -> str:
    """Return why the tasks that a line must name cannot be read; empty if they can."""
    try:
        if line.type == "effects_started":
            tasks_of(line.task)
        elif line.type == REPORTED:
            return _fault_in_report(line, facts)
        # The two types of lines about memory share these facts.
        elif line.type == "gate_applied" or NEEDED.get(line.type) is _REMEMBERED:
            Task.parse(line.task)
    except ValueError:
        return f"names no task: {line.task!r}"
    return ""


def _fault_in_report(line: RunEvent, facts: dict[str, Any]) -> str:
    """Return that a report says something else where lists read it; empty if not."""
    reported = ReportedOn(UUID(facts["request"]), UUID(facts["write"]), facts["result"])
    if ReportedOn.parse(line.task) == reported:
        return ""
    return f"is listed as about {line.task!r}"


def facts_of(subject: Subject, line: RunEvent) -> dict[str, Any] | None:
    """Return the facts of a line; None if it can't be read or lacks a fact, which the
    log's own examiner names.
    """
    try:
        data = subject.payload(line, "payload")
        facts = canonical.loads(data) if data else {}
    except (CountersignError, ValueError):
        return None
    if fault_in_facts(line, facts):
        return None
    return dict(facts)


def required_facts(line: RunEvent) -> dict[str, Any]:
    """Return the facts of a line whose seal was verified. Raises `TamperedRow` if it
    lacks a fact or has another kind of value for it, and `WrongKey`.
    """
    facts: dict[str, Any] = sealed_columns.read_value(line, "payload")
    reason = fault_in_facts(line, facts)
    if reason:
        name = sealed_rows.name_of(line)
        raise TamperedRow(f"{name} {reason}", row=name)
    return facts
