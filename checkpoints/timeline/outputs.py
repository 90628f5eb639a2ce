"""The output of each task of a superstep: from the journal, from what a gate held, or
from the stored change.

Nothing is stored twice for it. If several tasks without a record ran together, the
change shows only their combined result.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from checkpoints.core.state_paths import STATE, StatePath, narrowed, narrowed_op
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, PendingWrite, TaskResult
from checkpoints.models.checkpoint import Source
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.states import setting_entries, snapshot_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical, ops
from orchestrator.engine.values.ops import Op

RECORDED = "recorded"
"""The journal has the output."""
HELD = "held"
"""A gate held the output."""
KEPT = "kept"
"""An open superstep kept the output."""
CHANGE = "change"
"""The output is the change of the checkpoint, which one task made."""
TOGETHER = "together"
"""The output is the change of the checkpoint, which several tasks made together."""

Visit = tuple[str, int]
OutputsByVisit = dict[Visit, list[tuple[int, Any]]]
"""Each visit's outputs, with the index of the task."""


@frozen
class NodeOutput:
    """The output of a task. `index` is None if the change covers a whole visit.

    `output` is {writes: [{channel, value, ...}], goto, sends} from the journal or from
    an open superstep; the writes alone where a gate held them; and {changes: {channel:
    op}} from a change, with the ops of `orchestrator.engine.values.ops`: the items of
    an append, the resulting value of a set.
    """

    node: str
    visit: int
    index: int | None
    effect: str
    source: str
    output: dict[str, Any]


def node_outputs(checkpoint: Checkpoint) -> list[NodeOutput]:
    """Return what the tasks of this checkpoint's superstep returned, in declared order;
    for a settlement, what it applied.

    Three queries at most. Raises `TamperedRow`, `WrongKey`.
    """
    if checkpoint.source == Source.FAILURE:
        return _outputs_of_open_superstep(checkpoint)
    visits = _visits_of_superstep(checkpoint)
    recorded = _recorded_outputs(checkpoint, visits)
    held = _held_outputs(checkpoint, visits & _held_visits(checkpoint))

    # Only the change can explain the entries that the journal does not have.
    unrecorded = _entries_without_record(checkpoint, recorded)
    changes = {}
    if unrecorded:
        changes = _own_changes(checkpoint, except_for=_written_channels(recorded))
    is_one_task = len(unrecorded) == 1 and unrecorded[0].get("tasks", 1) == 1

    outputs: list[NodeOutput] = []
    for entry in checkpoint.nodes:
        for index, output in recorded.get(_visit_of(entry), ()):
            outputs.append(_node_output(entry, RECORDED, index, output))
        for index, output in held.get(_visit_of(entry), ()):
            outputs.append(_node_output(entry, HELD, index, output))
        if entry not in unrecorded:
            continue
        shown = {"changes": changes}
        if is_one_task:
            outputs.append(_node_output(entry, CHANGE, 0, shown))
        else:
            outputs.append(_node_output(entry, TOGETHER, None, shown))
    return outputs


def _outputs_of_open_superstep(checkpoint: Checkpoint) -> list[NodeOutput]:
    """Return the outputs kept by a superstep that could not end."""
    finished = snapshot_of(checkpoint)["open"].get("results", {})
    outputs: list[NodeOutput] = []
    for entry in checkpoint.nodes:
        outputs += _kept_outputs(entry, finished)
    return outputs


def _kept_outputs(
    entry: dict[str, Any],
    finished: dict[str, Any],
) -> Iterator[NodeOutput]:
    for task, result in finished.items():
        node, visit, index = task.rsplit(":", 2)
        is_of_entry = (node, int(visit)) == _visit_of(entry)
        if is_of_entry and result["output"] is not None:
            yield _node_output(entry, KEPT, int(index), result["output"])


def _visits_of_superstep(checkpoint: Checkpoint) -> set[Visit]:
    """Return the visits that ran here: none if no superstep made the checkpoint."""
    if checkpoint.source != Source.SUPERSTEP:
        return set()
    return {_visit_of(entry) for entry in checkpoint.nodes}


def _held_visits(checkpoint: Checkpoint) -> set[Visit]:
    """Return the visits whose writes a gate held."""
    visits = set()
    for entry in checkpoint.nodes:
        if entry.get("outcome") == "held":
            visits.add(_visit_of(entry))
    return visits


def _entries_without_record(
    checkpoint: Checkpoint,
    recorded: OutputsByVisit,
) -> list[dict[str, Any]]:
    """Return the entries that may have set something and have no record of it."""
    return [
        entry
        for entry in setting_entries(checkpoint.nodes)
        if _visit_of(entry) not in recorded
    ]


def _written_channels(recorded: OutputsByVisit) -> set[str]:
    channels: set[str] = set()
    for outputs in recorded.values():
        for _, output in outputs:
            channels.update(write["channel"] for write in output["writes"])
    return channels


def _visit_of(entry: dict[str, Any]) -> Visit:
    return entry["node"], entry.get("visit", 1)


def _node_output(
    entry: dict[str, Any],
    source: str,
    index: int | None,
    output: dict[str, Any],
) -> NodeOutput:
    node, visit = _visit_of(entry)
    return NodeOutput(node, visit, index, entry.get("effect", ""), source, output)


def _recorded_outputs(
    checkpoint: Checkpoint,
    visits: set[Visit],
) -> OutputsByVisit:
    """Return the outputs that the journal has of these visits."""
    outputs = defaultdict(list)
    results = TaskResult.objects.filter(outcome=Outcome.DONE)
    for row in _verified_rows_of_visits(results, checkpoint, visits):
        output = {"writes": (), **(read_value(row, "output") or {})}
        outputs[row.node, row.visit].append((row.index, output))
    return outputs


def _held_outputs(
    checkpoint: Checkpoint,
    visits: set[Visit],
) -> OutputsByVisit:
    """Return the proposals of these visits as the nodes made them."""
    writes: dict[tuple[Visit, int], list[dict[str, Any]]] = defaultdict(list)
    # Later revisions are the work of people, or of a base that moved.
    rows = PendingWrite.objects.filter(revision=1).order_by("index", "position")
    for row in _verified_rows_of_visits(rows, checkpoint, visits):
        proposal = {
            "channel": row.channel,
            "value": read_value(row, "value"),
            "label": row.label,
        }
        writes[(row.node, row.visit), row.index].append(proposal)

    outputs = defaultdict(list)
    for (visit, index), proposals in writes.items():
        outputs[visit].append((index, {"writes": proposals}))
    return outputs


def _verified_rows_of_visits(
    rows: Any,
    checkpoint: Checkpoint,
    visits: set[Visit],
) -> Sequence[Any]:
    """Return the rows among these that belong to the visits. One query, none for no
    visits. Raises `TamperedRow`, `WrongKey`.
    """
    if not visits:
        return []
    candidates = rows.filter(
        run=checkpoint.run_id,
        line=checkpoint.line,
        node__in={node for node, _ in visits},
        visit__in={number for _, number in visits},
    )
    # The filter also matches one node with the visit number of another.
    rows_of_visits = [row for row in candidates if (row.node, row.visit) in visits]
    sealed_rows.verify_rows(rows_of_visits, protection_of(checkpoint.run))
    return rows_of_visits


def _own_changes(
    checkpoint: Checkpoint,
    *,
    except_for: set[str],
) -> dict[str, Op]:
    """Return what the superstep itself did to its channels, except for those that the
    journal explains.
    """
    # Callers mostly have the row without its payload.
    row = Checkpoint.objects.get(id=checkpoint.id)
    protection = protection_of(checkpoint.run)
    sealed_rows.verify_row(row, protection)
    data = reader.bytes_of(row, "change", protection)
    reader.require_hashed(row, data, protection)

    # The ops of earlier supersteps whose rows were not kept come first.
    own_op = canonical.loads(data)[-1]
    changes = {}
    for channel in row.changed:
        if channel in except_for:
            continue
        op = _op_on_channel(own_op, channel)
        if op is not None:
            changes[channel] = op
    return changes


def _op_on_channel(
    op: Op,
    channel: str,
) -> Op | None:
    """Return what an op on the document does to a channel; None if nothing."""
    path = StatePath(STATE, (channel,))
    if op["op"] == "set":
        return _put_of_channel(narrowed(op["value"], path), channel)
    for inner in narrowed_op(op, path)["keys"].values():
        channel_ops: dict[str, Op] = inner.get("keys", {})
        if channel in channel_ops:
            return channel_ops[channel]
    return None


def _put_of_channel(
    document: dict[str, Any],
    channel: str,
) -> Op | None:
    for partition in STATE:
        if channel in document[partition]:
            return ops.put(document[partition][channel])
    return None
