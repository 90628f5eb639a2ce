"""The shelf of a replay: a task sees what it saw, what the replay itself remembers, and else memory as it is now.

Nothing is written: what a replay remembers is an overlay that its own checkpoints carry.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from checkpoints.memory.read_records import ReplayingShelf
from checkpoints.memory.shelf import Shelf
from checkpoints.models import MemoryLanding, MemoryRecord
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

    def versions(self, namespace: str, *keys: str) -> dict[str, frozenset[int]]:
        """The versions that this line made of traces of a namespace, by key; of these keys only, where some are given.
        One query.
        """
        rows = MemoryLanding.objects.filter(run=self.id, line=self.line, namespace=namespace)
        found: dict[str, set[int]] = {}
        for key, version in (rows.filter(key__in=keys) if keys else rows).values_list("key", "version"):
            found.setdefault(key, set()).add(version)
        return {key: frozenset(versions) for key, versions in found.items()}


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

    def moved(self, asked: Sequence[Any], found: Sequence[Any], origin: OriginLine) -> str | None:
        """The place where this call would find something else now than was `found`, by name; None where it would find
        the same, but for what the origin itself has remembered since.
        """
        kind, *call = asked
        answer = self.get(*call) if kind == "get" else self.search(*call)
        place = self.differs(asked, found, [one.ref for one in answer.traces])
        if place is None:
            return None
        if kind == "search":
            text, namespace, limit = call
            return None if self._found_besides(text, namespace, limit, found, origin) else place
        namespace, key = call
        if key in self.overlay.get(namespace, {}):
            return place
        versions = origin.versions(namespace, key).get(key, frozenset())
        return None if _is_own(versions, answer.version, found[0][2] if found else 0) else place

    def _found_besides(self, text: str, namespace: str, limit: int, found: Sequence[Any], origin: OriginLine) -> bool:
        """Whether a search finds the same, apart from traces that only the origin has changed since."""
        made = {key: of for key, of in origin.versions(namespace).items() if key not in self.overlay.get(namespace, {})}
        now = [one.ref for one in self.search(text, namespace, limit + len(made)).traces] if made else []
        there, then = {key: version for _, key, version, _ in now}, {key: version for _, key, version, _ in found}
        own = set()
        for key in made.keys() & (there.keys() | then.keys()):
            version = there[key] if key in there else self.live.standing(namespace, key).version
            own |= {key} if _is_own(made[key], version, then.get(key, 0)) else set()
        others, before = ([ref for ref in refs if ref[1] not in own] for refs in (now, found))
        # Where it found as many as it asked for, there may have been more.
        others = others[: len(before)] if len(found) == limit else others
        return bool(own) and self.differs(["search", text, namespace, limit], before, others) is None

    def differs(self, asked: Sequence[Any], found: Sequence[Any], now: Sequence[Any]) -> str | None:
        """The place where this call found something else `now` than was `found`, both by name; None for the same."""
        kind, *call = asked
        if [self._named(ref) for ref in now] != [self._named(ref) for ref in found]:
            return ".".join(("memory", *call)) if kind == "get" else f"memory.{call[1]}"
        return next((f"memory.{ref[0]}.{ref[1]}" for ref in found if self._is_new(ref)), None)

    def _named(self, ref: Sequence[Any]) -> list[Any]:
        """What is compared of a name: what the replay itself remembers is counted on from memory as it is now."""
        namespace, key, version, strength = ref
        return (
            [namespace, key, strength]
            if key in self.overlay.get(namespace, {})
            else [namespace, key, strength, version]
        )

    def _is_new(self, ref: Sequence[Any]) -> bool:
        """Whether the replay remembers something else under this name than its origin read, as far as that is known:
        memory keeps the newest content alone.
        """
        namespace, key = ref[:2]
        own = self.overlay.get(namespace, {}).get(key)
        if own is None or own["value"] is None:
            return False
        landed = self.live.get(namespace, key).traces
        return any(one.ref == [*ref] and one.content != own["value"]["content"] for one in landed)


def _is_own(versions: Collection[int], now: int, then: int) -> bool:
    """Whether all that was done to a key since it had version `then` made one of these versions."""
    while now > then and now in versions:
        now -= 1
    return now == then


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
