"""Landing: what tasks wished to remember becomes memory, in the transaction of the commit that takes it.

The runner's commits prepare and insert. Whoever lands holds the run's row; traces are locked after it, in order of
their addresses.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from django.db import IntegrityError

from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.ledger.commit import ConcurrentUpdate
from checkpoints.memory.shelf import COLUMNS, Address, find, require_sound
from checkpoints.models import MemoryLanding, MemoryTrace
from checkpoints.models.fields import task_columns
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task
from orchestrator.engine.errors import MemoryConflict
from orchestrator.engine.frozen import frozen
from orchestrator.engine.trace import Landing, address_of, text_of


@frozen
class MemoryChange:
    """One landing against what is there: `now` is the version that it meets, `there` whether it meets a trace."""

    landing: Landing
    now: int
    there: bool

    @property
    def idle(self) -> bool:
        """A deletion that finds nothing."""
        return self.landing.value is None and not self.there

    @property
    def version(self) -> int:
        """The version after it."""
        return self.now if self.idle else self.now + 1

    @property
    def word(self) -> str:
        """What it does to its key: added, updated, removed, or nothing."""
        if self.landing.value is None:
            return "nothing" if self.idle else "removed"
        return "updated" if self.there else "added"

    @property
    def after(self) -> dict[str, Any]:
        """What its channel holds after it."""
        return {"value": self.landing.value, "version": self.version}


@frozen
class Commit:
    """The checkpoint with which something lands: its number, the superstep's, and when."""

    seq: int
    superstep: int
    at: datetime


@frozen
class Landings:
    """What a commit lands, and the lines that it adds to the log."""

    changes: list[MemoryChange] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def insert(self, lease: Lease, commit: Commit) -> None:
        """Write them in the transaction of the commit. Raises `ConcurrentUpdate` where another commit was first."""
        if not self.changes:
            return
        statements.insert_rows(MemoryLanding, [_landing(lease, change, commit) for change in self.changes])
        for change in sorted(self.changes, key=lambda one: (one.landing.namespace, one.landing.key)):
            if not change.idle:
                _land(_row(lease, change, commit), change)


def prepare_landings(
    landings: Sequence[Landing], *, journaled: Callable[[Task], bool], held: Iterable[tuple[Task, str, int | None]] = ()
) -> Landings:
    """Weigh landings against memory as it is now: a write lands on the version that it was made on, on nothing else.

    A task whose effect is journaled cannot run again, and what it did happened: its writes land on what is there, and
    their line says what they overtook. `held` are (task, channel, version) of writes that a gate is about to hold.
    One query, none where there is nothing to weigh. Raises `MemoryConflict` naming the tasks that must run again, and
    `TamperedRow` or `WrongKey` where a trace is not as it was sealed: what lands on it would cover that up.
    """
    waiting = [(task, address_of(channel), version) for task, channel, version in held]
    rows = find({(one.namespace, one.key) for one in landings} | {address for _, address, _ in waiting})
    for row in rows.values():
        require_sound(row)
    changes = [_change(one, rows.get((one.namespace, one.key))) for one in landings]
    stale = [(c.landing.task, (c.landing.namespace, c.landing.key)) for c in changes if _overtakes(c)]
    stale = [(task, address) for task, address in stale if not journaled(task)]
    stale += [(task, address) for task, address, version in waiting if version != _version(rows.get(address))]
    if stale:
        raise _conflict(stale)
    return Landings(changes, [_line(change) for change in changes])


def _change(landing: Landing, row: MemoryTrace | None) -> MemoryChange:
    return MemoryChange(landing, _version(row), row is not None and not row.deleted)


def _version(row: MemoryTrace | None) -> int:
    return row.version if row else 0


def _overtakes(change: MemoryChange) -> bool:
    return change.landing.version not in (None, change.now)


def _conflict(stale: Sequence[tuple[Task, Address]]) -> MemoryConflict:
    tasks = list(dict.fromkeys(str(task) for task, _ in stale))
    keys = list(dict.fromkeys(f"{namespace}/{key}" for _, (namespace, key) in stale))
    message = f"memory of {', '.join(keys)} changed since {', '.join(tasks)} read it"
    return MemoryConflict(message, tasks=tasks, keys=keys)


def _line(change: MemoryChange) -> NewEvent:
    one = change.landing
    facts: dict[str, Any] = {"namespace": one.namespace, "key": one.key, "version": change.version, "n": one.n}
    facts["did"] = change.word
    if _overtakes(change):
        facts["made_on"] = one.version
    kind = "memory_deleted" if one.value is None else "memory_written"
    return NewEvent(kind, facts, node=one.task.node, task=str(one.task))


def _landing(lease: Lease, change: MemoryChange, commit: Commit) -> MemoryLanding:
    one = change.landing
    return MemoryLanding(
        **task_columns(lease.id, lease.line, one.task),
        n=one.n,
        namespace=one.namespace,
        key=one.key,
        version=change.version,
        deleted=one.value is None,
        change=change.word,
        seq=commit.seq,
        superstep=commit.superstep,
        at=commit.at,
    )


def _row(lease: Lease, change: MemoryChange, commit: Commit) -> MemoryTrace:
    one, encrypted = change.landing, lease.protection.encrypted
    row = MemoryTrace(namespace=one.namespace, key=one.key, version=change.version, encrypted=encrypted)
    row.run, row.node, row.superstep, row.at = lease.id, one.task.node, commit.superstep, commit.at
    if one.value is None:
        row.deleted, row.strength = True, 0.0
    else:
        row.content, row.strength = pack_json(one.value["content"]), one.value["strength"]
        row.text = "" if encrypted else text_of(one.key, one.value["content"])
    sealed_rows.seal_and_encrypt([row], Protection(encrypted))
    return row


def _land(row: MemoryTrace, change: MemoryChange) -> None:
    """Put the row in the place of the version that it was made on."""
    if change.now:
        there = MemoryTrace.objects.filter(namespace=row.namespace, key=row.key, version=change.now)
        if there.update(**{name: getattr(row, name) for name in COLUMNS}) != 1:
            raise ConcurrentUpdate
        return
    try:
        statements.insert_rows(MemoryTrace, [row])
    except IntegrityError as error:
        raise ConcurrentUpdate from error
