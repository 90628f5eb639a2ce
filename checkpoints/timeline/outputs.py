"""What each task of a superstep returned: as the journal has it, as a gate held it, or as the kept change says.

Nothing is kept twice for it. Where several tasks without a record ran together, the change says what they came to
together.
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
from orchestrator.engine import canonical, ops
from orchestrator.engine.frozen import frozen
from orchestrator.engine.ops import Op

RECORDED, HELD, KEPT, CHANGE, TOGETHER = "recorded", "held", "kept", "change", "together"
"""Where an output is from: the journal · what a gate held · an open superstep · the change of the checkpoint, for one
task · the same, for several tasks at once.
"""
Visit = tuple[str, int]


@frozen
class NodeOutput:
    """What a task returned. `index` is None where the change tells of a whole visit.

    `output` is {writes: [{channel, value, ...}], goto, sends} from the journal, from an open superstep, or the writes
    alone of what a gate held; from a change {changes: {channel: op}}, with the ops of `orchestrator.engine.ops`: of an
    append the items, of a set the value that it came to.
    """

    node: str
    visit: int
    index: int | None
    effect: str
    source: str
    output: dict[str, Any]


def node_outputs(checkpoint: Checkpoint) -> list[NodeOutput]:
    """What the tasks of this checkpoint's superstep returned, in declared order; of a settlement what it applied. Three
    queries at most. Raises `TamperedRow`, `WrongKey`.
    """
    entries = checkpoint.nodes
    if checkpoint.source == Source.FAILURE:
        kept = snapshot_of(checkpoint)["open"].get("results", {})
        return [one for entry in entries for one in _kept(entry, kept)]
    visits = {_visit(entry) for entry in entries if checkpoint.source == Source.SUPERSTEP}
    recorded = _recorded(checkpoint, visits)
    held = _held(checkpoint, {_visit(entry) for entry in entries if entry.get("outcome") == "held"} & visits)
    rest = [entry for entry in setting_entries(entries) if _visit(entry) not in recorded]
    explained = {write["channel"] for rows in recorded.values() for _, output in rows for write in output["writes"]}
    changes = _changes(checkpoint, explained) if rest else {}
    alone = len(rest) == 1 and rest[0].get("tasks", 1) == 1
    found = []
    for entry in entries:
        given: list[tuple[str, int | None, Any]] = [(RECORDED, *one) for one in recorded.get(_visit(entry), ())]
        given += [(HELD, *one) for one in held.get(_visit(entry), ())]
        if entry in rest:
            given.append((CHANGE if alone else TOGETHER, 0 if alone else None, {"changes": changes}))
        found += [_output(entry, source, index, output) for source, index, output in given]
    return found


def _visit(entry: dict[str, Any]) -> Visit:
    return entry["node"], entry.get("visit", 1)


def _output(entry: dict[str, Any], source: str, index: int | None, output: dict[str, Any]) -> NodeOutput:
    return NodeOutput(*_visit(entry), index, entry.get("effect", ""), source, output)


def _kept(entry: dict[str, Any], kept: dict[str, Any]) -> Iterator[NodeOutput]:
    for task, one in kept.items():
        node, visit, index = task.rsplit(":", 2)
        if (node, int(visit)) == _visit(entry) and one["output"] is not None:
            yield _output(entry, KEPT, int(index), one["output"])


def _recorded(checkpoint: Checkpoint, visits: set[Visit]) -> dict[Visit, list[tuple[int, Any]]]:
    """Each visit's recorded outputs by index."""
    found = defaultdict(list)
    for row in _of_visits(TaskResult.objects.filter(outcome=Outcome.DONE), checkpoint, visits):
        found[row.node, row.visit].append((row.index, {"writes": (), **(read_value(row, "output") or {})}))
    return found


def _held(checkpoint: Checkpoint, visits: set[Visit]) -> dict[Visit, list[tuple[int, Any]]]:
    """Each visit's proposals by index, as the node made them."""
    writes: dict[tuple[Visit, int], list[dict[str, Any]]] = defaultdict(list)
    rows = PendingWrite.objects.filter(revision=1).order_by("index", "position")
    for row in _of_visits(rows, checkpoint, visits):
        proposal = {"channel": row.channel, "value": read_value(row, "value"), "label": row.label}
        writes[(row.node, row.visit), row.index].append(proposal)
    found = defaultdict(list)
    for (visit, index), proposed in writes.items():
        found[visit].append((index, {"writes": proposed}))
    return found


def _of_visits(rows: Any, checkpoint: Checkpoint, visits: set[Visit]) -> Sequence[Any]:
    """Of these rows those of the visits, which verify."""
    if not visits:
        return []
    nodes, numbers = {node for node, _ in visits}, {number for _, number in visits}
    mine = rows.filter(run=checkpoint.run_id, line=checkpoint.line, node__in=nodes, visit__in=numbers)
    found = [row for row in mine if (row.node, row.visit) in visits]
    sealed_rows.verify_rows(found, protection_of(checkpoint.run))
    return found


def _changes(checkpoint: Checkpoint, explained: set[str]) -> dict[str, Op]:
    """What the superstep itself made of its channels, but those that the journal tells of."""
    row = Checkpoint.objects.get(id=checkpoint.id)
    protection = protection_of(checkpoint.run)
    sealed_rows.verify_row(row, protection)
    data = reader.bytes_of(row, "change", protection)
    reader.require_hashed(row, data, protection)
    # Where rows before it did not stay, theirs come first.
    op = canonical.loads(data)[-1]
    channels = [channel for channel in row.changed if channel not in explained]
    return {channel: found for channel in channels if (found := _op_of(op, channel)) is not None}


def _op_of(op: Op, channel: str) -> Op | None:
    """What an op on the document does to a channel."""
    path = StatePath(STATE, (channel,))
    if op["op"] == "set":
        values = narrowed(op["value"], path)
        return next((ops.put(values[part][channel]) for part in STATE if channel in values[part]), None)
    inner = narrowed_op(op, path)["keys"]
    return next((one["keys"][channel] for one in inner.values() if channel in one.get("keys", {})), None)
