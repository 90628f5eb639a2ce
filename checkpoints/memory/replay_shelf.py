"""The shelf of a replay: a task sees what it saw in the origin, what the replay itself
remembers, and otherwise memory as it is now.

Nothing is written: what a replay remembers is an overlay that its own checkpoints
carry.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from checkpoints.memory.read_records import ReplayingShelf
from checkpoints.memory.shelf import DatabaseShelf
from checkpoints.models import MemoryLanding, MemoryRecord
from checkpoints.models.fields import of_tasks
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.trace import LIVE, Landing, Trace, ranked, words_in
from orchestrator.engine.step.memory import Answer, KeyStanding
from orchestrator.engine.step.output import Recorded, WriteValue
from orchestrator.engine.values.canonical import Json

Overlay = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{namespace: {key: {value, version}}}; a value of None means forgotten."""


@dataclass(frozen=True, slots=True)
class OriginLine:
    """The line of the origin from which a replay departed, and whose records it
    reads.
    """

    id: UUID
    line: int
    protection: Protection

    def versions(
        self,
        namespace: str,
        *keys: str,
    ) -> dict[str, frozenset[int]]:
        """Return the versions that this line made of traces of a namespace, by key;
        only of these keys, if there are any. One query.
        """
        rows = MemoryLanding.objects.filter(
            run=self.id, line=self.line, namespace=namespace
        )
        if keys:
            rows = rows.filter(key__in=keys)
        versions: dict[str, set[int]] = {}
        for key, version in rows.values_list("key", "version"):
            versions.setdefault(key, set()).add(version)
        return {key: frozenset(numbers) for key, numbers in versions.items()}


class RecordedShelf(ReplayingShelf):
    """A shelf that gives a task what its origin was given, call by call, and records
    nothing.
    """

    __slots__ = ()

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes

    def _record(
        self,
        kind: str,
        call: Json,
        result: Json,
    ) -> bool:
        # As if it had been written, so that the answer just read is the one that
        # counts.
        return True


@dataclass(slots=True)
class OverlaidShelf:
    """Memory as it is now, under what the replay remembers."""

    live: DatabaseShelf
    overlay: Overlay
    refused: CountersignError | None = None
    recorded: Recorded | None = None

    def get(self, namespace: str, key: str) -> Answer:
        own = self.overlay.get(namespace, {}).get(key)
        if own is None:
            return self.live.get(namespace, key)
        trace = _trace(namespace, key, own)
        if trace is None:
            return Answer((), own["version"])
        return Answer((trace,), own["version"])

    def search(
        self,
        text: str,
        namespace: str,
        limit: int,
    ) -> Answer:
        overlaid = self.overlay.get(namespace, {})
        # Each key of the overlay may hide a trace, so as many more are searched for.
        live = self.live.search(text, namespace, limit + len(overlaid))
        traces = []
        for key, entry in overlaid.items():
            trace = _trace(namespace, key, entry)
            if trace:
                traces.append(trace)
        for trace in live.traces:
            if trace.key not in overlaid:
                traces.append(trace)
        return Answer(tuple(ranked(traces, words_in(text), limit)))

    def standing(self, namespace: str, key: str) -> KeyStanding:
        own = self.overlay.get(namespace, {}).get(key)
        if own is None:
            return self.live.standing(namespace, key)
        return KeyStanding(own["version"], own["value"] is not None)

    def journal(self, writes: Sequence[WriteValue]) -> Sequence[WriteValue]:
        return writes

    def moved(
        self,
        call: Sequence[Any],
        result: Sequence[Any],
        origin: OriginLine,
    ) -> str | None:
        """Return the name of the place where this call would now have another result;
        None if it would have the same, apart from what the origin itself has remembered
        since.
        """
        kind, *arguments = call
        if kind == "get":
            answer = self.get(*arguments)
        else:
            answer = self.search(*arguments)
        result_now = [trace.ref for trace in answer.traces]
        place = self.differs(call, result, result_now)
        if place is None:
            return None

        # A difference that only the origin made does not count.
        if kind == "search":
            text, namespace, limit = arguments
            if self._search_is_same(text, namespace, limit, result, origin):
                return None
            return place

        namespace, key = arguments
        if key in self.overlay.get(namespace, {}):
            return place
        own_versions = origin.versions(namespace, key).get(key, frozenset())
        version_then = 0
        if result:
            version_then = result[0][2]
        if _is_own(own_versions, answer.version, version_then):
            return None
        return place

    def _search_is_same(
        self,
        text: str,
        namespace: str,
        limit: int,
        result: Sequence[Any],
        origin: OriginLine,
    ) -> bool:
        """Return whether a search has the same result, apart from traces that only the
        origin has changed since.
        """
        versions_by_origin = origin.versions(namespace)
        for key in self.overlay.get(namespace, {}):
            versions_by_origin.pop(key, None)
        if not versions_by_origin:
            return False
        # Each trace that the origin changed may hide one, so as many more are searched.
        wider = self.search(text, namespace, limit + len(versions_by_origin))
        result_now = [trace.ref for trace in wider.traces]
        own_keys = self._keys_changed_by_origin(
            namespace, versions_by_origin, result, result_now
        )
        if not own_keys:
            return False
        others_then = [ref for ref in result if ref[1] not in own_keys]
        others_now = [ref for ref in result_now if ref[1] not in own_keys]
        # If the result was as long as its limit, there may have been further traces.
        if len(result) == limit:
            others_now = others_now[: len(others_then)]
        call = ["search", text, namespace, limit]
        return self.differs(call, others_then, others_now) is None

    def _keys_changed_by_origin(
        self,
        namespace: str,
        versions_by_origin: Mapping[str, Collection[int]],
        result_then: Sequence[Any],
        result_now: Sequence[Any],
    ) -> set[str]:
        """Return the keys in either result that only the origin has changed since."""
        now = {key: version for _, key, version, _ in result_now}
        then = {key: version for _, key, version, _ in result_then}
        own_keys = set()
        for key, versions in versions_by_origin.items():
            if key not in now and key not in then:
                continue
            version = now.get(key)
            # A search does not find what was forgotten, but that has a version too.
            if version is None:
                version = self.live.standing(namespace, key).version
            if _is_own(versions, version, then.get(key, 0)):
                own_keys.add(key)
        return own_keys

    def differs(
        self,
        call: Sequence[Any],
        result: Sequence[Any],
        result_now: Sequence[Any],
    ) -> str | None:
        """Return the name of the place where this call has another result now than
        then, both as names of traces; None for the same.
        """
        kind, *arguments = call
        names_then = [self._compared(ref) for ref in result]
        names_now = [self._compared(ref) for ref in result_now]
        if names_now != names_then:
            if kind == "get":
                return ".".join(("memory", *arguments))
            return f"memory.{arguments[1]}"
        for ref in result:
            if self._has_other_content(ref):
                return f"memory.{ref[0]}.{ref[1]}"
        return None

    def _compared(self, ref: Sequence[Any]) -> list[Any]:
        """Return the part of a name that is compared. The version of what the replay
        itself remembers is not: it counts on from memory as it is now.
        """
        namespace, key, version, strength = ref
        if key in self.overlay.get(namespace, {}):
            return [namespace, key, strength]
        return [namespace, key, strength, version]

    def _has_other_content(self, ref: Sequence[Any]) -> bool:
        """Return whether the replay has stored other content under this name than its
        origin read; False where memory has moved on, since that content is then
        unknown.
        """
        namespace, key = ref[:2]
        own = self.overlay.get(namespace, {}).get(key)
        if own is None or own["value"] is None:
            return False
        content = own["value"]["content"]
        live = self.live.get(namespace, key)
        for trace in live.traces:
            # A newer version does not reveal what the origin read.
            if trace.ref == [*ref]:
                return bool(trace.content != content)
        return False


def _is_own(
    versions: Collection[int],
    now: int,
    then: int,
) -> bool:
    """Return whether every change of a key since version `then` made one of these
    versions.
    """
    while now > then and now in versions:
        now -= 1
    return now == then


def live_reads(
    origin: OriginLine, tasks: Iterable[Task]
) -> dict[Task, list[tuple[list[Any], list[Any]]]]:
    """Return the calls that these tasks of the origin made in live mode, each with its
    result as names of traces. One query, none for no tasks.
    """
    task_list = list(tasks)
    if not task_list:
        return {}
    of_these = of_tasks(origin.id, origin.line, task_list)
    rows = list(MemoryRecord.objects.filter(of_these, mode=LIVE).order_by("n"))
    sealed_rows.verify_rows(rows, origin.protection)
    reads: dict[Task, list[tuple[list[Any], list[Any]]]] = {}
    for row in rows:
        task = Task(row.node, row.visit, row.index)
        read = (read_value(row, "asked"), read_value(row, "found"))
        reads.setdefault(task, []).append(read)
    return reads


def _trace(
    namespace: str,
    key: str,
    entry: Mapping[str, Any],
) -> Trace | None:
    value = entry["value"]
    if value is None:
        return None
    return Trace(namespace, key, value["content"], value["strength"], entry["version"])


def overlay_after(overlay: Overlay, landings: Sequence[Landing]) -> Overlay:
    """Return the overlay once these have landed on it."""
    after = {namespace: dict(keys) for namespace, keys in overlay.items()}
    for landing in landings:
        keys = after.setdefault(landing.namespace, {})
        entry = keys.get(landing.key)
        if entry:
            version = entry["version"]
        else:
            # The version of memory that the write was made on.
            version = landing.version or 0
        keys[landing.key] = {"value": landing.value, "version": version + 1}
    return after
