"""The tree in which a run stands: its origins, forks, replays, parents and children.

Reads columns of runs and lines, never the payload of a checkpoint. The caller passes
the runs that may be seen: any other is left out, with what hangs on it alone.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.db.together import read_together
from checkpoints.models import Run, RunLine
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.spans import Among, check_among, origin_of
from orchestrator.engine.frozen import frozen

FARTHEST = 20
"""The most levels that are followed up to the first run, and down from it."""
MOST = 200
"""The most runs in one tree."""
CHILD = "child"
_UNREAD = ("input", "error", "progress")


@frozen
class Relative:
    """A run in the tree, and how it came from the one above it: `fork`, `replay` or
    `child`; empty for the first.

    `seq` and `checkpoint` are what it departed from, `task` is the task whose child it
    is. `fault` says why the row of its line does not verify.
    """

    run: Run
    how: str = ""
    seq: int | None = None
    checkpoint: UUID | None = None
    task: str = ""
    fault: SealFault | None = None
    relatives: list["Relative"] = field(default_factory=list)


@frozen
class Lineage:
    """The tree from the first run on. `path`: the ids from the first run to the one
    whose lineage this is; `cut`: there are further runs that the tree leaves out.
    """

    root: Relative
    path: tuple[UUID, ...]
    cut: bool

    def walk(self) -> Iterator[tuple[int, Relative]]:
        """Yield each run with its depth, from 0, the older relatives of a run first."""
        waiting = [(0, self.root)]
        while waiting:
            depth, relative = waiting.pop()
            yield depth, relative
            # The last of the list is the next to be visited.
            for below in reversed(relative.relatives):
                waiting.append((depth + 1, below))


Tree = dict[UUID, Relative]
"""The runs of a tree by id."""
Below = Mapping[str, Sequence[Any]]
"""The rows of `below_queries`, by their names."""


def lineage(
    run_id: Run | UUID | str,
    *,
    among: Among = None,
    below: Below | None = None,
) -> Lineage:
    """Return the tree in which a run stands. A query for each level up to the first
    run, one for their lines, and one for each level down from it. The caller may have
    read the rows `below` a run that came from no other, by `below_queries`. Raises
    `UnknownThing`.
    """
    check_among(among)
    run = _find_run(run_id, among)
    way = _way_from_first(run, among)
    tree: Tree = {}
    for relative in way:
        tree[relative.run.id] = relative
    for upper, lower in pairwise(way):
        upper.relatives.append(lower)

    # Runs on the way are in the tree already, so they aren't added a second time.
    level = [way[0]]
    has_all = _grow(tree, level, among, below)
    for _ in range(FARTHEST):
        level = _next_level(level)
        if not level:
            break
        has_all_of_level = _grow(tree, level, among)
        has_all = has_all and has_all_of_level

    for relative in tree.values():
        relative.relatives.sort(key=_age)
    # Whatever stopped the search, the caller can tell that there is more to see.
    is_cut = bool(level) or not has_all or len(way) > FARTHEST
    path = tuple(relative.run.id for relative in way)
    return Lineage(way[0], path, is_cut)


def _find_run(
    run: Run | UUID | str,
    among: Among,
) -> Run:
    if isinstance(run, Run):
        return run
    row = _visible_runs(among).filter(id=uuid_of(run, "run")).first()
    if row is None:
        raise unknown_thing("run", run)
    return row


def _visible_runs(among: Among) -> "QuerySet[Run]":
    runs = Run.objects.all() if among is None else among
    return runs.defer(*_UNREAD)


def _next_level(level: Collection[Relative]) -> list[Relative]:
    below: list[Relative] = []
    for relative in level:
        below += relative.relatives
    return below


def _age(relative: Relative) -> UUID:
    """Return the run's id: it begins with the time, so older runs come first."""
    return relative.run.id


def _way_from_first(
    run: Run,
    among: Among,
) -> list[Relative]:
    """Return the runs from the first one that is reached, down to this one: at most one
    more than `FARTHEST`. A query for each level.
    """
    way = [Relative(run)]
    while len(way) <= FARTHEST:
        relative, upper = _with_run_above(run, among)
        way[-1] = relative
        if upper is None:
            break
        run = upper
        way.append(Relative(run))
    return _with_lines(way[::-1])


def _with_run_above(
    run: Run,
    among: Among,
) -> tuple[Relative, Run | None]:
    """Return how a run came from the one above it, and that one; None if there is none,
    or it may not be seen.
    """
    origin = origin_of(run, among)
    if origin is not None:
        return Relative(run, "fork", origin.seq, origin.id), origin.run
    if run.origin_checkpoint is None and run.parent_run is not None:
        child = Relative(run, CHILD, task=run.parent_task)
        return child, _visible_runs(among).filter(id=run.parent_run).first()
    return Relative(run), None


def _with_lines(way: list[Relative]) -> list[Relative]:
    """Return the path with each run below the top completed from its first line's row:
    how and where it departed. One query; none for a single run.
    """
    # The top run's own origin is not shown.
    first = Relative(way[0].run)
    if len(way) == 1:
        return [first]
    runs = [relative.run.id for relative in way]
    lines: dict[UUID, RunLine] = {}
    for line in RunLine.objects.filter(run__in=runs, number=1):
        lines[line.run_id] = line

    with_lines = [first]
    for relative in way[1:]:
        # A child run has no such row.
        if relative.run.id in lines:
            relative = _relative_by_line(relative.run, lines[relative.run.id])
        with_lines.append(relative)
    return with_lines


def _relative_by_line(
    run: Run,
    line: RunLine,
) -> Relative:
    fault = fault_of(line, protection_of(run))
    return Relative(
        run,
        how=line.travel,
        seq=line.departure_seq,
        checkpoint=line.departure,
        fault=fault,
    )


def _grow(
    tree: Tree,
    level: Collection[Relative],
    among: Among,
    below: Below | None = None,
) -> bool:
    """Add to the tree the runs that came from these, and return whether it could hold
    all of them. One query, none if the rows `below` them were read.
    """
    if below is None:
        ids = [relative.run.id for relative in level]
        below = read_together(**below_queries(ids, among))
    for above, relative in _runs_in(below):
        if relative.run.id in tree:
            continue
        if len(tree) >= MOST:
            return False
        tree[relative.run.id] = relative
        tree[above].relatives.append(relative)
    return True


def below_queries(runs: Collection[UUID], among: Among) -> "dict[str, QuerySet[Any]]":
    """Return the queries for the forks and replays of these runs, and for the child runs
    of their tasks, the oldest first; for `read_together`.
    """
    # One more than a tree holds shows that it can't hold all.
    lines = _lines_from(runs, among)[: MOST + 1]
    children = _visible_runs(among).filter(parent_run__in=runs).order_by("id")
    return {
        "lines": lines,
        "departed": _visible_runs(among).filter(id__in=lines.values("run")),
        "children": children[: MOST + 1],
    }


def _runs_in(below: Below) -> Iterator[tuple[Any, Relative]]:
    """Yield the runs in the rows of `below_queries`, each with the run that it came
    from.
    """
    departed = {run.id: run for run in below["departed"]}
    for line in below["lines"]:
        # It is missing where it was removed between two statements.
        run = departed.get(line.run_id)
        if run is not None:
            yield line.departure_run, _relative_by_line(run, line)
    for run in below["children"]:
        yield run.parent_run, Relative(run, CHILD, task=run.parent_task)


def _lines_from(runs: Collection[UUID], among: Among) -> "QuerySet[RunLine]":
    """Return the first lines of the forks and replays of these runs, the oldest first."""
    lines = RunLine.objects.filter(departure_run__in=runs, number=1)
    if among is not None:
        lines = lines.filter(Exists(among.filter(id=OuterRef("run"))))
    return lines.order_by("id")
