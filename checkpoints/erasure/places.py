"""The sealed rows in which values of a run are stored, and their contents after an
erasure. Other packages add theirs in `AppConfig.ready`; docs/erasure.md lists all of
them, and a test that walks every column keeps that list complete.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Model, Q, QuerySet

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
from checkpoints.threads.names import WRITTEN
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.trace import text_of

Values = dict[str, Any]
"""New values of a row's columns; those of payload columns plain and packed. Empty if
nothing in the row is to be erased.
"""


@frozen
class Place:
    """A table with values of runs, and the new values of one of its rows. `only`
    narrows its rows down. If it is `shared`, other runs write the same rows under their
    own locks, so the rows are erased one by one.
    """

    model: type[Model]
    left: Callable[[Any, Eraser], Values]
    only: Q = Q()
    shared: bool = False

    def rows(self, run: UUID) -> "QuerySet[Any]":
        """Return the rows of a run."""
        rows: QuerySet[Any] = self.model._default_manager.filter(run=run)
        return rows.filter(self.only)


def payload_left(row: Model, column: str, erase: Callable[[Any], Any]) -> Values:
    """Return the new value of a payload column, if it changes. Raises `TamperedRow`,
    `WrongKey`.
    """
    if not bytes(getattr(row, column) or b""):
        return {}
    value = sealed_columns.read_value(row, column)
    erased_value = erase(value)
    if erased_value == value:
        return {}
    return {column: pack_json(erased_value)}


def column_left(row: Model, column: str, erased_value: Any) -> Values:
    """Return the new value of a readable column, if it changes."""
    if getattr(row, column) == erased_value:
        return {}
    return {column: erased_value}


def _of_write(row: PendingWrite, eraser: Eraser) -> Values:
    channel = row.channel
    erase_value = partial(eraser.value, channel)
    erase_base = partial(_base_left, eraser, channel)
    values = payload_left(row, "value", erase_value)
    values |= payload_left(row, "base", erase_base)
    # Title, facts and labels can quote the values of any channel.
    values |= payload_left(row, "shown", partial(_shown_left, eraser))
    return values | column_left(row, "label", eraser.text(row.label))


def _shown_left(eraser: Eraser, shown: Any) -> Any:
    """Return what is shown beside a write without erased values: of a question, whether
    it is answered stays; of a form, the effect.
    """
    erased = eraser.texts(shown)
    for name in ("ask", "form"):
        part = shown.get(name) if isinstance(shown, dict) else None
        # Names of properties in its schema can be values.
        if isinstance(part, dict) and "schema" in part:
            erased[name] = {**erased[name], "schema": eraser.opaque(part["schema"])}
    form = erased.get("form") if isinstance(erased, dict) else None
    if isinstance(form, dict):
        form["effect"] = shown["form"].get("effect")
    return erased


def _base_left(eraser: Eraser, channel: str, base: Mapping[str, Any]) -> dict[str, Any]:
    shows = {}
    for name, value in base["shows"].items():
        shows[name] = eraser.value(name, value)
    value = eraser.value(channel, base["value"])
    return {**base, "value": value, "shows": shows}


def _of_result(row: TaskResult, eraser: Eraser) -> Values:
    values = _of_late_result(row, eraser)
    return values | payload_left(row, "settled_reason", eraser.texts)


def _of_late_result(row: TaskResult | LateResult, eraser: Eraser) -> Values:
    erase_output = partial(output_left, eraser=eraser)
    values = payload_left(row, "output", erase_output)
    return values | payload_left(row, "error", eraser.error)


def output_left(output: Any, eraser: Eraser) -> Any:
    """Return a node's output without erased values: its form stays, for pages read from
    it which channels the node wrote.
    """
    if not isinstance(output, dict):
        return eraser.opaque(output)
    # All parts become texts first, so that unknown ones are erased too.
    erased = {name: eraser.texts(value) for name, value in output.items()}
    writes = output.get("writes", ())
    erased["writes"] = [_write_left(write, eraser) for write in writes]
    erased["goto"] = output.get("goto")
    sends = output.get("sends", ())
    erased["sends"] = [[target, eraser.opaque(payload)] for target, payload in sends]
    return erased


def _write_left(write: Any, eraser: Eraser) -> Any:
    if not isinstance(write, dict) or "channel" not in write:
        return eraser.opaque(write)
    erased = {name: eraser.texts(value) for name, value in write.items()}
    channel = write["channel"]
    erased["channel"] = channel
    erased["value"] = eraser.value(channel, write.get("value"))
    return erased


def _of_record(row: MemoryRecord, eraser: Eraser) -> Values:
    values = payload_left(row, "asked", eraser.opaque)
    return values | payload_left(row, "found", eraser.opaque)


def _of_trace(row: MemoryTrace, eraser: Eraser) -> Values:
    values = payload_left(row, "content", eraser.opaque)
    # Encrypted memory is not searched, and forgotten memory has no text left.
    if not values or row.encrypted or row.deleted:
        return values
    # The text that finds it is made from its content.
    content = sealed_columns.unpack_json(values["content"])
    values["text"] = text_of(row.key, content)
    return values


def _of_metadata(row: RunMetadata, eraser: Eraser) -> Values:
    values = payload_left(row, "value", eraser.opaque)
    if values:
        values["text"] = ""
    return values


def _of_line(row: RunLine, eraser: Eraser) -> Values:
    values = payload_left(row, "patch", eraser.patch)
    return values | payload_left(row, "reason", eraser.texts)


KEPT_FACTS = frozenset(
    {
        "accept_risk",
        "after",
        "attempt",
        "before",
        "bundle",
        "cancel_at",
        "change",
        "channel",
        "checkpoint",
        "checkpoints",
        "code",
        "count",
        "decisions",
        "deleted",
        "departure",
        "departure_run",
        "departure_seq",
        "did",
        "due_in_ms",
        "edge",
        "effect",
        "engine_run",
        "events",
        "figures",
        "first",
        "graph",
        "happened",
        "hash",
        "index",
        "input_hash",
        "kept",
        "key",
        "last",
        "line",
        "made_on",
        "metadata",
        "n",
        "namespace",
        "node",
        "nodes",
        "origin",
        "outcome",
        "patched",
        "reads",
        "record",
        "request",
        "requests",
        "result",
        "revision",
        "rows",
        "rows_hash",
        "seq",
        "snapshots",
        "source",
        "started_at",
        "stopped_before",
        "stops",
        "superstep",
        "tasks",
        "ties",
        "trace",
        "travel",
        "type",
        "verdict",
        "version",
        "visit",
        "waiting",
        "was",
        "write",
        "writes",
    }
)
"""The facts of events that are an id, a name, a number, a time or a hash. All others
may hold a value, and are erased.
"""
STARTED = "run_started"
_CODES = frozenset({"no_record", "other_input", "other_memory"})


def _of_event(row: RunEvent, eraser: Eraser) -> Values:
    def erase_facts(facts: dict[str, Any]) -> dict[str, Any]:
        if row.type == WRITTEN:
            return _thread_writes_left(facts, eraser)
        return {name: _fact_left(name, facts[name], eraser) for name in facts}

    return payload_left(row, "payload", erase_facts)


def _fact_left(name: str, value: Any, eraser: Eraser) -> Any:
    # Why a replay diverged is a code; any other `why` is a sentence that may quote.
    if name in KEPT_FACTS or (name == "why" and value in _CODES):
        return value
    if name in ERROR_TEXTS:
        return eraser.error(value)
    # A label and the facts of a run are erased as a whole; any other text stays a text.
    if name in ("label", "facts"):
        return eraser.opaque(value)
    return eraser.texts(value)


def _thread_writes_left(facts: Mapping[str, Any], eraser: Eraser) -> Values:
    """Return the facts of a line about writes to a thread: keys and booleans in what was
    written are values as well.
    """
    writes = []
    for write in facts["values"]:
        erased = eraser.texts(write)
        erased["bytes"] = eraser.opaque(write["bytes"])
        erased["shown"] = eraser.opaque(write["shown"])
        writes.append(erased)
    return {**facts, "values": writes}


_IS_FIRST = Q(type=STARTED)
PLACES: list[Place] = [
    Place(PendingWrite, _of_write),
    Place(TaskResult, _of_result),
    Place(LateResult, _of_late_result),
    Place(MemoryRecord, _of_record),
    Place(RunMetadata, _of_metadata),
    Place(MemoryTrace, _of_trace, shared=True),
    Place(RunLine, _of_line),
    Place(RunEvent, _of_event, only=~_IS_FIRST),
]
"""The tables of floor 1, but for the run's checkpoints and its own row, which come
last. Unfinished jobs store a position in this list, so its order stays.
"""
FIRST_LINE = Place(RunEvent, _of_event, only=_IS_FIRST)
"""Erased with the run's own row, for both hold label and facts, and are compared."""
