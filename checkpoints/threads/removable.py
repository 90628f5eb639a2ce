"""Chooses which rows and lines of a thread to remove when only some of its checkpoints
stay.

A checkpoint keeps its newest row. Its earlier rows go, and so do all lines about
removed checkpoints: among them the writes, which are values.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.threads import reader
from checkpoints.threads.contents import ThreadState
from checkpoints.threads.names import RAN, WRITTEN, place_of
from checkpoints.threads.reader import SavedLine
from orchestrator.engine.frozen import frozen

Name = tuple[str, str]
"""Namespace and id of a checkpoint."""
Choose = Callable[[Sequence[SavedLine]], Collection[SavedLine]]
"""Returns the checkpoints of a thread that stay."""
Needs = Callable[[ThreadState], Collection[str]]
"""Returns the channels whose values its engine rebuilds from earlier checkpoints."""


@frozen
class Removable:
    """The rows and lines of a thread that go, lines by their numbers. `staying`: the
    lines of the checkpoints that stay, in order.
    """

    rows: frozenset[UUID]
    lines: frozenset[int]
    staying: tuple[SavedLine, ...]

    @property
    def staying_names(self) -> frozenset[Name]:
        return frozenset(_names(self.staying))


def latest_of_each(
    lines: Sequence[SavedLine],
) -> list[SavedLine]:
    """Return the checkpoint with the highest id of each namespace."""
    latest: dict[str, SavedLine] = {}
    for line in lines:
        other = latest.get(line.namespace)
        if other is None or other.id < line.id:
            latest[line.namespace] = line
    return list(latest.values())


def made_by_others(
    lines: Sequence[SavedLine],
    engine_runs: Collection[str],
) -> list[SavedLine]:
    """Return the checkpoints that none of these runs of the engine made."""
    return [line for line in lines if line.engine_run not in engine_runs]


def removable(
    run: Run,
    choose: Choose,
    needs: Needs,
    *,
    pinned: Collection[UUID],
) -> Removable:
    """Return what to remove from a thread. The chosen checkpoints stay, and so do
    pinned rows and those from which the engine rebuilds values. Raises `TamperedRow`,
    `WrongKey`.
    """
    lines = reader.saved_lines(run)
    present = _with_rows(run, lines)
    chosen = choose(list(present.values()))
    staying = {line.name: line for line in chosen}
    for name, line in present.items():
        if line.row in pinned:
            staying[name] = line
    if len(staying) < len(present):
        for name in _needed(run, list(staying), needs):
            staying[name] = present[name]

    staying_numbers = _numbers(staying.values())
    staying_rows = set(pinned)
    for line in staying.values():
        staying_rows.add(line.row)
    going = []
    going_rows = set()
    for line in lines:
        if line.seq in staying_numbers:
            continue
        going.append(line)
        if line.row not in staying_rows:
            going_rows.add(line.row)
    return Removable(
        frozenset(going_rows),
        frozenset(_lines_about(run, going, staying)),
        tuple(sorted(staying.values(), key=_number)),
    )


def lines_without_rows(
    run: Run,
) -> frozenset[int]:
    """Return the numbers of the lines about checkpoints of a locked thread whose rows
    are gone. Raises `TamperedRow`, `WrongKey`.
    """
    rows = Checkpoint.objects.filter(run=run.id)
    stored = set(rows.values_list("id", flat=True))
    staying = {}
    going = []
    for line in reader.saved_lines(run):
        if line.row in stored:
            staying[line.name] = line
        else:
            going.append(line)
    return frozenset(_lines_about(run, going, staying))


def _with_rows(
    run: Run,
    lines: Sequence[SavedLine],
) -> dict[Name, SavedLine]:
    """Return the newest line of each checkpoint whose row is there, by its names."""
    newest = {line.name: line for line in lines}
    rows = Checkpoint.objects.filter(run=run.id)
    stored = set(rows.values_list("id", flat=True))
    present = {}
    for name, line in newest.items():
        if line.row in stored:
            present[name] = line
    return present


@frozen
class _Ancestry:
    """The facts that say how far back a checkpoint is rebuilt: its parent, the channels
    that its engine rebuilds from earlier ones, and those whose values it holds.
    """

    parent: Name
    needed: frozenset[str]
    held: frozenset[str]


def _needed(
    run: Run,
    names: Sequence[Name],
    needs: Needs,
) -> set[Name]:
    """Return the ancestors of checkpoints, as far back as their engine needs them. Reads
    all checkpoints, in pages.
    """
    points = {}
    for point in reader.all_points(run):
        points[point.namespace, point.id] = _Ancestry(
            (point.namespace, point.parent or ""),
            frozenset(needs(point)),
            frozenset(point.blobs),
        )

    needed = set()
    for name in names:
        missing = points[name].needed
        ancestor = points[name].parent
        while missing and ancestor in points:
            needed.add(ancestor)
            missing -= points[ancestor].held
            ancestor = points[ancestor].parent
    return needed


def _lines_about(
    run: Run,
    going: Sequence[SavedLine],
    staying: Mapping[Name, SavedLine],
) -> set[int]:
    """Return the numbers of the lines about removed checkpoints."""
    about = _numbers(going)
    # The line before says the same of the row, unless the row began a line of the run.
    before = [line.seq - 1 for line in going]
    of_rows = _of_type(run, "checkpoint_saved").filter(seq__in=before)
    about.update(of_rows.values_list("seq", flat=True))

    going_names = set()
    for namespace, id_ in _names(going) - staying.keys():
        going_names.add((place_of(namespace), id_))
    written = _of_type(run, WRITTEN)
    for seq, place, id_ in written.values_list("seq", "node", "task"):
        if (place, id_) in going_names:
            about.add(seq)

    engine_runs = {line.engine_run for line in going}
    for line in staying.values():
        engine_runs.discard(line.engine_run)
    ran = _of_type(run, RAN).filter(task__in=engine_runs)
    about.update(ran.values_list("seq", flat=True))
    return about


def _of_type(
    run: Run,
    type_: str,
) -> "QuerySet[RunEvent]":
    return RunEvent.objects.filter(run=run.id, type=type_)


def _numbers(
    lines: Collection[SavedLine],
) -> set[int]:
    return {line.seq for line in lines}


def _names(
    lines: Collection[SavedLine],
) -> set[Name]:
    return {line.name for line in lines}


def _number(
    line: SavedLine,
) -> int:
    return line.seq
