"""The log of a run: numbered without gaps, chained, sealed; and the rows that its lines speak of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from checkpoints import event_log
from checkpoints.core.tombstone import agrees
from checkpoints.db.pages import pages
from checkpoints.event_log import LogEnd
from checkpoints.journal.intents import tasks_of
from checkpoints.models import Checkpoint, MemoryRecord, RunEvent, TaskResult
from checkpoints.models.run import TIES
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import lacks
from orchestrator.engine import Task, canonical
from orchestrator.engine.errors import CountersignError

_STARTED = ("graph", "input_hash")
"""What the first line and the run's row both say."""
_SAVED = ("checkpoint_saved", "line_begun")
"""Lines that name a checkpoint, and say whether it stays."""
SAVED = 100
"""Checkpoints saved last, of which the log of a run may still say that they stay: in truth it is the newest."""


def log(subject: Subject) -> Iterator[Fault]:
    """Every line, then whether the log ends where the run's row says."""
    run, end, told = subject.run, LogEnd(0, ""), _Told()
    for page in pages(RunEvent.objects.filter(run=run.id), "seq"):
        sound: list[tuple[RunEvent, dict[str, Any]]] = []
        for row in page:
            if row.seq != end.seq + 1:
                end = LogEnd(*subject.removed.events.follow(end.seq, end.hash, row.seq))
                yield from _missing(subject, end.seq + 1, row.seq)
            fault, data = _line(subject, row, end)
            if fault is None:
                fault, facts = _facts(subject, row, data)
            if fault is None:
                sound.append((row, facts))
            else:
                yield fault
            end = LogEnd(row.seq, row.hash)
        yield from _named(subject, sound, told)
    if told.version not in (None, run.version):
        yield subject.fault(run, f"has version {run.version!r}, but its log says {told.version!r}")
    yield from _durable(subject, told)
    if end.seq < run.event_seq:
        yield from _missing(subject, end.seq + 1, run.event_seq + 1)
    elif end != LogEnd(run.event_seq, run.event_hash):
        yield subject.fault(run, f"names line {run.event_seq} as the last of its log, but line {end.seq} is")


def _durable(subject: Subject, told: "_Told") -> Iterator[Fault]:
    """A run is durable unless its log says that a superstep was not saved."""
    run = subject.run
    if run.durable and not told.durable:
        yield subject.fault(run, "is called durable, but its log says that a superstep was not saved")
    # The line that said it may be among those that were removed.
    elif told.durable and not run.durable and not subject.removed.events:
        yield subject.fault(run, "is called not durable, but its log says of each superstep that it was saved")


def _missing(subject: Subject, first: int, behind: int) -> Iterator[Fault]:
    if first < behind:
        one = first == behind - 1
        events = f"line {first}" if one else f"lines {first} to {behind - 1}"
        yield subject.gone(RunEvent, f"{subject.run.id} {events}", are="is" if one else "are")


def _line(subject: Subject, row: RunEvent, before: LogEnd) -> tuple[Fault | None, bytes]:
    """The fault of a line, if it has one, and its payload."""
    fault = subject.seal_of(row)
    if fault is not None:
        return fault, b""
    try:
        data = subject.payload(row, "payload")
    except CountersignError as error:
        return subject.refused(row, error), b""
    if subject.erased.said_of(row) is not None:
        chained = subject.is_hashed(row, "payload", data, "")
    else:
        chained = event_log.line_hash(before.hash, row, data, subject.protection) == row.hash
    # After a gap the hash of the line before is not known, and the gap is named already.
    if row.seq == before.seq + 1 and not chained:
        return subject.fault(row, "is not chained to the line before it"), b""
    return None, data


def _facts(subject: Subject, row: RunEvent, data: bytes) -> tuple[Fault | None, dict[str, Any]]:
    """The fault of what a line says, if it has one, and what it says."""
    try:
        facts = canonical.loads(data) if data else {}
    except ValueError as error:
        return subject.fault(row, f"cannot be read: {error}"), {}
    reason = lacks(row, facts)
    if reason:
        return subject.fault(row, reason), {}
    return None, facts


@dataclass(slots=True)
class _Told:
    """What the lines so far have told: the number of the last one that could be read, and that of the checkpoint that
    stays and was named last; None where lines are missing since, so that nobody can count.
    `version`: the one by which the run goes. `durable`: no line says that a superstep was not saved. `changes`: of the
    newest checkpoints that were saved, the hashes of their changes; a later line may say that one stays.
    """

    line: int = 0
    checkpoint: int | None = -1
    course: int = 1
    version: str | None = None
    durable: bool = True
    changes: dict[UUID, str] = field(default_factory=dict)


def _named(subject: Subject, events: Sequence[tuple[RunEvent, dict[str, Any]]], told: _Told) -> Iterator[Fault]:
    """The rows that these lines speak of must be there, and the first line must say what the run's row says."""
    saved: list[tuple[UUID, str] | None] = []
    begun: list[tuple[int, Task, int]] = []
    reads: dict[tuple[int, str], int] = {}
    for row, facts in events:
        if row.seq != told.line + 1:
            saved.append(None)
        told.line = row.seq
        if "change" in facts:
            told.changes[UUID(facts["checkpoint"])] = facts["change"]
        if row.type == "run_started":
            yield from _same_start(subject, row, facts)
            # The first checkpoint of a fork that a store made is not its run's first.
            saved += [None] if "departure" in facts else []
            saved.append((UUID(facts["checkpoint"]), "0"))
        elif row.type == "checkpoint_kept" or (row.type in _SAVED and facts["kept"]):
            saved.append((UUID(facts["checkpoint"]), str(facts["superstep"])))
        if "started_at" in facts and facts["started_at"] != _iso(subject.run.started_at):
            yield subject.fault(subject.run, f"is under way since {subject.run.started_at}, not {facts['started_at']}")
        if row.type == "warning" and facts.get("code") == event_log.NOT_SAVED:
            told.durable = False
        if row.type == "line_begun":
            told.course = facts["line"]
        if row.type in ("run_started", "version_changed"):
            told.version = facts["version"]
        if row.type == "checkpoint_saved":
            reads |= {(told.course, task): count for task, count in facts.get("reads", {}).items()}
        if row.type == "effects_started":
            begun += [(told.course, task, facts["attempt"]) for task in tasks_of(row.task)]
    yield from _saved(subject, saved, told)
    told.changes = dict(list(told.changes.items())[-SAVED:])
    yield from _journaled(subject, begun)
    yield from _read(subject, reads)


def _saved(subject: Subject, saved: Sequence[tuple[UUID, str] | None], told: _Told) -> Iterator[Fault]:
    """Each checkpoint that stays is there, or was removed, and made the change that its line says. None stands for
    lines that are missing. Lines name checkpoints in the order of their numbers, none left out.
    """
    rows = Checkpoint.objects.filter(run=subject.run.id, id__in=[named[0] for named in saved if named])
    there = {one: (seq, change) for one, seq, change in rows.values_list("id", "seq", "change_hash")}
    removed = subject.removed.checkpoints
    for named in saved:
        if named is None:
            told.checkpoint = None
            continue
        one, superstep = named
        if one in there:
            before, (told.checkpoint, change) = told.checkpoint, there[one]
            if before is not None and told.checkpoint <= before:
                yield subject.fault(subject.run, f"saved {one} in another order than its log says", checkpoint=one)
            if change != told.changes.get(one, change):
                yield subject.fault(subject.run, f"changed otherwise at {one} than its log says", checkpoint=one)
            continue
        told.checkpoint = None if told.checkpoint is None else told.checkpoint + 1
        # Where nobody can count, a gap in the numbers of the rows themselves still shows.
        if not (told.checkpoint in removed if told.checkpoint is not None else removed):
            yield subject.gone(Checkpoint, f"{subject.run.id} {one} of superstep {superstep}", checkpoint=one)


def _iso(at: datetime | None) -> str:
    return at.isoformat() if at else ""


def _same_start(subject: Subject, row: RunEvent, facts: dict[str, Any]) -> Iterator[Fault]:
    run = subject.run
    if row.at != run.created_at:
        yield subject.fault(run, f"says that it was started at {run.created_at}, but it was at {row.at}")
    now = {name: getattr(run, name) for name in _STARTED}
    if "ties" in facts:
        # Older runs did not write these down.
        now |= {"label": run.label, "facts": run.facts}
        now["ties"] = {name: str(value) for name in TIES if (value := getattr(run, name))}
    for name, has in now.items():
        if not agrees(facts[name], has):
            yield subject.fault(run, f"has {name} {has!r}, but was started with {facts[name]!r}")


def _journaled(subject: Subject, begun: Sequence[tuple[int, Task, int]]) -> Iterator[Fault]:
    """Each attempt that began on a line has its row in the journal."""
    rows = TaskResult.objects.filter(run=subject.run.id, node__in={task.node for _, task, _ in begun})
    there = set(rows.values_list("line", "node", "visit", "index", "attempt")) if begun else set()
    for line, task, attempt in begun:
        if (line, task.node, task.visit, task.index, attempt) not in there:
            yield subject.gone(TaskResult, f"{subject.run.id} {task} attempt {attempt}")


def _read(subject: Subject, reads: Mapping[tuple[int, str], int]) -> Iterator[Fault]:
    """Of each task that read from memory as it was then there are as many records as its checkpoint was saved with."""
    if not reads:
        return
    rows = MemoryRecord.objects.filter(run=subject.run.id, node__in={Task.parse(task).node for _, task in reads})
    there = Counter((row.line, row.task) for row in rows.only("line", "node", "visit", "index").iterator())
    for (line, task), count in reads.items():
        if there[line, task] < count:
            what = f"{subject.run.id} {task} {there[line, task]} of {count}"
            yield subject.gone(MemoryRecord, what)
