"""The setters of a channel at a checkpoint: the node, and the person who patched it,
signed for it, edited it or settled an effect's unknown outcome. `path_log` calls it,
for many checkpoints of one run at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from checkpoints import lines
from checkpoints.core.state_paths import StatePath, nodes_that_ran
from checkpoints.ledger import reader
from checkpoints.models import (
    Checkpoint,
    PendingWrite,
    Run,
    RunEvent,
    RunLine,
    TaskResult,
)
from checkpoints.models.checkpoint import BEGINNINGS, Source
from checkpoints.models.run_line import Travel
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.spans import Among
from checkpoints.timeline.states import setting_entries
from checkpoints.timeline.touches import STEPPED, Touch, covers_supersteps
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import JOURNALED
from orchestrator.engine.step.held_patch import PATCH

_ACCEPTING = frozenset({"approve", "edit"})
"""Verdicts of a person who endorses a write."""
_RAN = frozenset({Source.SUPERSTEP, Source.FAILURE})
"""Sources of rows whose nodes ran in them."""

Visit = tuple[int, str, int]
"""Line, node and visit."""
ResultsByVisit = dict[Visit, list[TaskResult]]
ResultsBySuperstep = dict[tuple[int, int, str], list[TaskResult]]
"""Results by line, superstep and node."""


@frozen
class Setter:
    """`node`: names of nodes separated by commas, empty if no node set the channel;
    `person`: user names likewise.
    """

    node: str = ""
    person: str = ""


@frozen
class _Records:
    """The run that has the results and signatures of a run: itself; for a replay, which
    executes nothing and asks nobody, the run and the line that it replays.
    """

    run: Run
    line: int | None = None

    def visit(self, row: Checkpoint, entry: dict[str, Any]) -> Visit:
        """Return the visit of an entry of a row, on the line that has its records."""
        return self.line_of(row), entry["node"], entry.get("visit", 1)

    def line_of(self, row: Checkpoint) -> int:
        """Return the line that has the records of a row."""
        return row.line if self.line is None else self.line


def setters_of(
    run: Run,
    touches: Sequence[Touch],
    path: StatePath,
    *,
    among: Among = None,
) -> list[Setter]:
    """Return who set the path's channel at each of these checkpoints of one run. For a
    replay, those who did it in its origin, if that is `among` the runs that may be
    seen.

    At most five queries, two more for a replay; if a patch was signed, two more and one
    for each origin.
    """
    # What takes queries is read for all checkpoints together.
    records = _records_of(run, among)
    results = _results_of_visits(records, touches)
    covered_results = _results_of_covered(records, touches)
    settlements = _settlements(touches)
    signers = _signers(records, settlements, path.channel)
    patchers = _patchers(records, settlements, path.channel)
    starters = _starters_of_lines(run, touches)

    setters: list[Setter] = []
    for touch in touches:
        row = touch.row
        setter: Setter | None
        if row.source in BEGINNINGS:
            setter = Setter(person=starters.get(row.seq, ""))
        elif touch.is_covered:
            setter = _setter_when_covered(touch, path, records, covered_results)
        else:
            setter = _setter_in_any_superstep(touch, path, records)

        # The row itself shows who set it, unless one of these did.
        if setter is None:
            if row.source == Source.SETTLEMENT and path.channel in row.changed:
                setter = _setter_in_settlement(row, records, signers, patchers)
            else:
                setter = _setter_in_superstep(touch, path, records, results)
        setters.append(setter)
    return setters


def _records_of(run: Run, among: Among) -> _Records:
    """Return the records of a run; for a replay of a replay, those of the first run on
    the way back that is no replay.
    """
    records = _Records(run)
    replay = _line_of_replay(run)
    while replay is not None:
        visible = Run.objects.all() if among is None else among
        origin = visible.filter(id=replay.departure_run).first()
        # Nobody is named from a run that may not be seen.
        if origin is None:
            break
        records = _Records(origin, replay.parent_line)
        replay = _line_of_replay(origin)
    return records


def _line_of_replay(run: Run) -> RunLine | None:
    """Return the row that records what a replay replays; None for any other run. No
    query for a run that was started.
    """
    if run.origin_checkpoint is None:
        return None
    row = RunLine.objects.filter(run=run.id, number=1, travel=Travel.REPLAY).first()
    if row is not None:
        sealed_rows.verify_row(row, protection_of(run))
    return row


def _settlements(touches: Iterable[Touch]) -> list[Checkpoint]:
    """Return the settlements that may have set the channel themselves."""
    rows: list[Checkpoint] = []
    for touch in touches:
        if touch.row.source == Source.SETTLEMENT and not touch.is_covered:
            rows.append(touch.row)
    return rows


def _setter_in_superstep(
    touch: Touch,
    path: StatePath,
    records: _Records,
    results: ResultsByVisit,
) -> Setter:
    """Return the nodes of the superstep that set the channel; if nothing shows which
    superstep did, those of all that the row covers.
    """
    # Only the notes in the change show which nodes ran in the other supersteps.
    if path.channel not in touch.row.changed:
        return Setter(", ".join(nodes_that_ran(touch.change, path)))
    nodes: list[tuple[str, Sequence[TaskResult]]] = []
    for entry in setting_entries(touch.row.nodes):
        results_of_visit = results.get(records.visit(touch.row, entry), [])
        nodes.append((entry["node"], results_of_visit))
    return _setter_among_nodes(nodes, path)


def _setter_when_covered(
    touch: Touch,
    path: StatePath,
    records: _Records,
    covered_results: ResultsBySuperstep,
) -> Setter:
    """Return the nodes of the superstep that set the channel and whose row this one
    replaced.
    """
    line = records.line_of(touch.row)
    superstep = _covered_superstep(touch)
    setting_op = touch.change[touch.setting or 0]
    nodes: list[tuple[str, Sequence[TaskResult]]] = []
    for name in nodes_that_ran([setting_op], path):
        nodes.append((name, covered_results.get((line, superstep, name), [])))
    return _setter_among_nodes(nodes, path)


def _covered_superstep(touch: Touch) -> int:
    """Return the number of the covered superstep that set the path."""
    ops_behind = len(touch.change) - 1 - (touch.setting or 0)
    superstep = touch.row.superstep - ops_behind
    # A settlement has the number of the superstep before it.
    if touch.row.source != Source.SUPERSTEP:
        superstep += 1
    return superstep


def _setter_in_any_superstep(
    touch: Touch,
    path: StatePath,
    records: _Records,
) -> Setter | None:
    """Return all nodes that ran in the supersteps that a row covers, if nothing shows
    which of them set the channel, except for those whose results show that they wrote
    other channels. None for a row that shows more, or whose state names no nodes.
    """
    parent = _parent_of_covering_row(touch)
    if parent is None:
        return None
    document = touch.change[0]["value"]
    names = _nodes_that_ran_since(reader.document_at(parent.id) or {}, document)
    if not names:
        return None

    # Results of these supersteps may show that a node wrote other channels only.
    results: dict[str, list[TaskResult]] = defaultdict(list)
    supersteps = {
        "superstep__gt": parent.superstep,
        "superstep__lte": touch.row.superstep,
    }
    line = records.line_of(touch.row)
    for row in _done_results(records, line=line, **supersteps):
        results[row.node].append(row)

    nodes = [(name, results.get(name, [])) for name in names]
    return _setter_among_nodes(nodes, path)


def _parent_of_covering_row(touch: Touch) -> Checkpoint | None:
    """Return the kept row before one that covers several supersteps and has the whole
    state instead of their changes. None for any other row; one query for a row that has
    the whole state.
    """
    row = touch.row
    is_whole_state = len(touch.change) == 1 and touch.change[0]["op"] == "set"
    if not is_whole_state or row.source not in STEPPED or row.parent is None:
        return None
    parents = Checkpoint.objects.filter(id=row.parent, run=row.run_id, kept=True)
    parent = parents.first()
    if parent is None or not covers_supersteps(row, parent):
        return None
    return parent


def _nodes_that_ran_since(
    earlier: dict[str, Any],
    document: dict[str, Any],
) -> list[str]:
    """Return the nodes that ran between two documents, by what the diagnostics note of
    each, in the order of their first visits.
    """
    noted_earlier = earlier.get("diagnostics", {}).get("nodes", {})
    noted = document.get("diagnostics", {}).get("nodes", {})
    names = [name for name, note in noted.items() if note != noted_earlier.get(name)]

    visited = document.get("frontier", {}).get("visited", ())
    positions = {name: position for position, name in enumerate(visited)}
    return sorted(names, key=lambda name: positions.get(name, len(positions)))


def _setter_among_nodes(
    nodes: Iterable[tuple[str, Sequence[TaskResult]]],
    path: StatePath,
) -> Setter:
    """Return those of these nodes, each with its recorded results, that may have set
    the path's channel.
    """
    names: list[str] = []
    people: set[str] = set()
    for name, results in nodes:
        writing = [row for row in results if path.channel in _written_channels(row)]
        # A node without a record may have set it.
        if writing or not results:
            names.append(name)
        for row in writing:
            if row.settled_by:
                people.add(row.settled_by.get_username())
    return _setter(names, people)


def _setter(names: Iterable[str], people: Iterable[str]) -> Setter:
    """Return a setter that names each node and each person once."""
    return Setter(", ".join(dict.fromkeys(names)), ", ".join(sorted(people)))


def _written_channels(result: TaskResult) -> set[str]:
    output = read_value(result, "output") or {}
    return {write["channel"] for write in output.get("writes", ())}


def _results_of_visits(
    records: _Records,
    touches: Iterable[Touch],
) -> ResultsByVisit:
    """Return the recorded results of the journaled visits in these supersteps. One
    query, none for no such visits.
    """
    visits: set[Visit] = set()
    for touch in touches:
        # The row of a covered superstep lists other nodes; a settlement ran none.
        if touch.is_covered or touch.row.source not in _RAN:
            continue
        for entry in touch.row.nodes:
            if entry.get("effect") in JOURNALED:
                visits.add(records.visit(touch.row, entry))
    if not visits:
        return {}
    results: ResultsByVisit = defaultdict(list)
    for row in _done_results(records, **_conditions_of(visits)):
        results[row.line, row.node, row.visit].append(row)
    return results


def _conditions_of(visits: Iterable[Visit]) -> dict[str, Any]:
    """Return the conditions on the columns of rows that belong to these visits. They
    also match one node with the line or the visit of another.
    """
    on_lines, nodes, numbers = zip(*visits, strict=True)
    return {
        "line__in": set(on_lines),
        "node__in": set(nodes),
        "visit__in": set(numbers),
    }


def _results_of_covered(
    records: _Records,
    touches: Iterable[Touch],
) -> ResultsBySuperstep:
    """Return the recorded results of the supersteps that set the path and left no row.
    One query, none if there is no such superstep.
    """
    on_lines: set[int] = set()
    supersteps: set[int] = set()
    for touch in touches:
        if touch.is_covered:
            on_lines.add(records.line_of(touch.row))
            supersteps.add(_covered_superstep(touch))
    if not supersteps:
        return {}
    # This may also match one line with the superstep of another.
    results: ResultsBySuperstep = defaultdict(list)
    rows = _done_results(records, line__in=on_lines, superstep__in=supersteps)
    for row in rows:
        results[row.line, row.superstep, row.node].append(row)
    return results


def _done_results(records: _Records, **conditions: Any) -> Iterator[TaskResult]:
    """Yield the verified results of finished tasks, each with the person who settled
    it.
    """
    done = TaskResult.objects.filter(
        run=records.run.id, outcome=Outcome.DONE, **conditions
    )
    for row in done.select_related("settled_by"):
        sealed_rows.verify_row(row, protection_of(records.run))
        yield row


def _setter_in_settlement(
    row: Checkpoint,
    records: _Records,
    signers: dict[Visit, set[str]],
    patchers: dict[tuple[int, int], str],
) -> Setter:
    """Return the nodes whose signed writes a settlement applied to the channel, and who
    signed for them; for a patch also who made it.
    """
    names: list[str] = []
    people: set[str] = set()
    for entry in setting_entries(row.nodes):
        visit = records.visit(row, entry)
        if visit not in signers:
            continue
        names.append(entry["node"])
        people |= signers[visit]
        if entry["node"] == PATCH:
            line, _, number = visit
            # Without a name, a migration made the patch, or its author is unknown.
            patcher = patchers.get((line, number), "")
            if patcher:
                people.add(patcher)
    return _setter(names, people)


def _patchers(
    records: _Records,
    rows: Iterable[Checkpoint],
    channel: str,
) -> dict[tuple[int, int], str]:
    """Return who made each patch of the channel that these settlements applied, by line
    and number.
    """
    patchers: dict[tuple[int, int], str] = {}
    for row in rows:
        for entry in row.nodes:
            line, node, number = records.visit(row, entry)
            if node == PATCH and (line, number) not in patchers:
                patcher = _patcher(records.run, line, number, channel)
                patchers[line, number] = patcher
    return patchers


def _patcher(run: Run, line: int, number: int, channel: str) -> str:
    """Return the user name of the person who patched the channel; empty if a migration
    set it, or the person is not known.
    """
    if not _began_with_patch(run, line, number):
        return ""
    # A patch that still waits when a line departs is carried to the new line, so walk
    # back to the line that was begun with it: whoever began that line made it.
    for stretch in lines.past(run.id, line):
        patches = PendingWrite.objects.filter(
            run=stretch.run, line=stretch.line, node=PATCH, channel=channel
        )
        # No such patch waits on this line, so none was carried over from an older one.
        if not patches.exists():
            return ""
        begun = RunLine.objects.filter(run=stretch.run, number=stretch.line)
        row = begun.select_related("by", "run").first()
        if row is not None and channel in row.patched:
            sealed_rows.verify_row(row, protection_of(row.run))
            return _starter_of_line(row)
    return ""


def _starter_of_line(line: RunLine) -> str:
    """Return the user name of the person who began a line; empty for the system."""
    return line.by.get_username() if line.by else ""


def _began_with_patch(run: Run, line: int, number: int) -> bool:
    """Return whether a line began with the patch of this number: migrations make
    further ones later on the line. Two queries.
    """
    rows = Checkpoint.objects.filter(run=run.id, line=line).order_by("seq")
    begun_at = rows.values_list("event_seq", flat=True).first() or 0
    opened = RunEvent.objects.filter(
        run=run.id, type="request_opened", seq__lte=begun_at
    )
    return opened.filter(task__startswith=f"{PATCH}:{number}:").exists()


def _signers(
    records: _Records,
    rows: Sequence[Checkpoint],
    channel: str,
) -> dict[Visit, set[str]]:
    """Return for each visit that settlements applied and that wrote the channel who
    edited the write, or else who approved it.
    """
    visits: set[Visit] = set()
    for row in rows:
        visits.update(records.visit(row, entry) for entry in row.nodes)
    if not visits:
        return {}
    writes = _newest_revisions(records.run, visits, channel)

    # What a replay applies was decided in another log, with other numbers.
    until = None
    if records.line is None:
        until = max(row.event_seq for row in rows)
    approvers = _approvers(records.run, writes, until=until)

    signers: dict[Visit, set[str]] = defaultdict(set)
    for write in writes:
        visit = (write.line, write.node, write.visit)
        if write.author:
            signers[visit].add(write.author.get_username())
        else:
            # Also without a name the write counts as signed.
            revision = (str(write.write), write.revision)
            signers[visit] |= approvers.get(revision, set())
    return signers


def _newest_revisions(
    run: Run,
    visits: Collection[Visit],
    channel: str,
) -> list[PendingWrite]:
    """Return the newest revision of each write of these visits to the channel,
    verified. One query.
    """
    rows = PendingWrite.objects.filter(
        run=run.id, channel=channel, **_conditions_of(visits)
    )
    newest: dict[Any, PendingWrite] = {}
    for row in rows.select_related("author").order_by("revision"):
        newest[row.write] = row
    sealed_rows.verify_rows(newest.values(), protection_of(run))
    return list(newest.values())


def _approvers(
    run: Run,
    writes: Iterable[PendingWrite],
    *,
    until: int | None,
) -> dict[tuple[str, int], set[str]]:
    """Return who signed for which revision of a write, by the log up to an event. One
    query, none if all these writes were edited.
    """
    approvers: dict[tuple[str, int], set[str]] = defaultdict(set)
    # The author of an edited revision stands behind it alone.
    tasks = {row.task for row in writes if not row.author_id}
    if not tasks:
        return approvers
    signed = RunEvent.objects.filter(run=run.id, type="decision_signed", task__in=tasks)
    if until is not None:
        signed = signed.filter(seq__lte=until)
    for event in signed:
        sealed_rows.verify_row(event, protection_of(run))
        facts: dict[str, Any] = read_value(event, "payload")
        if facts["verdict"] in _ACCEPTING:
            approvers[facts["write"], facts["revision"]].add(event.actor)
    return approvers


def _starters_of_lines(
    run: Run,
    touches: Iterable[Touch],
) -> dict[int, str]:
    """Return who began the line that begins at each of these checkpoints, by seq; for a
    fork whose line has no row, who began its log. One query, none if no line begins.
    """
    rows = [touch.row for touch in touches if touch.row.source in BEGINNINGS]
    if not rows:
        return {}
    begun = RunLine.objects.filter(run=run.id, number__in={row.line for row in rows})
    lines_by_number: dict[int, RunLine] = {}
    for line in begun.select_related("by"):
        lines_by_number[line.number] = line
    sealed_rows.verify_rows(lines_by_number.values(), protection_of(run))

    # If a line has no row, the log still shows who started the run.
    starters: dict[int, str] = {}
    for row in rows:
        if row.line in lines_by_number:
            starters[row.seq] = _starter_of_line(lines_by_number[row.line])
        else:
            starters[row.seq] = starter_of(run)
    return starters


def starter_of(run: Run) -> str:
    """Return who started a run, by the first event of its log; empty for the system."""
    event = RunEvent.objects.filter(run=run.id, seq=1).first()
    if event is None:
        return ""
    sealed_rows.verify_row(event, protection_of(run))
    return event.actor
