"""Examines the log of a run, which is numbered without gaps, chained and sealed, and
the rows that its lines name.
"""

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
from checkpoints.models import Checkpoint, MemoryRecord, Run, RunEvent, TaskResult
from checkpoints.models.run import TIES
from checkpoints.verification.base import Fault, Subject
from checkpoints.verification.line_facts import fault_in_facts
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.values import canonical

_STARTED = ("graph", "input_hash")
"""Columns of the run's row that its first line repeats."""
_SAVED = ("checkpoint_saved", "line_begun")
"""Types of lines that name a checkpoint and record whether it is kept."""
_CHANGED = ("run_started", *_SAVED)
"""Types of lines that may name the change of their checkpoint."""
SAVED = 100
"""How many of the newest checkpoints a later line may still turn into kept ones; in
practice it is the newest.
"""


@dataclass(slots=True)
class _Progress:
    """The implications of the lines read so far for the lines that follow.

    `line`: the number of the last line that could be read. `checkpoint`: the number of
    the kept checkpoint that was named last; None where lines have been missing since,
    so that checkpoints cannot be counted. `course`: the line of the run. `version`: the
    version that the run goes by. `durable`: no line reports a superstep that was not
    saved. `changes`: the hashes of the changes of the newest saved checkpoints, because
    a later line may turn one of them into a kept checkpoint.
    """

    line: int = 0
    checkpoint: int | None = -1
    course: int = 1
    version: str | None = None
    durable: bool = True
    changes: dict[UUID, str] = field(default_factory=dict)


NamedCheckpoint = tuple[UUID, str]
"""Id and superstep of a checkpoint that a line says is kept."""


@dataclass(slots=True)
class _NamedRows:
    """The rows that the lines of one page name.

    `checkpoints`: the kept ones, in order; None stands for missing lines. `attempts`:
    those that began, as (line, task, attempt). `reads`: the number of reads from memory
    by (line, task).
    """

    checkpoints: list[NamedCheckpoint | None] = field(default_factory=list)
    attempts: list[tuple[int, Task, int]] = field(default_factory=list)
    reads: dict[tuple[int, str], int] = field(default_factory=dict)


def log(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of every line, then those of the end of the log."""
    run = subject.run
    end = LogEnd(0, "")
    progress = _Progress()
    for page in pages(RunEvent.objects.filter(run=run.id), "seq"):
        sound: list[tuple[RunEvent, dict[str, Any]]] = []
        for row in page:
            # A gap is followed through the stretches that were removed on purpose; the
            # rest of it is missing lines.
            if row.seq != end.seq + 1:
                end = LogEnd(*subject.removed.events.follow(end.seq, end.hash, row.seq))
                yield from _missing_lines(subject, end.seq + 1, row.seq)
            fault, facts = _checked_line(subject, row, end)
            if fault is None:
                sound.append((row, facts))
            else:
                yield fault
            # Also after a line with a fault: it is there, so it must not count as missing.
            end = LogEnd(row.seq, row.hash)
        yield from _faults_of_named_rows(subject, sound, progress)

    yield from _faults_of_version(subject, progress)
    yield from _faults_of_durability(subject, progress)
    yield from _faults_of_end(subject, end)


def _faults_of_version(subject: Subject, progress: _Progress) -> Iterator[Fault]:
    run = subject.run
    # None where every line that names a version was removed or has a fault.
    if progress.version not in (None, run.version):
        yield subject.fault(
            run, f"has version {run.version!r}, but its log says {progress.version!r}"
        )


def _faults_of_durability(subject: Subject, progress: _Progress) -> Iterator[Fault]:
    """Yield a fault unless the run is durable exactly where its log reports no
    superstep that was not saved.
    """
    run = subject.run
    if run.durable and not progress.durable:
        yield subject.fault(
            run, "is called durable, but its log says that a superstep was not saved"
        )
    # The line that reported such a superstep may be among the removed ones.
    elif progress.durable and not run.durable and not subject.removed.events:
        yield subject.fault(
            run,
            "is called not durable, but its log says of each superstep that it was"
            " saved",
        )


def _faults_of_end(subject: Subject, end: LogEnd) -> Iterator[Fault]:
    """Yield a fault unless the log ends with the line that the run's row names."""
    run = subject.run
    if end.seq < run.event_seq:
        yield from _missing_lines(subject, end.seq + 1, run.event_seq + 1)
    elif end != LogEnd(run.event_seq, run.event_hash):
        yield subject.fault(
            run,
            f"names line {run.event_seq} as the last of its log, but line {end.seq} is",
        )


def _missing_lines(subject: Subject, first: int, behind: int) -> Iterator[Fault]:
    """Yield a fault for the lines from `first` up to the one before `behind`."""
    if first >= behind:
        return
    last = behind - 1
    if first == last:
        yield subject.missing_row(RunEvent, f"{subject.run.id} line {first}", are="is")
    else:
        yield subject.missing_row(
            RunEvent, f"{subject.run.id} lines {first} to {last}", are="are"
        )


def _checked_line(
    subject: Subject, row: RunEvent, before: LogEnd
) -> tuple[Fault | None, dict[str, Any]]:
    """Return the fault of a line, if it has one, and its facts."""
    fault, data = _checked_payload(subject, row, before)
    if fault is not None:
        return fault, {}
    return _checked_facts(subject, row, data)


def _checked_payload(
    subject: Subject, row: RunEvent, before: LogEnd
) -> tuple[Fault | None, bytes]:
    """Return the fault of a line's seal, payload or chain, if it has one, and its
    payload.
    """
    fault = subject.seal_of(row)
    if fault is not None:
        return fault, b""
    try:
        data = subject.payload(row, "payload")
    except CountersignError as error:
        return subject.refused(row, error), b""

    # The hash of an erased line covers a payload that is no longer there.
    if subject.erased.said_of(row) is not None:
        is_chained = subject.is_hashed(row, "payload", data, "")
    else:
        hash_ = event_log.line_hash(before.hash, row, data, subject.protection)
        is_chained = hash_ == row.hash

    # After a gap the hash of the previous line is unknown, and the gap has already been
    # reported.
    follows_directly = row.seq == before.seq + 1
    if follows_directly and not is_chained:
        return subject.fault(row, "is not chained to the line before it"), b""
    return None, data


def _checked_facts(
    subject: Subject, row: RunEvent, data: bytes
) -> tuple[Fault | None, dict[str, Any]]:
    """Return the fault of a line's content, if it has one, and the content."""
    try:
        facts = canonical.loads(data) if data else {}
    except ValueError as error:
        return subject.fault(row, f"cannot be read: {error}"), {}
    reason = fault_in_facts(row, facts)
    if reason:
        return subject.fault(row, reason), {}
    return None, facts


def _faults_of_named_rows(
    subject: Subject,
    events: Sequence[tuple[RunEvent, dict[str, Any]]],
    progress: _Progress,
) -> Iterator[Fault]:
    """Yield a fault for each row that these lines name and that is not there or
    differs, and for a first line that disagrees with the run's row.
    """
    named = _NamedRows()
    for row, facts in events:
        # A line with a fault is left out of these events, so it counts as a missing
        # one.
        if row.seq != progress.line + 1:
            named.checkpoints.append(None)
        progress.line = row.seq
        if row.type == "run_started":
            yield from _faults_of_start(subject, row, facts)
        yield from _faults_of_time_under_way(subject, facts)
        _note_progress(progress, row, facts)
        _note_checkpoints(named, row, facts)
        _note_tasks(named, row, facts, progress.course)

    yield from _faults_of_checkpoints(subject, named.checkpoints, progress)
    # A log may be long, and memory stays flat.
    progress.changes = dict(list(progress.changes.items())[-SAVED:])
    yield from _missing_attempts(subject, named.attempts)
    yield from _missing_memory_records(subject, named.reads)


def _faults_of_time_under_way(
    subject: Subject, facts: dict[str, Any]
) -> Iterator[Fault]:
    run = subject.run
    if "started_at" in facts and facts["started_at"] != _iso(run.started_at):
        yield subject.fault(
            run, f"is under way since {run.started_at}, not {facts['started_at']}"
        )


def _note_progress(progress: _Progress, row: RunEvent, facts: dict[str, Any]) -> None:
    """Note the effects of a line on those that follow."""
    if row.type in _CHANGED and "change" in facts:
        progress.changes[UUID(facts["checkpoint"])] = facts["change"]
    if row.type == "warning" and facts.get("code") == event_log.NOT_SAVED:
        progress.durable = False
    if row.type == "line_begun":
        progress.course = facts["line"]
    if row.type in ("run_started", "version_changed"):
        progress.version = facts["version"]


def _note_checkpoints(named: _NamedRows, row: RunEvent, facts: dict[str, Any]) -> None:
    """Note the kept checkpoint that a line names, if it names one."""
    if row.type == "run_started":
        # The first checkpoint of a fork that a store made is not its run's first.
        if "departure" in facts:
            named.checkpoints.append(None)
        named.checkpoints.append((UUID(facts["checkpoint"]), "0"))
        return
    is_kept = row.type == "checkpoint_kept" or (row.type in _SAVED and facts["kept"])
    if is_kept:
        checkpoint = UUID(facts["checkpoint"])
        named.checkpoints.append((checkpoint, str(facts["superstep"])))


def _note_tasks(
    named: _NamedRows, row: RunEvent, facts: dict[str, Any], course: int
) -> None:
    """Note the attempts that a line began, or the reads from memory that it saved."""
    if row.type == "checkpoint_saved":
        for task, count in facts.get("reads", {}).items():
            named.reads[course, task] = count
    if row.type == "effects_started":
        for begun_task in tasks_of(row.task):
            named.attempts.append((course, begun_task, facts["attempt"]))


def _faults_of_checkpoints(
    subject: Subject, named: Sequence[NamedCheckpoint | None], progress: _Progress
) -> Iterator[Fault]:
    """Yield a fault for each kept checkpoint that is neither there nor was removed, and
    for each whose change or order is not what its line says. None stands for missing
    lines.

    Lines name checkpoints in the order of their numbers and leave none out. One query.
    """
    ids = [checkpoint[0] for checkpoint in named if checkpoint]
    rows = Checkpoint.objects.filter(run=subject.run.id, id__in=ids)
    stored: dict[UUID, tuple[int, str]] = {}
    for id, seq, change in rows.values_list("id", "seq", "change_hash"):
        stored[id] = (seq, change)

    for checkpoint in named:
        if checkpoint is None:
            progress.checkpoint = None
        elif checkpoint[0] in stored:
            seq, change = stored[checkpoint[0]]
            yield from _faults_of_stored(subject, checkpoint[0], seq, change, progress)
            progress.checkpoint = seq
        else:
            # Lines leave no checkpoint out, so the absent one has the next number.
            if progress.checkpoint is not None:
                progress.checkpoint += 1
            yield from _faults_of_absent(subject, checkpoint, progress)


def _faults_of_stored(
    subject: Subject, checkpoint: UUID, seq: int, change: str, progress: _Progress
) -> Iterator[Fault]:
    """Yield the faults of a named checkpoint that is there."""
    if progress.checkpoint is not None and seq <= progress.checkpoint:
        yield subject.fault(
            subject.run,
            f"saved {checkpoint} in another order than its log says",
            checkpoint=checkpoint,
        )
    if change != progress.changes.get(checkpoint, change):
        yield subject.fault(
            subject.run,
            f"changed otherwise at {checkpoint} than its log says",
            checkpoint=checkpoint,
        )


def _faults_of_absent(
    subject: Subject, checkpoint: NamedCheckpoint, progress: _Progress
) -> Iterator[Fault]:
    """Yield a fault for a named checkpoint that is not there, unless it was removed on
    purpose.
    """
    if not _may_be_removed(subject, progress.checkpoint):
        id, superstep = checkpoint
        yield subject.missing_row(
            Checkpoint,
            f"{subject.run.id} {id} of superstep {superstep}",
            checkpoint=id,
        )


def _may_be_removed(subject: Subject, seq: int | None) -> bool:
    """Return whether the checkpoint of this number, if it is known, was removed on
    purpose.
    """
    removed = subject.removed.checkpoints
    # If checkpoints cannot be counted, a gap in the numbers of the rows themselves
    # still shows.
    if seq is None:
        return bool(removed)
    return seq in removed


def _iso(at: datetime | None) -> str:
    return at.isoformat() if at else ""


def _faults_of_start(
    subject: Subject, row: RunEvent, facts: dict[str, Any]
) -> Iterator[Fault]:
    """Yield a fault for each fact of the first line that the run's row contradicts."""
    run = subject.run
    if row.at != run.created_at:
        yield subject.fault(
            run, f"says that it was started at {run.created_at}, but it was at {row.at}"
        )
    current = {name: getattr(run, name) for name in _STARTED}
    # The first lines of older runs do not have these.
    if "ties" in facts:
        current["label"] = run.label
        current["facts"] = run.facts
        current["ties"] = _ties_of(run)
    for name, value in current.items():
        if not agrees(facts[name], value):
            yield subject.fault(
                run, f"has {name} {value!r}, but was started with {facts[name]!r}"
            )


def _ties_of(run: Run) -> dict[str, str]:
    ties = {}
    for name in TIES:
        value = getattr(run, name)
        if value:
            ties[name] = str(value)
    return ties


def _missing_attempts(
    subject: Subject, attempts: Sequence[tuple[int, Task, int]]
) -> Iterator[Fault]:
    """Yield a fault for each attempt that began and has no row in the journal. One
    query, none for no attempts.
    """
    if not attempts:
        return
    nodes = {task.node for _, task, _ in attempts}
    rows = TaskResult.objects.filter(run=subject.run.id, node__in=nodes)
    journaled = set(rows.values_list("line", "node", "visit", "index", "attempt"))
    for line, task, attempt in attempts:
        if (line, task.node, task.visit, task.index, attempt) not in journaled:
            yield subject.missing_row(
                TaskResult, f"{subject.run.id} {task} attempt {attempt}"
            )


def _missing_memory_records(
    subject: Subject, reads: Mapping[tuple[int, str], int]
) -> Iterator[Fault]:
    """Yield a fault for each task that has fewer records of its reads from memory than
    its checkpoint was saved with. One query, none for no reads.
    """
    if not reads:
        return
    nodes = {Task.parse(task).node for _, task in reads}
    rows = MemoryRecord.objects.filter(run=subject.run.id, node__in=nodes)
    stored: Counter[tuple[int, str]] = Counter()
    for row in rows.only("line", "node", "visit", "index").iterator():
        stored[row.line, row.task] += 1
    for (line, task), count in reads.items():
        if stored[line, task] < count:
            what = f"{subject.run.id} {task} {stored[line, task]} of {count}"
            yield subject.missing_row(MemoryRecord, what)
