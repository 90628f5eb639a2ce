"""A store in this process's memory, with the verbs of `CheckpointStore` and without Django: for tests and notebooks."""

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from checkpoints.core import records
from checkpoints.core.alias import parsed
from checkpoints.core.ids import uuid7
from checkpoints.core.records import About, Snapshot, State, Stored
from orchestrator.engine import canonical, registry
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.patch import patched


class MemoryStore:
    """Keeps checkpoints until the process ends. Threads may share one."""

    def __init__(self) -> None:
        self._kept: dict[UUID, tuple[Stored, bytes]] = {}
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
        """Keep a state as the newest checkpoint of a run; again with the same `id`, it is kept once. Raises
        `InvalidValue` naming what cannot be kept, `KeyConflict` where the id is another checkpoint's.
        """
        checked, of, own = records.checked_state(state), records.run_id(run), records.checkpoint_id(id)
        about = About(graph, version, fingerprint, node, superstep)
        with self._lock:
            if own in self._kept:
                return records.saved_before(self._loaded(self._kept[own][0]), of, checked)
            before = self.latest(of)
            seq, number = (before.seq + 1, before.superstep + 1) if before else (0, 0)
            return self._add(
                checked,
                id=own,
                run=of,
                seq=seq,
                superstep=number if superstep is None else superstep,
                source="manual" if before else "input",
                parent=before.id if before else None,
                graph=graph,
                version=version,
                fingerprint=fingerprint,
                nodes=about.nodes,
            )

    def get(self, checkpoint: UUID | str) -> Snapshot:
        """A checkpoint by id or alias. Raises `UnknownThing`."""
        found = self._find(checkpoint)
        if found is None:
            raise records.unknown(checkpoint)
        return self._loaded(found)

    def load(self, run: UUID | str, node: str | None = None, superstep: int | None = None) -> Snapshot:
        """The newest checkpoint of a run: of those that a node made, or of a superstep. Raises `UnknownThing`."""
        for one in self._of(run):
            if (node is None or node in one.nodes) and superstep in (None, one.superstep):
                return self._loaded(one)
        raise UnknownThing(f"run {run} has no such checkpoint", run=str(run), node=node, superstep=superstep)

    def latest(self, run: UUID | str) -> Stored | None:
        """The newest checkpoint of a run, without its state; None where it has none."""
        return next(iter(self._of(run)), None)

    def list(
        self,
        graph: str | None = None,
        run: UUID | str | None = None,
        limit: int = 50,
        before: UUID | str | None = None,
        after: UUID | str | None = None,
        ascending: bool = False,
    ) -> Sequence[Stored]:
        """Metadata of up to `limit` checkpoints, newest first, or oldest first (`ascending`); those that come before
        another one, or after one, where it is named.

        Raises `InvalidValue` for a limit that is none, `UnknownThing` for a `before` or `after` that is not there.
        """
        most = records.checked_limit(limit)
        found = self._of(run) if run is not None else sorted(self._all(), key=lambda one: one.id, reverse=True)
        place: Callable[[Stored], Any] = attrgetter("seq" if run is not None else "id")
        if before is not None:
            last = place(self.get(before).meta)
            found = [one for one in found if place(one) < last]
        if after is not None:
            first = place(self.get(after).meta)
            found = [one for one in found if place(one) > first]
        wanted = [one for one in found if graph in (None, one.graph)]
        return (wanted[::-1] if ascending else wanted)[:most]

    def delete(self, checkpoint: UUID | str) -> None:
        """Forget a checkpoint. One that is not there is no error."""
        found = self._find(checkpoint)
        if found is not None:
            self._kept.pop(found.id, None)

    def clear(self, run: UUID | str) -> int:
        """Forget all checkpoints of a run. Gives how many there were."""
        with self._lock:
            gone = self._of(run)
            for one in gone:
                del self._kept[one.id]
        return len(gone)

    def fork(self, checkpoint: UUID | str, patch: Mapping[str, Any] | None = None) -> Stored:
        """A new run that begins with this checkpoint's state, patched: {partition: merge patch or operations}.

        Raises `UnknownThing`, `InvalidValue` naming what does not fit the graph, where that is registered here.
        """
        origin = self.get(checkpoint)
        meta, state = origin.meta, origin.state
        if patch:
            state = {**state, **patched(state, patch, graph=registry.find_graph(meta.fingerprint))}
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
        data, now = canonical.dumps(state), datetime.now(UTC)
        one = Stored(id=id or uuid7(), line=1, created_at=now, stored_size=len(data), state_size=len(data), **meta)
        self._kept[one.id] = one, data
        return one

    def _loaded(self, one: Stored) -> Snapshot:
        return Snapshot(one, canonical.loads(self._kept[one.id][1]))

    def _all(self) -> Sequence[Stored]:
        with self._lock:
            return [one for one, _ in self._kept.values()]

    def _of(self, run: UUID | str) -> Sequence[Stored]:
        id = records.run_id(run)
        return sorted((one for one in self._all() if one.run == id), key=lambda one: one.seq, reverse=True)

    def _find(self, checkpoint: UUID | str) -> Stored | None:
        alias = parsed(str(checkpoint))
        if alias is None:
            return self._by_id(str(checkpoint))
        for one in self._of(alias.key):
            if one.seq == alias.seq or (alias.seq is None and one.superstep == alias.superstep):
                return one if alias.line in (None, one.line) else None
        return None

    def _by_id(self, text: str) -> Stored | None:
        try:
            return self._kept.get(UUID(text), (None,))[0]
        except ValueError:
            return None
