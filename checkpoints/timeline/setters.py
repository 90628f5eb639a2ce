"""Who set a channel at a checkpoint: the node, and the person who patched it, signed for it, edited it or said that it
had happened. `path_log` calls it, for many checkpoints of one run at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from checkpoints.core.state_paths import StatePath, nodes_that_ran
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, RunLine, TaskResult
from checkpoints.models.checkpoint import BEGINNINGS, Source
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.states import setting_entries
from checkpoints.timeline.touches import Touch
from orchestrator.engine.effect import JOURNALED
from orchestrator.engine.frozen import frozen

_COUNTS = frozenset({"approve", "edit"})
Visit = tuple[int, str, int]
"""Line, node and visit."""


@frozen
class Setter:
    """`node`: names of nodes with commas between, empty where none set it; `person`: likewise user names."""

    node: str = ""
    person: str = ""


def setters_of(run: Run, touches: Sequence[Touch], path: StatePath) -> list[Setter]:
    """Who set the path's channel at each of these checkpoints of one run. At most four queries."""
    results = _results(run, touches)
    signed = _signers(run, [touch.row for touch in touches if touch.row.source == Source.SETTLEMENT], path.channel)
    began = _beginners(run, [touch.row for touch in touches if touch.row.source in BEGINNINGS])
    found = []
    for touch in touches:
        row = touch.row
        if row.source in BEGINNINGS:
            found.append(Setter(person=began.get(row.seq, "")))
        elif row.source == Source.SETTLEMENT and path.channel in row.changed:
            found.append(_settled(row, signed))
        else:
            found.append(_of_superstep(touch, path, results))
    return found


def _of_superstep(touch: Touch, path: StatePath, results: dict[Visit, list[TaskResult]]) -> Setter:
    """The nodes of the superstep that set it; where supersteps before it did not stay in the timeline, of those too."""
    if path.channel not in touch.row.changed:
        return Setter(", ".join(nodes_that_ran(touch.change, path)))
    names, people = [], set()
    for entry in setting_entries(touch.row.nodes):
        recorded = results.get(_visit(touch.row, entry), [])
        wrote = [row for row in recorded if path.channel in _channels(row)]
        if wrote or not recorded:
            names.append(entry["node"])
        people |= {row.settled_by.get_username() for row in wrote if row.settled_by}
    return Setter(", ".join(dict.fromkeys(names)), ", ".join(sorted(people)))


def _channels(row: TaskResult) -> set[str]:
    return {write["channel"] for write in (read_value(row, "output") or {}).get("writes", ())}


def _results(run: Run, touches: Sequence[Touch]) -> dict[Visit, list[TaskResult]]:
    """Recorded results of the visits of these supersteps that are journaled."""
    entries = [(touch.row, entry) for touch in touches for entry in touch.row.nodes]
    visits = {_visit(row, entry) for row, entry in entries if entry.get("effect") in JOURNALED and row.source in _RAN}
    if not visits:
        return {}
    lines, nodes, numbers = (set(part) for part in zip(*visits, strict=True))
    rows = TaskResult.objects.filter(run=run.id, line__in=lines, node__in=nodes, visit__in=numbers)
    found = defaultdict(list)
    for row in rows.filter(outcome=Outcome.DONE).select_related("settled_by"):
        sealed_rows.verify_row(row, protection_of(run))
        found[row.line, row.node, row.visit].append(row)
    return found


def _visit(row: Checkpoint, entry: dict[str, Any]) -> Visit:
    return row.line, entry["node"], entry.get("visit", 1)


_RAN = frozenset({Source.SUPERSTEP, Source.FAILURE})


def _settled(row: Checkpoint, signed: dict[Visit, set[str]]) -> Setter:
    nodes, people = [], set()
    for entry in setting_entries(row.nodes):
        visit = _visit(row, entry)
        if visit in signed:
            nodes.append(entry["node"])
            people |= signed[visit]
    return Setter(", ".join(dict.fromkeys(nodes)), ", ".join(sorted(people)))


def _signers(run: Run, rows: Sequence[Checkpoint], channel: str) -> dict[Visit, set[str]]:
    """For each visit that settlements applied and that wrote the channel: who edited it, else who approved it."""
    visits = {_visit(row, entry) for row in rows for entry in row.nodes}
    if not visits:
        return {}
    newest = _newest_revisions(run, visits, channel)
    approved = _approvals(run, newest, upto=max(row.event_seq for row in rows))
    found: dict[Visit, set[str]] = defaultdict(set)
    for write in newest:
        people = {write.author.get_username()} if write.author else approved[str(write.write), write.revision]
        found[write.line, write.node, write.visit] |= people
    return found


def _newest_revisions(run: Run, visits: Iterable[Visit], channel: str) -> list[PendingWrite]:
    lines, nodes, numbers = (set(part) for part in zip(*visits, strict=True))
    rows = PendingWrite.objects.filter(run=run.id, line__in=lines, node__in=nodes, visit__in=numbers, channel=channel)
    newest = {row.write: row for row in rows.select_related("author").order_by("revision")}
    sealed_rows.verify_rows(newest.values(), protection_of(run))
    return list(newest.values())


def _approvals(run: Run, writes: Sequence[PendingWrite], *, upto: int) -> dict[tuple[str, int], set[str]]:
    """Who signed for which revision of a write, as the log says."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    tasks = {row.task for row in writes if not row.author_id}
    if tasks:
        lines = RunEvent.objects.filter(run=run.id, type="decision_signed", task__in=tasks, seq__lte=upto)
        for line in lines:
            sealed_rows.verify_row(line, protection_of(run))
            facts: dict[str, Any] = read_value(line, "payload")
            if facts["verdict"] in _COUNTS:
                found[facts["write"], facts["revision"]].add(line.actor)
    return found


def _beginners(run: Run, rows: Sequence[Checkpoint]) -> dict[int, str]:
    """Who began the line that begins with each of these rows; of a fork whose line has no row, who began its log."""
    found = {}
    lines = RunLine.objects.filter(run=run.id, number__in={row.line for row in rows}).select_related("by")
    known = {line.number: line for line in lines} if rows else {}
    sealed_rows.verify_rows(known.values(), protection_of(run))
    for row in rows:
        line = known.get(row.line)
        found[row.seq] = line.by.get_username() if line and line.by else "" if line else starter_of(run)
    return found


def starter_of(run: Run) -> str:
    """Who started a run, by the first line of its log; empty for the system."""
    line = RunEvent.objects.filter(run=run.id, seq=1).first()
    if line is None:
        return ""
    sealed_rows.verify_row(line, protection_of(run))
    return line.actor
