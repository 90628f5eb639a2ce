"""A store in this process's memory, with the verbs of `CheckpointStore` and without
Django: for tests and notebooks.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from checkpoints.core import records
from checkpoints.core.alias import Alias, parsed
from checkpoints.core.ids import uuid7
from checkpoints.core.records import About, Snapshot, State, Stored
from orchestrator.engine import registry
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.travel.patch import patched
from orchestrator.engine.values import canonical


class MemoryStore:
    """Keeps checkpoints until the process ends. Threads may share one: entries are read
    and changed under its lock only.
    """

    def __init__(self) -> None:
        self._entries: dict[UUID, tuple[Stored, bytes]] = {}
        """Metadata and canonical state of each checkpoint."""
        # Reentrant, since `save` looks for the newest checkpoint while it holds the
        # lock.
        self._lock = threading.RLock()

    def save(
        self,
        run: UUID | str,
        state: Mapping[str, Any],
        *,
        graph: str = "",
        version: str = "",
        fingerprint: str = "",
        node: str | Sequence[str] = "",
        superstep: int | None = None,
        id: UUID | str | None = None,
    ) -> Stored:
        """Keep a state as the newest checkpoint of a run; again with the same `id`, it
        is kept once. Raises `InvalidValue` naming what cannot be kept, `KeyConflict` if
        the id is another checkpoint's.
        """
        checked = records.checked_state(state)
        run_id = records.run_id(run)
        own_id = records.checkpoint_id(id)
        about = About(graph, version, fingerprint, node, superstep)

        # Two threads must not get the same number in a run.
        with self._lock:
            if own_id in self._entries:
                saved, _ = self._entries[own_id]
                return records.saved_before(self._loaded(saved), run_id, checked)

            seq = 0
            next_superstep = 0
            source = "input"
            parent = None
            latest = self.latest(run_id)
            if latest is not None:
                seq = latest.seq + 1
                next_superstep = latest.superstep + 1
                source = "manual"
                parent = latest.id
            if superstep is not None:
                next_superstep = superstep

            return self._add(
                checked,
                id=own_id,
                run=run_id,
                seq=seq,
                superstep=next_superstep,
                source=source,
                parent=parent,
                graph=graph,
                version=version,
                fingerprint=fingerprint,
                nodes=about.nodes,
            )

    def get(self, checkpoint: UUID | str) -> Snapshot:
        """Return a checkpoint by id or alias. Raises `UnknownThing`."""
        with self._lock:
            stored = self._find(checkpoint)
            if stored is None:
                raise records.unknown(checkpoint)
            return self._loaded(stored)

    def load(
        self,
        run: UUID | str,
        node: str | None = None,
        superstep: int | None = None,
    ) -> Snapshot:
        """Return the newest checkpoint of a run: of those that a node made, or of a
        superstep. Raises `UnknownThing`.
        """
        with self._lock:
            for stored in self._newest_first(run):
                is_of_node = node is None or node in stored.nodes
                if is_of_node and superstep in (None, stored.superstep):
                    return self._loaded(stored)
        raise UnknownThing(
            f"run {run} has no such checkpoint",
            run=str(run),
            node=node,
            superstep=superstep,
        )

    def latest(self, run: UUID | str) -> Stored | None:
        """Return the newest checkpoint of a run, without its state; None if it has
        none.
        """
        return next(iter(self._newest_first(run)), None)

    def list(
        self,
        graph: str | None = None,
        run: UUID | str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
        after: UUID | str | None = None,
        ascending: bool = False,
    ) -> Sequence[Stored]:
        """Return the metadata of up to `limit` checkpoints, newest first, or oldest
        first (`ascending`); with `before` or `after` only those that come before or
        after that checkpoint.

        Raises `InvalidValue` for an invalid limit, `UnknownThing` for a `before` or
        `after` that is not there.
        """
        checked_limit = records.checked_limit(limit)
        order: Callable[[Stored], Any]
        if run is None:
            # Ids sort by time across runs.
            order = attrgetter("id")
            candidates: Sequence[Stored] = sorted(self._all(), key=order, reverse=True)
        else:
            order = attrgetter("seq")
            candidates = self._newest_first(run)

        if before is not None:
            end = order(self.get(before).meta)
            candidates = [stored for stored in candidates if order(stored) < end]
        if after is not None:
            start = order(self.get(after).meta)
            candidates = [stored for stored in candidates if order(stored) > start]
        if graph is not None:
            candidates = _of_graph(candidates, graph)
        if ascending:
            candidates = candidates[::-1]
        return candidates[:checked_limit]

    def delete(self, checkpoint: UUID | str) -> None:
        """Forget a checkpoint. One that is not there is no error."""
        with self._lock:
            stored = self._find(checkpoint)
            if stored is not None:
                del self._entries[stored.id]

    def clear(self, run: UUID | str) -> int:
        """Forget all checkpoints of a run, and return how many there were."""
        with self._lock:
            checkpoints = self._newest_first(run)
            for stored in checkpoints:
                del self._entries[stored.id]
        return len(checkpoints)

    def fork(
        self, checkpoint: UUID | str, patch: Mapping[str, Any] | None = None
    ) -> Stored:
        """Begin a new run with this checkpoint's state, patched: {partition: merge
        patch or operations}.

        Raises `UnknownThing`, and `InvalidValue` naming what does not fit the graph, if
        that is registered here.
        """
        origin = self.get(checkpoint)
        meta = origin.meta
        state = origin.state
        if patch:
            graph = registry.find_graph(meta.fingerprint)
            state = {**state, **patched(state, patch, graph=graph)}
        return self._add(
            state,
            run=uuid7(),
            seq=0,
            superstep=meta.superstep,
            source="fork",
            parent=meta.id,
            graph=meta.graph,
            version=meta.version,
            fingerprint=meta.fingerprint,
            nodes=(),
        )

    def _add(self, state: State, *, id: UUID | None = None, **meta: Any) -> Stored:
        data = canonical.dumps(state)
        stored = Stored(
            id=id or uuid7(),
            line=1,
            created_at=datetime.now(UTC),
            stored_size=len(data),
            state_size=len(data),
            **meta,
        )
        # Another thread must not walk the entries in the meantime.
        with self._lock:
            self._entries[stored.id] = (stored, data)
        return stored

    def _loaded(self, stored: Stored) -> Snapshot:
        _, data = self._entries[stored.id]
        return Snapshot(stored, canonical.loads(data))

    def _all(self) -> Sequence[Stored]:
        # Another thread must not save while the entries are walked.
        with self._lock:
            return [stored for stored, _ in self._entries.values()]

    def _newest_first(self, run: UUID | str) -> Sequence[Stored]:
        run_id = records.run_id(run)
        own = [stored for stored in self._all() if stored.run == run_id]
        return sorted(own, key=attrgetter("seq"), reverse=True)

    def _find(self, checkpoint: UUID | str) -> Stored | None:
        alias = parsed(str(checkpoint))
        if alias is None:
            return self._find_by_id(str(checkpoint))
        for stored in self._newest_first(alias.key):
            if _is_at(stored, alias):
                # The newest one decides, even if it is of another line.
                if alias.line in (None, stored.line):
                    return stored
                return None
        return None

    def _find_by_id(self, text: str) -> Stored | None:
        try:
            id = UUID(text)
        except ValueError:
            return None
        entry = self._entries.get(id)
        if entry is None:
            return None
        stored, _ = entry
        return stored


def _of_graph(checkpoints: Sequence[Stored], graph: str) -> Sequence[Stored]:
    return [stored for stored in checkpoints if stored.graph == graph]


def _is_at(stored: Stored, alias: Alias) -> bool:
    """Return whether a checkpoint has the number or the superstep of an alias."""
    if alias.seq is None:
        return stored.superstep == alias.superstep
    return stored.seq == alias.seq
