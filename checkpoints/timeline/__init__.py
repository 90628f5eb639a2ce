"""Reads over a run's history: its checkpoints, the state at each, what changed and who
set it, its log, its relatives. Never changes anything.

Pages, the API, commands and live views call it. It checks no permission: callers check
`approvals.permissions` first, and pass the runs that may be seen (`among`) if an answer
could lead into another run. Lists read columns only. The payload of a checkpoint is
read if the caller names the checkpoint, or if it set the channel in question.
"""

from checkpoints.timeline.alignment import Alignment, RunDifference, align
from checkpoints.timeline.family import Lineage, Relative, below_queries, lineage
from checkpoints.timeline.outputs import NodeOutput, node_outputs
from checkpoints.timeline.path_log import Blame, PathChange, blame, history, neighbours
from checkpoints.timeline.states import (
    PARTITIONS,
    Change,
    alias_of,
    aliases,
    changes,
    checkpoint_lines,
    diff,
    events,
    events_after,
    fault_of_run,
    find_checkpoint,
    get_checkpoint,
    head_document,
    head_state,
    held_at,
    input_of,
    keep_setters,
    list_checkpoints,
    open_checkpoint,
    parent_of,
    payload_of,
    read_checkpoint,
    read_step,
    results_at,
    snapshot_of,
    start_of_log,
    state_at,
    unlisted_setters,
)

__all__ = [
    "PARTITIONS",
    "Alignment",
    "Blame",
    "Change",
    "Lineage",
    "NodeOutput",
    "PathChange",
    "Relative",
    "RunDifference",
    "alias_of",
    "aliases",
    "align",
    "below_queries",
    "blame",
    "changes",
    "checkpoint_lines",
    "diff",
    "events",
    "events_after",
    "fault_of_run",
    "find_checkpoint",
    "get_checkpoint",
    "head_document",
    "head_state",
    "held_at",
    "history",
    "input_of",
    "keep_setters",
    "lineage",
    "list_checkpoints",
    "neighbours",
    "node_outputs",
    "open_checkpoint",
    "parent_of",
    "payload_of",
    "read_checkpoint",
    "read_step",
    "results_at",
    "snapshot_of",
    "start_of_log",
    "state_at",
    "unlisted_setters",
]
