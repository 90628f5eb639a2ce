"""A run's use of memory: the memory that an attempt reads from, and what a commit
lands, holds and keeps of it.

The attempt opens a memory; the commits take what tasks left in it. A graph that does
not use memory costs no query.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from approvals.gates.request_state import RequestState
from checkpoints.conf import conf
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.memory import read_records
from checkpoints.memory import shelf as memory_shelf
from checkpoints.memory.landings import Commit, Landings, prepare_landings
from checkpoints.models import MemoryRecord
from checkpoints.queue.leases import Lease
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.trace import (
    JOURNALED,
    LIVE,
    Landing,
    address_of,
    is_memory,
)
from orchestrator.engine.step.memory import Memory, Shelf
from orchestrator.engine.step.reduce import HeldWrite, Output
from orchestrator.execution.secrets import mask_known_secrets

State = dict[str, dict[str, Any]]


def open_memory(lease: Lease, graph: Compiled, task: Task) -> Memory:
    """Return the memory of one attempt."""
    node = graph.nodes[task.node]
    mode = graph.memory_mode(task.node)
    live = memory_shelf.DatabaseShelf(lease.protection)
    shelf: Shelf = live
    if mode != LIVE:
        shelf = read_records.ReplayingShelf(
            lease, task, mode, live, mask_known_secrets, node.atomic
        )
    return Memory(
        shelf,
        mode=mode,
        # The recorded result of an effect holds its wishes to memory already.
        journals=mode == JOURNALED and not node.journaled,
        limit=conf().max_value_bytes,
        run=lease.id,
        node=task.node,
        masked=mask_known_secrets,
    )


@frozen
class MemoryChanges:
    """The changes that one commit makes to memory; false if there are none."""

    landings: Landings = field(default_factory=Landings)
    reads: list[MemoryRecord] = field(default_factory=list)
    notes: list[NewEvent] = field(default_factory=list)
    recorded: dict[str, int] = field(default_factory=dict)

    @property
    def events(self) -> list[NewEvent]:
        return [*self.notes, *self.landings.events]

    @property
    def read_counts(self) -> dict[str, int]:
        """Return the number of reads of each task that are kept: with the commit, or
        since they were made.
        """
        if not self.reads:
            return self.recorded
        return {**self.recorded, **Counter(read.task for read in self.reads)}

    def __bool__(self) -> bool:
        return bool(self.landings.changes or self.reads)

    def insert(self, lease: Lease, commit: Commit) -> None:
        """Write them in the commit's transaction, after requests and held writes.
        Raises `ConcurrentUpdate` if another process changed a trace in the meantime.
        """
        if self.reads:
            statements.insert_rows(MemoryRecord, self.reads)
        self.landings.insert(lease, commit)


NOTHING = MemoryChanges()


def check_landings(
    lease: Lease,
    graph: Compiled,
    landings: Sequence[Landing],
    *,
    held: Iterable[HeldWrite] = (),
    outputs: Mapping[Task, Output] | None = None,
    at: datetime,
) -> MemoryChanges:
    """Return what a commit does to memory: `landings` land, `held` writes begin to wait
    for people, and what the tasks of `outputs` read live is kept.

    One query, none if nothing lands or is held. Raises `MemoryConflict` naming the
    tasks that must run again.
    """
    holding: list[tuple[Task, str, int | None]] = []
    for write in held:
        if is_memory(write.channel):
            holding.append((write.task, write.channel, write.version))
    reading = _outputs_that_read(outputs or {})
    if not (landings or holding or reading):
        return NOTHING

    # An effect cannot run again, so its wishes land on whatever is there.
    def is_journaled(task: Task) -> bool:
        return graph.nodes[task.node].journaled

    landed = prepare_landings(landings, journaled=is_journaled, held=holding)
    rows: list[MemoryRecord] = []
    if reading:
        rows = read_records.records_of_live_reads(lease, reading.items(), at=at)
    return MemoryChanges(landed, rows, _notes(reading), _recorded(lease, reading))


def _outputs_that_read(outputs: Mapping[Task, Output]) -> dict[Task, Output]:
    return {
        task: output
        for task, output in outputs.items()
        if output.reads or output.recorded
    }


def _recorded(lease: Lease, outputs: Mapping[Task, Output]) -> dict[str, int]:
    """Return how many records each task has on this line. Those of an output of another
    line are kept there.
    """
    counts: dict[str, int] = {}
    for task, output in outputs.items():
        recorded = output.recorded
        # An output that was kept at a departure may come from another line or run.
        if recorded and (recorded.run, recorded.line) == (lease.id.hex, lease.line):
            counts[str(task)] = recorded.rows
    return counts


def _notes(outputs: Mapping[Task, Output]) -> list[NewEvent]:
    """Return a warning for each task that read again what was not recorded."""
    notes: list[NewEvent] = []
    for task, output in outputs.items():
        reads = sum(1 for read in output.reads if read.get("unrecorded"))
        if reads:
            facts = {"code": "memory_read_anew", "reads": reads}
            notes.append(NewEvent("warning", facts, node=task.node, task=str(task)))
    return notes


def memory_values(
    protection: Protection,
    state: State,
    channels: Iterable[str],
    landings: Landings | None = None,
) -> State:
    """Return the state with what memory holds, after these landings, in those of the
    channels that are memory's. One query, none if there is no such channel.
    """
    of_memory = {channel for channel in channels if is_memory(channel)}
    if not of_memory:
        return state
    addresses = (address_of(channel) for channel in of_memory)
    values = memory_shelf.values(addresses, protection)
    # People judge what memory holds once this commit has landed, not before.
    if landings:
        for change in landings.changes:
            values[change.landing.channel] = change.after
    return {**state, "memory": values}


def values_to_be_held(
    lease: Lease, graph: Compiled, state: State, held: Sequence[HeldWrite], at: datetime
) -> State:
    """Return `memory_values` for writes that are about to be held, while nothing lands.
    Raises `MemoryConflict`.
    """
    check_landings(lease, graph, [], held=held, at=at)
    return memory_values(lease.protection, state, held_channels([], held))


def held_channels(
    waiting: Iterable[RequestState], held: Iterable[HeldWrite] = ()
) -> list[str]:
    """Return the channels of all writes that gates hold, or are about to hold."""
    channels: list[str] = []
    for request in waiting:
        channels += [row.channel for row in request.writes]
    channels += [write.channel for write in held]
    return channels
