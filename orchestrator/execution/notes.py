"""What the tasks of a superstep noted, as its commit writes it: metadata of the checkpoint and figures.

A task's notes count once: with the first checkpoint that lists its result, in the run in which it ran. So a superstep
that is resumed, forked or rewound to adds nothing for tasks that had their result before.
"""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from checkpoints.event_log import NewEvent
from checkpoints.ledger import notes
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled
from orchestrator.engine.frozen import frozen
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.session import Session


@frozen
class NewNotes:
    """What a commit writes of the notes of its tasks; false where there is nothing."""

    lease: Lease
    graph: Compiled
    seq: int
    at: datetime
    metadata: dict[str, Json] = field(default_factory=dict)
    figures: tuple[tuple[Task, dict[str, int]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.metadata or self.figures)

    @property
    def events(self) -> list[NewEvent]:
        """The line that tells of them."""
        if not self:
            return []
        hash_ = notes.metadata_hash(self.metadata, self.lease.protection)
        return [notes.noted_event(self.seq, hash_, notes.totals(noted for _, noted in self.figures))]

    def insert(self) -> None:
        """Write the rows."""
        if not self:
            return
        lease = self.lease
        run = notes.OfRun(lease.id, self.graph.name, lease.protection, self.graph.graph.indexed_metadata)
        notes.insert_metadata(run, self.seq, self.metadata, self.at)
        notes.insert_figures(run, lease.line, self.seq, self.figures, self.at)


def new_notes(session: Session, kept: Mapping[Task, FinishedTask], at: datetime) -> NewNotes:
    """The notes of the tasks whose results the next checkpoint is the first to list, in declared order."""
    listed = OpenSuperstep.from_json(session.head.payload.open).results
    outputs = {task: one.output for task, one in kept.items() if one.output and task not in listed}
    metadata: dict[str, Json] = {}
    figures: list[tuple[Task, dict[str, int]]] = []
    for task in sorted(outputs, key=session.graph.task_order):
        metadata |= dict(outputs[task].metadata)
        if outputs[task].figures:
            figures.append((task, dict(outputs[task].figures)))
    return NewNotes(session.lease, session.graph, session.head.next_seq, at, metadata, tuple(figures))
