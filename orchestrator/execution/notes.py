"""The notes of a superstep's tasks as its commit writes them: metadata of the
checkpoint and figures.

A task's notes count once: with the first checkpoint that lists its result, in the run
in which it ran. So resuming, forking or rewinding to a superstep adds nothing for tasks
that had their result before.
"""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from checkpoints.event_log import NewEvent
from checkpoints.ledger import notes
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.reduce import Output
from orchestrator.engine.values.canonical import Json
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.session import Session


@frozen
class NewNotes:
    """The notes of tasks that a commit writes; false if there are none."""

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
        """Return the event that lists them, if there are any."""
        if not self:
            return []
        metadata_hash = notes.metadata_hash(self.metadata, self.lease.protection)
        totals = notes.totals(figures for _, figures in self.figures)
        return [notes.noted_event(self.seq, metadata_hash, totals)]

    def insert(self) -> None:
        """Write the rows."""
        if not self:
            return
        lease = self.lease
        run = notes.OfRun(
            lease.id,
            self.graph.name,
            lease.protection,
            self.graph.graph.indexed_metadata,
        )
        notes.insert_metadata(run, self.seq, self.metadata, self.at)
        notes.insert_figures(run, lease.line, self.seq, self.figures, self.at)


def new_notes(
    session: Session, results: Mapping[Task, FinishedTask], at: datetime
) -> NewNotes:
    """Return the notes of the tasks whose results the next checkpoint is the first to
    list, in declared order.
    """
    listed = OpenSuperstep.from_json(session.head.payload.open).results
    outputs: dict[Task, Output] = {}
    for task, result in results.items():
        # The failure checkpoint that listed a result has counted its notes.
        if result.output and task not in listed:
            outputs[task] = result.output
    metadata: dict[str, Json] = {}
    figures: list[tuple[Task, dict[str, int]]] = []
    # If two tasks note the same name, the later one counts, as for channels.
    for task in sorted(outputs, key=session.graph.task_order):
        output = outputs[task]
        metadata |= dict(output.metadata)
        if output.figures:
            figures.append((task, dict(output.figures)))
    return NewNotes(
        session.lease,
        session.graph,
        session.head.next_seq,
        at,
        metadata,
        tuple(figures),
    )
