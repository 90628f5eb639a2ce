"""Where values of a run are kept in rows that are sealed, and what is left of each. Other floors add theirs when they
are ready; docs/erasure.md lists all of them, held by a test that walks every column.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Model, QuerySet

from checkpoints.core.eraser import ERROR_TEXTS, Eraser
from checkpoints.models import (
    LateResult,
    MemoryRecord,
    MemoryTrace,
    PendingWrite,
    RunEvent,
    RunLine,
    RunMetadata,
    TaskResult,
)
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine.frozen import frozen
from orchestrator.engine.trace import text_of

Values = dict[str, Any]
"""New values of a row's columns; those of payload columns plain and packed. Empty: nothing in it is to be erased."""


class RowsOf(Protocol):
    """The rows of a run."""

    def __call__(self, run: UUID, /) -> "QuerySet[Any]": ...


@frozen
class Place:
    """A table with values of runs: its rows of one run, and what is left of one of them. `shared`: other runs write the
    same rows, under locks of their own; so they are erased one by one.
    """

    model: type[Model]
    rows: RowsOf
    left: Callable[[Any, Eraser], Values]
    shared: bool = False


def payload_left(row: Model, column: str, erase: Callable[[Any], Any]) -> Values:
    """What is left of a payload column. Raises `TamperedRow`, `WrongKey`."""
    if not bytes(getattr(row, column) or b""):
        return {}
    value = sealed_columns.read_value(row, column)
    left = erase(value)
    return {} if left == value else {column: pack_json(left)}


def column_left(row: Model, column: str, left: Any) -> Values:
    """What is left of a readable column."""
    return {} if getattr(row, column) == left else {column: left}


def _of_write(row: PendingWrite, eraser: Eraser) -> Values:
    values = payload_left(row, "value", lambda value: eraser.value(row.channel, value))
    values |= payload_left(row, "base", lambda base: _base_left(row.channel, base, eraser))
    values |= payload_left(row, "shown", eraser.texts)
    return values | column_left(row, "label", eraser.text(row.label))


def _base_left(channel: str, base: Mapping[str, Any], eraser: Eraser) -> dict[str, Any]:
    shows = {name: eraser.value(name, value) for name, value in base["shows"].items()}
    return {**base, "value": eraser.value(channel, base["value"]), "shows": shows}


def _of_result(row: TaskResult, eraser: Eraser) -> Values:
    values = payload_left(row, "output", lambda output: output_left(output, eraser))
    return values | payload_left(row, "error", eraser.error) | payload_left(row, "settled_reason", eraser.texts)


def _of_late_result(row: LateResult, eraser: Eraser) -> Values:
    values = payload_left(row, "output", lambda output: output_left(output, eraser))
    return values | payload_left(row, "error", eraser.error)


def output_left(output: Any, eraser: Eraser) -> Any:
    """What is left of what a node returned: the form stays, for pages tell from it which channels it wrote."""
    if not isinstance(output, dict):
        return eraser.opaque(output)
    left = {name: eraser.texts(value) for name, value in output.items()}
    left["writes"] = [_wish_left(one, eraser) for one in output.get("writes", ())]
    left["goto"] = output.get("goto")
    left["sends"] = [[target, eraser.opaque(payload)] for target, payload in output.get("sends", ())]
    return left


def _wish_left(wish: Any, eraser: Eraser) -> Any:
    if not isinstance(wish, dict) or "channel" not in wish:
        return eraser.opaque(wish)
    left = {name: eraser.texts(value) for name, value in wish.items()}
    return left | {"channel": wish["channel"], "value": eraser.value(wish["channel"], wish.get("value"))}


def _of_record(row: MemoryRecord, eraser: Eraser) -> Values:
    return payload_left(row, "asked", eraser.opaque) | payload_left(row, "found", eraser.opaque)


def _of_trace(row: MemoryTrace, eraser: Eraser) -> Values:
    values = payload_left(row, "content", eraser.opaque)
    if not values or row.encrypted or row.deleted:
        return values
    return values | {"text": text_of(row.key, sealed_columns.unpack_json(values["content"]))}


def _of_metadata(row: RunMetadata, eraser: Eraser) -> Values:
    values = payload_left(row, "value", eraser.opaque)
    return values | ({"text": ""} if values else {})


def _of_line(row: RunLine, eraser: Eraser) -> Values:
    return payload_left(row, "patch", eraser.patch) | payload_left(row, "reason", eraser.texts)


KEPT_FACTS = frozenset({
    "accept_risk", "after", "attempt", "before", "bundle", "cancel_at", "change", "channel",
    "checkpoint", "checkpoints", "code", "count", "decisions", "deleted", "departure",
    "departure_run", "departure_seq", "did", "due_in_ms", "edge", "effect", "events", "figures",
    "first", "graph", "happened", "hash", "index", "input_hash", "kept", "key", "last", "line",
    "made_on", "metadata", "n", "namespace", "node", "nodes", "origin", "outcome", "patched",
    "reads", "record", "request", "requests", "revision", "rows", "rows_hash", "seq", "snapshots",
    "source", "started_at", "stopped_before", "stops", "superstep", "tasks", "ties", "travel",
    "type", "verdict", "version", "visit", "waiting", "was", "write", "writes",
})  # fmt: skip
"""What lines of a log say by id, name, number, time or hash. All else that they say may hold a value, and is erased."""
STARTED = "run_started"
_CODES = frozenset({"no_record", "other_input"})


def _of_event(row: RunEvent, eraser: Eraser) -> Values:
    return payload_left(row, "payload", lambda facts: {name: _fact_left(name, facts[name], eraser) for name in facts})


def _fact_left(name: str, value: Any, eraser: Eraser) -> Any:
    if name in KEPT_FACTS or (name == "why" and value in _CODES):
        return value
    if name in ERROR_TEXTS:
        return eraser.error(value)
    # A label and the facts of a run are told as a whole; any other text stays a text.
    return eraser.opaque(value) if name in ("label", "facts") else eraser.texts(value)


PLACES: list[Place] = [
    Place(PendingWrite, lambda run: PendingWrite.objects.filter(run=run), _of_write),
    Place(TaskResult, lambda run: TaskResult.objects.filter(run=run), _of_result),
    Place(LateResult, lambda run: LateResult.objects.filter(run=run), _of_late_result),
    Place(MemoryRecord, lambda run: MemoryRecord.objects.filter(run=run), _of_record),
    Place(RunMetadata, lambda run: RunMetadata.objects.filter(run=run), _of_metadata),
    Place(MemoryTrace, lambda run: MemoryTrace.objects.filter(run=run), _of_trace, shared=True),
    Place(RunLine, lambda run: RunLine.objects.filter(run=run), _of_line),
    Place(RunEvent, lambda run: RunEvent.objects.filter(run=run).exclude(type=STARTED), _of_event),
]
"""The tables of floor 1, but for the run's checkpoints and its own row, which come last."""
FIRST_LINE = Place(RunEvent, lambda run: RunEvent.objects.filter(run=run, type=STARTED), _of_event)
"""Erased with the run's own row, for both say label and facts, and are compared."""
