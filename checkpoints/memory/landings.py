"""Landing: the changes of memory that tasks wished for are applied in the transaction
of the commit that takes them.

The runner's commits prepare and insert them, holding the run's row. Traces are locked
after it, in order of their addresses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from orchestrator.engine.graphs.trace import Landing, address_of, text_of


@frozen
class MemoryChange:
    """A landing and the memory that it changes: `now` is the version there, and `there`
    is true if there is a trace that is not forgotten.
    """

    landing: Landing
    now: int
    there: bool

    @property
    def idle(self) -> bool:
        """Return whether this is a deletion that finds nothing."""
        return self.landing.value is None and not self.there

    @property
    def version(self) -> int:
        """Return the version after the change."""
        return self.now if self.idle else self.now + 1

    @property
    def word(self) -> str:
        """Return what happens to the key: added, updated, removed, or nothing."""
        if self.landing.value is None:
            return "nothing" if self.idle else "removed"
        return "updated" if self.there else "added"

    @property
    def after(self) -> dict[str, Any]:
        """Return what the channel of the key holds after the change."""
        return {"value": self.landing.value, "version": self.version}


@frozen
class Commit:
    """The checkpoint with which changes land: its number, its superstep, its time."""

    seq: int
    superstep: int
    at: datetime


@frozen
class Landings:
    """The changes that a commit lands, and the events that it adds to the log."""

    changes: list[MemoryChange] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def insert(self, lease: Lease, commit: Commit) -> None:
        """Write the changes in the transaction of the commit. Raises `ConcurrentUpdate`
        if another commit was first.
        """
        if not self.changes:
            return
        # Unique by task and number, so that a recovery cannot land a change twice.
        rows = [_landing_row(lease, change, commit) for change in self.changes]
        statements.insert_rows(MemoryLanding, rows)
        # Two commits that lock the same traces must do so in the same order.
        for change in sorted(self.changes, key=_address_of_change):
            if not change.idle:
                _land(_trace_row(lease, change, commit), change)


def _address_of_change(change: MemoryChange) -> Address:
    return change.landing.namespace, change.landing.key


def prepare_landings(
    landings: Sequence[Landing],
    *,
    journaled: Callable[[Task], bool],
    held: Iterable[tuple[Task, str, int | None]] = (),
) -> Landings:
    """Compare landings with memory as it is now: a write lands only on the version that
    it was made on.

    A task whose effect is journaled cannot run again, and its effect has happened: its
    writes land on the present version, and their event records what they overtook.
    `held` are (task, channel, version) of writes that a gate is about to hold. One
    query, none if there is nothing to compare. Raises `MemoryConflict` naming the tasks
    that must run again, and `TamperedRow` or `WrongKey` if a trace does not match its
    seal, because a change that lands on it would cover that up.
    """
    # A proposal that was overtaken before anybody is asked about it is made again.
    held_versions = [
        (task, address_of(channel), version) for task, channel, version in held
    ]
    rows = find(
        {(landing.namespace, landing.key) for landing in landings}
        | {address for _, address, _ in held_versions}
    )
    for row in rows.values():
        require_sound(row)

    changes = [_change(landing, rows) for landing in landings]
    stale = [*_stale_landings(changes, journaled), *_stale_held(held_versions, rows)]
    if stale:
        raise _conflict(stale)
    return Landings(changes, [_event(change) for change in changes])


def _stale_landings(
    changes: Iterable[MemoryChange], journaled: Callable[[Task], bool]
) -> Iterator[tuple[Task, Address]]:
    for change in changes:
        if _overtakes(change) and not journaled(change.landing.task):
            yield change.landing.task, _address_of_change(change)


def _stale_held(
    held_versions: Iterable[tuple[Task, Address, int | None]],
    rows: Mapping[Address, MemoryTrace],
) -> Iterator[tuple[Task, Address]]:
    for task, address, version in held_versions:
        if version != _version(rows.get(address)):
            yield task, address


def _change(landing: Landing, rows: Mapping[Address, MemoryTrace]) -> MemoryChange:
    row = rows.get((landing.namespace, landing.key))
    return MemoryChange(
        landing, now=_version(row), there=row is not None and not row.deleted
    )


def _version(row: MemoryTrace | None) -> int:
    return row.version if row else 0


def _overtakes(change: MemoryChange) -> bool:
    """Return whether memory has changed since the task read the version there."""
    # A landing without a version was made on whatever is there.
    return change.landing.version not in (None, change.now)


def _conflict(stale: Sequence[tuple[Task, Address]]) -> MemoryConflict:
    tasks = list(dict.fromkeys(str(task) for task, _ in stale))
    keys = list(dict.fromkeys(f"{namespace}/{key}" for _, (namespace, key) in stale))
    message = f"memory of {', '.join(keys)} changed since {', '.join(tasks)} read it"
    return MemoryConflict(message, tasks=tasks, keys=keys)


def _event(change: MemoryChange) -> NewEvent:
    landing = change.landing
    facts: dict[str, Any] = {
        "namespace": landing.namespace,
        "key": landing.key,
        "version": change.version,
        "n": landing.n,
        "did": change.word,
    }
    if _overtakes(change):
        facts["made_on"] = landing.version
    kind = "memory_deleted" if landing.value is None else "memory_written"
    return NewEvent(kind, facts, node=landing.task.node, task=str(landing.task))


def _landing_row(lease: Lease, change: MemoryChange, commit: Commit) -> MemoryLanding:
    landing = change.landing
    return MemoryLanding(
        **task_columns(lease.id, lease.line, landing.task),
        n=landing.n,
        namespace=landing.namespace,
        key=landing.key,
        version=change.version,
        deleted=landing.value is None,
        change=change.word,
        seq=commit.seq,
        superstep=commit.superstep,
        at=commit.at,
    )


def _trace_row(lease: Lease, change: MemoryChange, commit: Commit) -> MemoryTrace:
    landing = change.landing
    encrypted = lease.protection.encrypted
    row = MemoryTrace(
        namespace=landing.namespace,
        key=landing.key,
        version=change.version,
        encrypted=encrypted,
    )
    row.run = lease.id
    row.node = landing.task.node
    row.superstep = commit.superstep
    row.at = commit.at
    if landing.value is None:
        row.deleted = True
        row.strength = 0.0
    else:
        content = landing.value["content"]
        row.content = pack_json(content)
        row.strength = landing.value["strength"]
        # The text is searched in the database, which cannot read an encrypted one.
        row.text = "" if encrypted else text_of(landing.key, content)
    # Without the run's hash key: a trace belongs to the installation.
    sealed_rows.seal_and_encrypt([row], Protection(encrypted))
    return row


def _land(row: MemoryTrace, change: MemoryChange) -> None:
    """Replace the version that the row was made on. Raises `ConcurrentUpdate` if it is
    no longer there.
    """
    if change.now:
        met = MemoryTrace.objects.filter(
            namespace=row.namespace, key=row.key, version=change.now
        )
        columns = {name: getattr(row, name) for name in COLUMNS}
        if met.update(**columns) != 1:
            raise ConcurrentUpdate
        return
    try:
        statements.insert_rows(MemoryTrace, [row])
    # Another commit has made the first version of this key.
    except IntegrityError as error:
        raise ConcurrentUpdate from error
