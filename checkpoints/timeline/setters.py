"""Who set a channel at a checkpoint: the node, and the person who patched it, signed for it, edited it or said that it
had happened. `path_log` calls it, for many checkpoints of one run at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from checkpoints import lines
from checkpoints.core.state_paths import StatePath, nodes_that_ran
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, RunLine, TaskResult
from checkpoints.models.checkpoint import BEGINNINGS, Source
from checkpoints.models.run_line import Travel
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.spans import Among
from checkpoints.timeline.states import setting_entries
from checkpoints.timeline.touches import Touch
from orchestrator.engine.effect import JOURNALED
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH

_COUNTS = frozenset({"approve", "edit"})
Visit = tuple[int, str, int]
"""Line, node and visit."""


@frozen
class Setter:
    """`node`: names of nodes with commas between, empty where none set it; `person`: likewise user names."""

    node: str = ""
    person: str = ""


@frozen
class _Records:
    """Where results and signatures of a run are written down: with the run itself, or, for a replay, which executes and
    asks nothing, with the run and the line that it replays.
    """

    run: Run
    line: int | None = None

    def visit(self, row: Checkpoint, entry: dict[str, Any]) -> Visit:
        """The visit of an entry of a checkpoint, by the line on which its records are."""
        return self.line_of(row), entry["node"], entry.get("visit", 1)

    def line_of(self, row: Checkpoint) -> int:
        return row.line if self.line is None else self.line


def setters_of(run: Run, touches: Sequence[Touch], path: StatePath, *, among: Among = None) -> list[Setter]:
    """Who set the path's channel at each of these checkpoints of one run. At most five queries, two more for a replay,
    and where a patch was signed two and one an origin. Of a replay those are named who did it in its origin, if that is
    `among` the runs that may be seen.
    """
    records = _records_of(run, among)
    results = _results(records, touches)
    covered = _covered_results(records, touches)
    settled = [touch.row for touch in touches if touch.row.source == Source.SETTLEMENT and not touch.is_covered]
    signed = _signers(records, settled, path.channel)
    patched = _patchers(records, settled, path.channel)
    began = _beginners(run, [touch.row for touch in touches if touch.row.source in BEGINNINGS])
    found = []
    for touch in touches:
        row = touch.row
        if row.source in BEGINNINGS:
            found.append(Setter(person=began.get(row.seq, "")))
        elif touch.is_covered:
            found.append(_of_covered(touch, path, records, covered))
        elif any_of := _of_any_since(touch, path, records):
            found.append(any_of)
        elif row.source == Source.SETTLEMENT and path.channel in row.changed:
            found.append(_settled(row, records, signed, patched))
        else:
            found.append(_of_superstep(touch, path, records, results))
    return found


def _records_of(run: Run, among: Among) -> _Records:
    """The records of a run; of a replay of a replay those of the first run that was no replay."""
    records = _Records(run)
    while (row := _replayed(records.run)) is not None:
        runs = Run.objects.all() if among is None else among
        origin = runs.filter(id=row.departure_run).first()
        if origin is None:
            break
        records = _Records(origin, row.parent_line)
    return records


def _replayed(run: Run) -> RunLine | None:
    """The row that says what a replay replays; None for any other run. No query for a run that was started."""
    if run.origin_checkpoint is None:
        return None
    row = RunLine.objects.filter(run=run.id, number=1, travel=Travel.REPLAY).first()
    if row is not None:
        sealed_rows.verify_row(row, protection_of(run))
    return row


def _of_superstep(touch: Touch, path: StatePath, records: _Records, results: dict[Visit, list[TaskResult]]) -> Setter:
    """The nodes of the superstep that set it; where nothing tells which superstep did, of all that its row covers."""
    if path.channel not in touch.row.changed:
        return Setter(", ".join(nodes_that_ran(touch.change, path)))
    entries = setting_entries(touch.row.nodes)
    return _of_nodes([(entry["node"], results.get(records.visit(touch.row, entry), [])) for entry in entries], path)


def _of_covered(
    touch: Touch, path: StatePath, records: _Records, covered: dict[tuple[int, int, str], list[TaskResult]]
) -> Setter:
    """The nodes of the superstep that set it, whose row was replaced by this one."""
    line, superstep = records.line_of(touch.row), _superstep_of(touch)
    names = nodes_that_ran([touch.change[touch.setting or 0]], path)
    return _of_nodes([(name, covered.get((line, superstep, name), [])) for name in names], path)


def _parent_behind(touch: Touch) -> Checkpoint | None:
    """The kept row before one that covers several supersteps and has the whole state in the place of their changes.
    None for any other row; one query for a row that has the whole state.
    """
    row = touch.row
    whole = len(touch.change) == 1 and touch.change[0]["op"] == "set"
    if not whole or row.source not in _STEPPED or row.parent is None:
        return None
    parent = Checkpoint.objects.filter(id=row.parent, run=row.run_id, kept=True).first()
    own = 1 if row.source == Source.SUPERSTEP else 0
    return parent if parent is not None and row.superstep - parent.superstep > own else None


def _of_any_since(touch: Touch, path: StatePath, records: _Records) -> Setter | None:
    """All nodes that ran in the supersteps that a row covers, where nothing tells which of them set the path; not those
    whose results say that they wrote something else. None for a row that tells more, or whose state names no nodes.
    """
    parent = _parent_behind(touch)
    if parent is None:
        return None
    before = reader.document_at(parent.id) or {}
    earlier = before.get("diagnostics", {}).get("nodes", {})
    now = touch.change[0]["value"]
    ran = [name for name, noted in now.get("diagnostics", {}).get("nodes", {}).items() if noted != earlier.get(name)]
    if not ran:
        return None
    order = {name: place for place, name in enumerate(now.get("frontier", {}).get("visited", ()))}
    results: dict[str, list[TaskResult]] = defaultdict(list)
    for row in _done(
        records, line=records.line_of(touch.row), superstep__gt=parent.superstep, superstep__lte=touch.row.superstep
    ):
        results[row.node].append(row)
    names = sorted(ran, key=lambda name: order.get(name, len(order)))
    return _of_nodes([(name, results.get(name, [])) for name in names], path)


def _superstep_of(touch: Touch) -> int:
    """The number of the covered superstep that set the path. A settlement has the number of the superstep before it."""
    behind = len(touch.change) - 1 - (touch.setting or 0)
    return touch.row.superstep - behind + (0 if touch.row.source == Source.SUPERSTEP else 1)


def _of_nodes(nodes: Iterable[tuple[str, Sequence[TaskResult]]], path: StatePath) -> Setter:
    """Those of these nodes, each with its recorded results, that may have set the path's channel."""
    names: list[str] = []
    people: set[str] = set()
    for name, recorded in nodes:
        wrote = [row for row in recorded if path.channel in _channels(row)]
        if wrote or not recorded:
            names.append(name)
        people |= {row.settled_by.get_username() for row in wrote if row.settled_by}
    return Setter(", ".join(dict.fromkeys(names)), ", ".join(sorted(people)))


def _channels(row: TaskResult) -> set[str]:
    return {write["channel"] for write in (read_value(row, "output") or {}).get("writes", ())}


def _results(records: _Records, touches: Sequence[Touch]) -> dict[Visit, list[TaskResult]]:
    """Recorded results of the visits of these supersteps that are journaled."""
    entries = [(touch.row, entry) for touch in touches if not touch.is_covered for entry in touch.row.nodes]
    visits = {
        records.visit(row, entry) for row, entry in entries if entry.get("effect") in JOURNALED and row.source in _RAN
    }
    if not visits:
        return {}
    on_lines, nodes, numbers = (set(part) for part in zip(*visits, strict=True))
    found = defaultdict(list)
    for row in _done(records, line__in=on_lines, node__in=nodes, visit__in=numbers):
        found[row.line, row.node, row.visit].append(row)
    return found


def _covered_results(records: _Records, touches: Sequence[Touch]) -> dict[tuple[int, int, str], list[TaskResult]]:
    """Recorded results by line, superstep and node, of supersteps that left no row. No query where there is none."""
    places = {(records.line_of(touch.row), _superstep_of(touch)) for touch in touches if touch.is_covered}
    if not places:
        return {}
    on_lines, supersteps = (set(part) for part in zip(*places, strict=True))
    found = defaultdict(list)
    for row in _done(records, line__in=on_lines, superstep__in=supersteps):
        found[row.line, row.superstep, row.node].append(row)
    return found


def _done(records: _Records, **where: Any) -> Iterable[TaskResult]:
    rows = TaskResult.objects.filter(run=records.run.id, outcome=Outcome.DONE, **where).select_related("settled_by")
    for row in rows:
        sealed_rows.verify_row(row, protection_of(records.run))
        yield row


_RAN = frozenset({Source.SUPERSTEP, Source.FAILURE})
_STEPPED = _RAN | {Source.SETTLEMENT}


def _settled(
    row: Checkpoint, records: _Records, signed: dict[Visit, set[str]], patched: dict[tuple[int, int], str]
) -> Setter:
    nodes, people = [], set()
    for entry in setting_entries(row.nodes):
        visit = records.visit(row, entry)
        if visit in signed:
            nodes.append(entry["node"])
            people |= signed[visit]
            if entry["node"] == PATCH:
                people |= {patched.get((records.line_of(row), visit[2]), "")} - {""}
    return Setter(", ".join(dict.fromkeys(nodes)), ", ".join(sorted(people)))


def _patchers(records: _Records, rows: Sequence[Checkpoint], channel: str) -> dict[tuple[int, int], str]:
    """By line and number who made each patch of the channel that these settlements applied. One that waited at a point
    from which somebody departed was made by whoever began an older line.
    """
    visits = [records.visit(row, entry) for row in rows for entry in row.nodes if entry["node"] == PATCH]
    patches = {(line, number) for line, _, number in visits}
    return {(line, number): _patcher(records.run, line, number, channel) for line, number in patches}


def _patcher(run: Run, line: int, number: int, channel: str) -> str:
    """The user name of who patched the channel; empty where a migration set it, or nobody is known."""
    if not _began_with(run, line, number):
        return ""
    for stretch in lines.past(run.id, line, known=run):
        if not PendingWrite.objects.filter(run=stretch.run, line=stretch.line, node=PATCH, channel=channel).exists():
            return ""
        begun = RunLine.objects.filter(run=stretch.run, number=stretch.line).select_related("by", "run").first()
        if begun is not None and channel in begun.patched:
            sealed_rows.verify_row(begun, protection_of(begun.run))
            return begun.by.get_username() if begun.by else ""
    return ""


def _began_with(run: Run, line: int, number: int) -> bool:
    """Return whether a line began with a patch of this number; a migration on its way makes others. Two queries."""
    first = Checkpoint.objects.filter(run=run.id, line=line).order_by("seq")
    begun = first.values_list("event_seq", flat=True).first() or 0
    opened = RunEvent.objects.filter(run=run.id, type="request_opened", seq__lte=begun)
    return opened.filter(task__startswith=f"{PATCH}:{number}:").exists()


def _signers(records: _Records, rows: Sequence[Checkpoint], channel: str) -> dict[Visit, set[str]]:
    """For each visit that settlements applied and that wrote the channel: who edited it, else who approved it."""
    visits = {records.visit(row, entry) for row in rows for entry in row.nodes}
    if not visits:
        return {}
    newest = _newest_revisions(records.run, visits, channel)
    # What a replay applies was decided in another log, whose numbers are others.
    upto = max(row.event_seq for row in rows) if records.line is None else None
    approved = _approvals(records.run, newest, upto=upto)
    found: dict[Visit, set[str]] = defaultdict(set)
    for write in newest:
        people = {write.author.get_username()} if write.author else approved[str(write.write), write.revision]
        found[write.line, write.node, write.visit] |= people
    return found


def _newest_revisions(run: Run, visits: Iterable[Visit], channel: str) -> list[PendingWrite]:
    on_lines, nodes, numbers = (set(part) for part in zip(*visits, strict=True))
    rows = PendingWrite.objects.filter(
        run=run.id, line__in=on_lines, node__in=nodes, visit__in=numbers, channel=channel
    )
    newest = {row.write: row for row in rows.select_related("author").order_by("revision")}
    sealed_rows.verify_rows(newest.values(), protection_of(run))
    return list(newest.values())


def _approvals(run: Run, writes: Sequence[PendingWrite], *, upto: int | None) -> dict[tuple[str, int], set[str]]:
    """Who signed for which revision of a write, as the log says."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    tasks = {row.task for row in writes if not row.author_id}
    if not tasks:
        return found
    signed = RunEvent.objects.filter(run=run.id, type="decision_signed", task__in=tasks)
    for line in signed if upto is None else signed.filter(seq__lte=upto):
        sealed_rows.verify_row(line, protection_of(run))
        facts: dict[str, Any] = read_value(line, "payload")
        if facts["verdict"] in _COUNTS:
            found[facts["write"], facts["revision"]].add(line.actor)
    return found


def _beginners(run: Run, rows: Sequence[Checkpoint]) -> dict[int, str]:
    """Who began the line that begins with each of these rows; of a fork whose line has no row, who began its log."""
    found = {}
    begun = RunLine.objects.filter(run=run.id, number__in={row.line for row in rows}).select_related("by")
    known = {line.number: line for line in begun} if rows else {}
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
