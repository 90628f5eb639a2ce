"""Where a run's work meets memory: what an attempt reads and wishes with; what a commit lands, holds and keeps of it.

The attempt opens a memory; the runner's commits take what tasks left. A graph that does not use memory costs no query.
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
from orchestrator.engine.compile import Compiled
from orchestrator.engine.frozen import frozen
from orchestrator.engine.memory import Memory, Shelf
from orchestrator.engine.reduce import HeldWrite, Output
from orchestrator.engine.trace import JOURNALED, LIVE, Landing, address_of, is_memory
from orchestrator.execution.secrets import mask_secrets

State = dict[str, dict[str, Any]]


def open_memory(lease: Lease, graph: Compiled, task: Task) -> Memory:
    """The memory of one attempt."""
    mode, live, node = graph.memory_mode(task.node), memory_shelf.Shelf(lease.protection), graph.nodes[task.node]
    shelf: Shelf = live if mode == LIVE else read_records.ReplayingShelf(lease, task, mode, live, _masked, node.atomic)
    journals = mode == JOURNALED and not node.journaled
    limit = conf().max_value_bytes
    return Memory(shelf, mode=mode, journals=journals, limit=limit, run=lease.id, node=task.node, masked=_masked)


def _masked(value: Any) -> Any:
    return mask_secrets(value, conf().secrets)


@frozen
class MemoryChanges:
    """What one commit does to memory. Empty where it does nothing."""

    landings: Landings = field(default_factory=Landings)
    reads: list[MemoryRecord] = field(default_factory=list)
    notes: list[NewEvent] = field(default_factory=list)

    @property
    def events(self) -> list[NewEvent]:
        return [*self.notes, *self.landings.events]

    @property
    def read_counts(self) -> dict[str, int]:
        """How many reads of each task are kept with the commit."""
        return Counter(read.task for read in self.reads)

    def __bool__(self) -> bool:
        return bool(self.landings.changes or self.reads)

    def insert(self, lease: Lease, commit: Commit) -> None:
        """In the commit's transaction, last. Raises `Moved` where somebody else changed a trace meanwhile."""
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
    """What a commit does to memory: lands these, is about to hold those, and keeps what live tasks read.

    One query, none where nothing lands or is held. Raises `MemoryConflict` naming the tasks that must run again.
    """
    holding = [(one.task, one.channel, one.version) for one in held if is_memory(one.channel)]
    read = {task: output for task, output in (outputs or {}).items() if output.reads}
    if not (landings or holding or read):
        return NOTHING
    landed = prepare_landings(landings, journaled=lambda task: graph.nodes[task.node].journaled, held=holding)
    rows = read_records.records_of_live_reads(lease, read.items(), at=at) if read else []
    return MemoryChanges(landed, rows, [note for task, output in read.items() for note in _notes(task, output)])


def _notes(task: Task, output: Output) -> list[NewEvent]:
    anew = sum(1 for read in output.reads if read.get("unrecorded"))
    facts = {"code": "memory_read_anew", "reads": anew}
    return [NewEvent("warning", facts, node=task.node, task=str(task))] if anew else []


def memory_values(
    protection: Protection, state: State, channels: Iterable[str], landings: Landings | None = None
) -> State:
    """The state with what memory holds, after these landings, in the channels named that are memory's. One query, none
    where there is no such channel.
    """
    named = {channel for channel in channels if is_memory(channel)}
    if not named:
        return state
    found = memory_shelf.values((address_of(channel) for channel in named), protection)
    found |= {one.landing.channel: one.after for one in (landings.changes if landings else [])}
    return {**state, "memory": found}


def values_to_be_held(lease: Lease, graph: Compiled, state: State, held: Sequence[HeldWrite], at: datetime) -> State:
    """`memory_values` where these writes are about to be held, and nothing lands. Raises `MemoryConflict`."""
    check_landings(lease, graph, [], held=held, at=at)
    return memory_values(lease.protection, state, held_channels([], held))


def held_channels(asked: Iterable[RequestState], held: Iterable[HeldWrite] = ()) -> list[str]:
    """The channels of all writes that gates hold, or are about to."""
    return [row.channel for one in asked for row in one.writes] + [one.channel for one in held]
