"""The contents of a thread's rows: checkpoints and writes of another engine as JSON,
and the document of a row of ours that holds them.

A document has a point for each namespace that is under way, in `open.thread`, and the
readable values of their channels in `scratch`. Pure.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from checkpoints.ledger.checkpoint_rows import Payload
from checkpoints.models.checkpoint import Source
from orchestrator.engine.frozen import frozen
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.values import ops
from orchestrator.engine.values.ops import Op

Document = dict[str, Any]
Version = str | int | float
Typed = tuple[str, bytes]
"""The name of a format, and the bytes of a value in it."""

PART = "thread"
"""The part of `open` that holds the points of a document, by namespace."""
SEPARATOR = "|"
"""The separator between the parts of a namespace."""


@frozen
class ThreadBlob:
    """The value of a channel: its version, its bytes, and a readable form as JSON.
    `hidden`: it is for the engine only, and never shown.
    """

    version: Version
    typed: Typed
    shown: Any = None
    hidden: bool = False


@frozen
class ThreadWrite:
    """A write of a task that its engine has not applied yet. A `position` below 0
    replaces an earlier write of the same task and position; otherwise the first one
    stays.
    """

    task: str
    path: str
    position: int
    channel: str
    typed: Typed
    shown: Any = None


@frozen
class NewThreadState:
    """A checkpoint before it is saved. `parent`: the id of the one before it in its
    namespace, if there is one. `step`: the number of its superstep; None for that of
    the thread. `versions`: those of all channels that have a value; `set_now` names the
    channels that this step set, and `value_of` returns the value of one, None without.
    `nodes_after` returns the nodes that ran since the parent, by its `checkpoint`.
    `source`: what made it, unless it departs from an older one. `engine_run`: the run of
    its engine that made it, if it says so.
    """

    namespace: str
    id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    versions: Mapping[str, Version]
    set_now: frozenset[str]
    value_of: Callable[[str], ThreadBlob | None]
    step: int | None = None
    nodes_after: Callable[[Typed], Sequence[str]] | None = None
    source: Source = Source.MANUAL
    engine_run: str = ""


@frozen
class ThreadState:
    """A checkpoint as it was saved. `row`: the id of our row that holds it. `writes`
    are in the order in which they were made. `engine_run`: the run of its engine that
    made it, as the log has it.
    """

    namespace: str
    id: str
    parent: str | None
    checkpoint: Typed
    metadata: Typed
    blobs: Mapping[str, ThreadBlob]
    row: Any = None
    writes: tuple[ThreadWrite, ...] = ()
    engine_run: str = ""


def point_of(document: Document, namespace: str) -> ThreadState | None:
    """Return the point of a namespace in a document, if it has one."""
    stored = document["open"].get(PART, {}).get(namespace)
    if stored is None:
        return None
    blobs = {}
    for channel, (version, kind, text) in stored["blobs"].items():
        name = shown_name(namespace, channel)
        blobs[channel] = ThreadBlob(
            version,
            (kind, b64decode(text)),
            document["scratch"].get(name),
            hidden=name not in document["scratch"],
        )
    return ThreadState(
        namespace,
        stored["id"],
        stored["parent"],
        _typed(stored["checkpoint"]),
        _typed(stored["metadata"]),
        blobs,
    )


def point_from(draft: NewThreadState, before: Document | None) -> ThreadState:
    """Return the point of a draft. `before` is the document that holds its parent:
    values that were not set since are taken from there.
    """
    parent = point_of(before, draft.namespace) if before else None
    inherited = parent.blobs if parent else {}
    blobs = {}
    for channel, version in draft.versions.items():
        blob = inherited.get(channel)
        is_same = blob is not None and blob.version == version
        if channel in draft.set_now or not is_same:
            blob = draft.value_of(channel)
        if blob is not None:
            blobs[channel] = blob
    return ThreadState(
        draft.namespace,
        draft.id,
        draft.parent,
        draft.checkpoint,
        draft.metadata,
        blobs,
    )


def document_after(before: Document, point: ThreadState, seq: int) -> Payload:
    """Return the payload of the row `seq` that holds a point. It replaces the point of
    its namespace and of nested ones: nested work is over when its caller saves.
    """
    points = {}
    for namespace, stored in before["open"].get(PART, {}).items():
        if not _is_below(namespace, point.namespace):
            points[namespace] = stored
    points[point.namespace] = _stored(point)

    scratch = {}
    for namespace, stored in points.items():
        for channel in stored["blobs"]:
            name = shown_name(namespace, channel)
            if namespace != point.namespace and name in before["scratch"]:
                scratch[name] = before["scratch"][name]
    for channel, blob in point.blobs.items():
        if not blob.hidden:
            scratch[shown_name(point.namespace, channel)] = blob.shown
    return _payload(before, scratch, points, seq)


def payload_with(document: Document, staying: Collection[tuple[str, str]]) -> Payload:
    """Return a document as a payload that holds only the points whose (namespace, id)
    is in `staying`.
    """
    points = {}
    shown = set()
    for namespace, stored in document["open"].get(PART, {}).items():
        if (namespace, stored["id"]) in staying:
            points[namespace] = stored
            shown |= {shown_name(namespace, channel) for channel in stored["blobs"]}
    scratch = {
        name: value for name, value in document["scratch"].items() if name in shown
    }
    versions = {name: document["versions"][name] for name in scratch}
    return Payload(
        {"scratch": scratch, "artifacts": {}},
        {},
        document["frontier"],
        versions,
        {PART: points} if points else {},
    )


def empty_payload() -> Payload:
    """Return the payload of the first row of a thread: the state before any work."""
    return Payload({"scratch": {}, "artifacts": {}}, {}, Frontier().to_json())


def ops_between(before: Document, after: Payload) -> dict[str, Op]:
    """Return the ops on the channels that differ, by name."""
    changed = {}
    for name, value in after.state["scratch"].items():
        if name not in before["scratch"]:
            changed[name] = ops.put(value)
            continue
        op = ops.between(before["scratch"][name], value)
        if op is not None:
            changed[name] = op
    return changed


def writes_to_json(writes: list[ThreadWrite]) -> list[dict[str, Any]]:
    """Return writes as a line of the log holds them."""
    values = []
    for write in writes:
        values.append(
            {
                "by_task": write.task,
                "by_path": write.path,
                "position": write.position,
                "to": write.channel,
                "bytes": _json(write.typed),
                "shown": write.shown,
            }
        )
    return values


def write_of(value: Mapping[str, Any]) -> ThreadWrite:
    """Return a write that a line of the log holds."""
    return ThreadWrite(
        value["by_task"],
        value["by_path"],
        value["position"],
        value["to"],
        _typed(value["bytes"]),
        value["shown"],
    )


def shown_name(namespace: str, channel: str) -> str:
    """Return the name under which the value of a channel is shown."""
    return f"{namespace}:{channel}" if namespace else channel


def _payload(
    before: Document, scratch: dict[str, Any], points: dict[str, Any], seq: int
) -> Payload:
    versions = {}
    for name, value in scratch.items():
        versions[name] = seq
        if name in before["scratch"] and ops.same(before["scratch"][name], value):
            versions[name] = before["versions"].get(name, seq)
    return Payload(
        {"scratch": scratch, "artifacts": {}},
        {},
        before["frontier"],
        versions,
        {PART: points},
    )


def _stored(point: ThreadState) -> dict[str, Any]:
    blobs = {}
    for channel, blob in point.blobs.items():
        blobs[channel] = [blob.version, *_json(blob.typed)]
    return {
        "id": point.id,
        "parent": point.parent,
        "checkpoint": _json(point.checkpoint),
        "metadata": _json(point.metadata),
        "blobs": blobs,
    }


def _is_below(namespace: str, other: str) -> bool:
    """Return whether a namespace is nested in another one."""
    if namespace == other:
        return False
    return not other or namespace.startswith(f"{other}{SEPARATOR}")


def _json(typed: Typed) -> list[str]:
    kind, data = typed
    return [kind, b64encode(data).decode("ascii")]


def _typed(stored: list[str]) -> Typed:
    kind, text = stored
    return kind, b64decode(text)
