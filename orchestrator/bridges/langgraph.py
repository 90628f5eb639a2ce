"""A checkpointer for LangGraph: `graph.compile(checkpointer=CountersignSaver())`.

Each thread is a run here, with its timeline, seals, retention and erasure; LangGraph
drives it, no worker does. Needs the extra `langgraph`. docs/langgraph.md says what
differs from LangGraph's own checkpointers.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connection
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from pydantic_core import PydanticSerializationError, to_jsonable_python

from checkpoints import retention, threads
from checkpoints.conf import conf
from checkpoints.core.masks import mask_json
from checkpoints.db.caller_transaction import refuse_open_transaction
from checkpoints.models import Run
from checkpoints.models.checkpoint import Source
from checkpoints.threads import (
    NewThreadState,
    ThreadBlob,
    ThreadOrigin,
    ThreadState,
    ThreadWrite,
    Typed,
)
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from orchestrator.engine.values import canonical

T = TypeVar("T")

INTERNAL = ("__", "branch:")
"""The beginnings of the names of channels that LangGraph keeps for itself."""
DELETE = "delete"
STRATEGIES = ("keep_latest", DELETE)
"""What may be asked of `prune`."""
_SOURCES = {"input": Source.INPUT, "loop": Source.SUPERSTEP}
"""Why a row was made, by what LangGraph says; all else is a change from outside."""
_ENGINE = "__"
"""The beginning of names among those of nodes that have seen a version, which are no
nodes: the input, the start, an interrupt.
"""


class CountersignSaver(BaseCheckpointSaver[str]):
    """Saves the checkpoints of LangGraph as runs of a graph called `graph`.

    `encrypted`: the values of threads that begin now are encrypted. `payloads`: the
    backend that keeps their bytes, by its name in the settings. `by`: the person who
    stands behind threads that begin now, and whose name is in their log; None is the
    system. Nobody is asked for a right: it is code of the server.
    """

    def __init__(
        self,
        *,
        graph: str = "langgraph",
        encrypted: bool = False,
        payloads: str | None = None,
        by: Any = None,
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self._origin = ThreadOrigin(graph, encrypted, payloads, by)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint of a thread: the one that is named, or the newest of its
        namespace; None if there is none. Raises `TamperedRow`, `WrongKey`, `Erased`,
        `OpenTransaction`.
        """
        return _alone("get_tuple", lambda: self._get_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the newest first: of one thread, or of all of them, the
        threads one after another. Raises as `get_tuple` does.
        """
        tuples = self._list(config, filter or {}, before)
        count = 0
        while limit is None or count < limit:
            next_tuple = _with_connection(lambda: next(tuples, None))
            if next_tuple is None:
                return
            yield next_tuple
            count += 1

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, and return the config that names it. Raises `WrongStatus`
        for a thread that was ended or imported, `KeyConflict` for one of another saver,
        `Erased`, `SaveFailed`, `InvalidValue`, `PayloadTooLarge`, `OpenTransaction`.
        """
        names = config["configurable"]
        namespace = names.get("checkpoint_ns", "")
        draft = self._draft(config, checkpoint, metadata, new_versions)
        save = partial(threads.save_point, names["thread_id"], draft, self._origin)
        _alone("put", save)
        return _config(names["thread_id"], namespace, checkpoint["id"])

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save writes of a task at a checkpoint. Raises as `put` does."""
        names = config["configurable"]
        new_writes = []
        for position, (channel, value) in enumerate(writes):
            new_writes.append(
                ThreadWrite(
                    task_id,
                    task_path,
                    WRITES_IDX_MAP.get(channel, position),
                    channel,
                    self._typed(channel, value),
                    readable(value),
                )
            )
        save = partial(
            threads.save_writes,
            names["thread_id"],
            names.get("checkpoint_ns", ""),
            names["checkpoint_id"],
            new_writes,
            self._origin,
        )
        _alone("put_writes", save)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread with all that hangs on it; the audit log says that there was
        one. Does nothing if there is none. Raises `WrongStatus` where a hold, a pin or a
        fork keeps it, `TamperedRow`, `WrongKey`, `Forbidden`, `KeyConflict`.
        """

        def delete() -> None:
            run = threads.find_thread(thread_id)
            if run is not None:
                threads.require_origin(run, self._origin)
                retention.remove_thread(run, by=self._origin.by)

        _alone("delete_thread", delete)

    def prune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest"
    ) -> None:
        """Remove all checkpoints of these threads but the newest of each namespace, with
        their writes; with the strategy `delete` the threads themselves. What is pinned
        stays, and what the values of a `DeltaChannel` are rebuilt from. Does nothing for
        a thread that is not there.

        Raises `InvalidValue` for another strategy, `WrongStatus` where a hold keeps a
        thread, `TamperedRow`, `WrongKey`, `Erased`, `Forbidden`, `KeyConflict`.
        """
        if strategy not in STRATEGIES:
            raise InvalidValue(
                f"a strategy is one of {', '.join(STRATEGIES)}", path="strategy"
            )
        if strategy == DELETE:
            for thread_id in thread_ids:
                self.delete_thread(thread_id)
            return

        def prune() -> None:
            runs = []
            for thread_id in thread_ids:
                run = threads.find_thread(thread_id)
                if run is not None:
                    threads.require_origin(run, self._origin)
                    runs.append(run)
            retention.prune_threads(runs, needs=self._needs, by=self._origin.by)

        _alone("prune", prune)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs of LangGraph made, by the `run_id` of
        their metadata, with their writes, from all threads of this saver's graph. What
        is pinned stays, and what the values of a `DeltaChannel` are rebuilt from. Raises
        as `prune` does, and `WrongStatus` for the newest checkpoint of a thread that was
        ended.
        """
        remove = partial(
            retention.remove_made_by,
            {threads.name_of_engine_run(run_id) for run_id in run_ids} - {""},
            graph=self._origin.graph,
            needs=self._needs,
            by=self._origin.by,
        )
        _alone("delete_for_runs", remove)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to a new one. Does nothing if
        there is no such thread. Raises as `put` does.
        """

        def copy() -> None:
            source = threads.find_thread(source_thread_id)
            if source is not None:
                threads.copy_thread(source, target_thread_id, self._origin)

        _alone("copy_thread", copy)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await _in_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        tuples = self.list(config, filter=filter, before=before, limit=limit)
        while True:
            next_tuple = await _in_thread(next, tuples, None)
            if next_tuple is None:
                return
            yield next_tuple

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await _in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await _in_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await _in_thread(self.delete_thread, thread_id)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest"
    ) -> None:
        await _in_thread(partial(self.prune, strategy=strategy), thread_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await _in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await _in_thread(self.copy_thread, source_thread_id, target_thread_id)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return a version that is higher than the current one, and unlike that of any
        other branch.
        """
        number = int(str(current).split(".")[0]) + 1 if current else 1
        # Only unlike others: nothing is kept secret by it.
        return f"{number:032}.{random.random():016}"  # noqa: S311

    def _get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        names = config["configurable"]
        run = threads.find_thread(names["thread_id"])
        if run is None:
            return None
        namespace = names.get("checkpoint_ns", "")
        id_ = get_checkpoint_id(config)
        if id_:
            point = threads.named_point(run, namespace, id_)
        else:
            point = threads.latest_point(run, namespace)
        if point is None:
            return None
        return self._tuple(names["thread_id"], point)

    def _list(
        self,
        config: RunnableConfig | None,
        metadata: Mapping[str, Any],
        before: RunnableConfig | None,
    ) -> Iterator[CheckpointTuple]:
        before_id = get_checkpoint_id(before) if before else None
        names = config["configurable"] if config else {}
        for thread, run in _threads(names.get("thread_id")):
            points = threads.all_points(
                run,
                names.get("checkpoint_ns"),
                id_=names.get("checkpoint_id") or "",
                before=before_id or "",
            )
            for point in points:
                stored = self._tuple(thread, point)
                if _agrees(stored.metadata, metadata):
                    yield stored

    def _draft(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> NewThreadState:
        names = config["configurable"]
        namespace = names.get("checkpoint_ns", "")
        all_metadata = get_checkpoint_metadata(config, metadata)
        without_values = {**checkpoint, "channel_values": {}}
        step = metadata.get("step")
        superstep = None
        if not namespace and isinstance(step, int):
            # LangGraph counts from -1, the input.
            superstep = max(step + 1, 0)
        return NewThreadState(
            namespace,
            checkpoint["id"],
            names.get("checkpoint_id"),
            self.serde.dumps_typed(without_values),
            self.serde.dumps_typed(all_metadata),
            checkpoint["channel_versions"],
            frozenset(new_versions),
            partial(self._blob, checkpoint),
            step=superstep,
            nodes_after=partial(self._nodes_after, checkpoint),
            source=_SOURCES.get(metadata.get("source", ""), Source.MANUAL),
            engine_run=threads.name_of_engine_run(all_metadata.get("run_id")),
        )

    def _needs(self, point: ThreadState) -> frozenset[str]:
        """Return the channels of a checkpoint whose values LangGraph rebuilds from the
        writes at earlier ones.
        """
        metadata = self.serde.loads_typed(point.metadata)
        counters = metadata.get("counters_since_delta_snapshot") or {}
        return frozenset(counters) - point.blobs.keys()

    def _blob(self, checkpoint: Checkpoint, channel: str) -> ThreadBlob | None:
        """Return the value of a channel at a checkpoint; None if it has none."""
        values = checkpoint["channel_values"]
        if channel not in values:
            return None
        is_internal = channel.startswith(INTERNAL)
        return ThreadBlob(
            checkpoint["channel_versions"][channel],
            self._typed(channel, values[channel]),
            None if is_internal else readable(values[channel]),
            hidden=is_internal,
        )

    def _typed(self, channel: str, value: Any) -> Typed:
        """Return the bytes of a value. Raises `PayloadTooLarge`."""
        kind, data = self.serde.dumps_typed(value)
        limit = conf().max_value_bytes
        if len(data) > limit:
            raise PayloadTooLarge(
                f"the value of channel {channel} has {len(data)} bytes,"
                f" more than {limit}",
                channel=channel,
                size=len(data),
                limit=limit,
            )
        return kind, data

    def _nodes_after(self, checkpoint: Checkpoint, before: Typed) -> Sequence[str]:
        """Return the nodes that have seen other channels than at the one before."""
        seen_before = self.serde.loads_typed(before)["versions_seen"]
        nodes = []
        for node, seen in checkpoint["versions_seen"].items():
            if not node.startswith(_ENGINE) and seen != seen_before.get(node):
                nodes.append(node)
        return nodes

    def _tuple(self, thread: str, point: ThreadState) -> CheckpointTuple:
        values = {}
        for channel, blob in point.blobs.items():
            values[channel] = self.serde.loads_typed(blob.typed)
        checkpoint: Any = self.serde.loads_typed(point.checkpoint)
        checkpoint["channel_values"] = values
        parent = None
        if point.parent:
            parent = _config(thread, point.namespace, point.parent)
        writes = []
        for write in point.writes:
            value = self.serde.loads_typed(write.typed)
            writes.append((write.task, write.channel, value))
        return CheckpointTuple(
            _config(thread, point.namespace, point.id),
            checkpoint,
            self.serde.loads_typed(point.metadata),
            parent,
            writes,
        )


def readable(value: Any) -> Any:
    """Return a form of a value that pages can show, as JSON: objects as their fields, as
    far as pydantic knows them; for all else the name of its type. Secrets of the
    settings are masked.
    """
    try:
        jsonable = to_jsonable_python(value, fallback=_type_of, bytes_mode="base64")
        return mask_json(canonical.normalised(jsonable), conf().secrets)
    # A value may refer to itself, or hold what canonical JSON does not, such as NaN.
    except (InvalidValue, PydanticSerializationError, ValueError, RecursionError):
        return _type_of(value)


def _type_of(value: Any) -> dict[str, str]:
    kind = type(value)
    return {"type": f"{kind.__module__}.{kind.__qualname__}"}


def _config(thread: str, namespace: str, id_: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": id_,
        }
    }


def _threads(thread: str | None) -> Iterator[tuple[str, Run]]:
    """Yield the thread of this name, if there is one; without a name all threads, the
    newest first.
    """
    if thread is not None:
        run = threads.find_thread(thread)
        if run is not None:
            yield thread, run
        return
    yield from threads.all_threads()


def _agrees(metadata: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == value for name, value in expected.items())


def _alone(verb: str, act: Callable[[], T]) -> T:
    """Do an act that no transaction of the caller may enclose, as `_with_connection`
    does. Raises `OpenTransaction`.
    """

    def refuse_or_act() -> T:
        # Here, because looking for a transaction opens a connection.
        refuse_open_transaction(verb)
        return act()

    return _with_connection(refuse_or_act)


def _with_connection(act: Callable[[], T]) -> T:
    """Do an act, and close the connection of this thread if the act opened it."""
    was_open = connection.connection is not None
    try:
        return act()
    finally:
        # LangGraph calls from threads that end with each of its runs, and nobody closes
        # what they leave open.
        if not was_open and not connection.in_atomic_block:
            connection.close()


async def _in_thread(act: Callable[..., T], *args: Any) -> T:
    return await sync_to_async(act, thread_sensitive=False)(*args)
