"""The shelf of a replay: a task sees what it saw, what the replay itself remembers, and else memory as it is now.

Nothing is written: what a replay remembers is an overlay that its own checkpoints carry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from checkpoints.memory.read_records import ReplayingShelf
from checkpoints.memory.shelf import Shelf
from checkpoints.models import MemoryRecord
from checkpoints.models.fields import of_tasks
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.canonical import Json
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.memory import Answer, Standing
from orchestrator.engine.output import WriteValue
from orchestrator.engine.trace import LIVE, Landing, Trace, ranked, words_in

Overlay = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{namespace: {key: {value, version}}}; a value of None is forgotten."""


@dataclass(frozen=True, slots=True)
class OriginLine:
    """Whose records a replay reads: the line of the origin that it departed from."""

    id: UUID
    line: int
    protection: Protection


class RecordedShelf(ReplayingShelf):
    """Gives a task what its origin was given, call by call, and writes nothing down."""

    __slots__ = ()

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes

    def _keep(self, kind: str, asked: Json, found: Json) -> bool:
        return True


@dataclass(slots=True)
class OverlaidShelf:
    """Memory as it is now, under what the replay remembers."""

    live: Shelf
    overlay: Overlay
    refused: CountersignError | None = None

    def get(self, namespace: str, key: str) -> Answer:
        own = self.overlay.get(namespace, {}).get(key)
        if own is None:
            return self.live.get(namespace, key)
        trace = _trace(namespace, key, own)
        return Answer((trace,) if trace else (), own["version"])

    def search(self, text: str, namespace: str, limit: int) -> Answer:
        own = self.overlay.get(namespace, {})
        found = self.live.search(text, namespace, limit + len(own)).traces
        mine = [trace for key, kept in own.items() if (trace := _trace(namespace, key, kept))]
        others = [one for one in found if one.key not in own]
        return Answer(tuple(ranked([*mine, *others], words_in(text), limit)))

    def standing(self, namespace: str, key: str) -> Standing:
        own = self.overlay.get(namespace, {}).get(key)
        if own is None:
            return self.live.standing(namespace, key)
        return Standing(own["version"], own["value"] is not None)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes

    def differs(self, asked: Sequence[Any], found: Sequence[Any]) -> str | None:
        """The place where this call finds something else than was `found`, by name; None where it finds the same."""
        kind, *call = asked
        answer = self.get(*call) if kind == "get" else self.search(*call)
        if [self._named(one.ref) for one in answer.traces] != [self._named(ref) for ref in found]:
            return ".".join(("memory", *call)) if kind == "get" else f"memory.{call[1]}"
        pairs = zip(answer.traces, found, strict=True)
        return next((f"memory.{one.namespace}.{one.key}" for one, ref in pairs if self._is_new(one, ref)), None)

    def _named(self, ref: Sequence[Any]) -> list[Any]:
        """What is compared of a name: what the replay itself remembers is counted on from memory as it is now."""
        namespace, key, version, strength = ref
        return (
            [namespace, key, strength]
            if key in self.overlay.get(namespace, {})
            else [namespace, key, strength, version]
        )

    def _is_new(self, found: Trace, ref: Sequence[Any]) -> bool:
        """Whether the replay remembers something else under this name than its origin read, as far as that is known:
        memory keeps the newest content alone.
        """
        if found.key not in self.overlay.get(found.namespace, {}):
            return False
        landed = self.live.get(found.namespace, found.key).traces
        return any(one.ref == [*ref] and one.content != found.content for one in landed)


def live_reads(origin: OriginLine, tasks: Iterable[Task]) -> dict[Task, list[tuple[list[Any], list[Any]]]]:
    """What these tasks of the origin asked memory in live mode, and found, by name. One query, none for no tasks."""
    wanted = list(tasks)
    if not wanted:
        return {}
    rows = list(MemoryRecord.objects.filter(of_tasks(origin.id, origin.line, wanted), mode=LIVE).order_by("n"))
    sealed_rows.verify_rows(rows, origin.protection)
    found: dict[Task, list[tuple[list[Any], list[Any]]]] = {}
    for row in rows:
        task = Task(row.node, row.visit, row.index)
        found.setdefault(task, []).append((read_value(row, "asked"), read_value(row, "found")))
    return found


def _trace(namespace: str, key: str, kept: Mapping[str, Any]) -> Trace | None:
    value = kept["value"]
    return Trace(namespace, key, value["content"], value["strength"], kept["version"]) if value is not None else None


def overlay_after(overlay: Overlay, landings: Sequence[Landing]) -> Overlay:
    """The overlay once these have landed on it."""
    after = {namespace: dict(keys) for namespace, keys in overlay.items()}
    for one in landings:
        known = after.setdefault(one.namespace, {}).get(one.key)
        version = (known["version"] if known else one.version or 0) + 1
        after[one.namespace][one.key] = {"value": one.value, "version": version}
    return after
