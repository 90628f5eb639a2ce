"""Where a run comes from and what came of it: the tree of origins, forks, replays, parents and children.

Reads columns of runs and lines, never a payload of a checkpoint. The caller says which runs may be seen: one that may
not be is left out, with what hangs on it alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.models import Run, RunLine
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.spans import Among, check_among, origin_of
from orchestrator.engine.frozen import frozen

FARTHEST = 20
"""Levels that are followed up to the first run, and down from it."""
MOST = 200
"""Runs in one tree."""
CHILD = "child"
_UNREAD = ("input", "error", "progress")


@frozen
class Relative:
    """A run in the tree and how it came of the one above it: `fork`, `replay` or `child`; empty for the first.

    `seq` and `checkpoint` are what it left from, `task` is the task whose child it is. `fault` says why the row of its
    line does not prove to be what was written.
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
    """The tree from the first run on. `path` are the ids from it to the run that was asked for; `cut`: there are more
    than are told.
    """

    root: Relative
    path: tuple[UUID, ...]
    cut: bool

    def walk(self) -> Iterator[tuple[int, Relative]]:
        """Each run with its depth, from 0, the older relatives of one run first."""
        waiting = [(0, self.root)]
        while waiting:
            depth, one = waiting.pop()
            yield depth, one
            waiting += [(depth + 1, inner) for inner in reversed(one.relatives)]


def lineage(run_id: Run | UUID | str, *, among: Among = None) -> Lineage:
    """The tree in which a run stands. A query a level up to the first run, two a level down from it; raises
    `UnknownThing`.
    """
    check_among(among)
    run = run_id if isinstance(run_id, Run) else _runs(among).filter(id=uuid_of(run_id, "run")).first()
    if run is None:
        raise unknown_thing("run", run_id)
    way = _way_up(run, among)
    tree = {one.run.id: one for one in way}
    for upper, lower in pairwise(way):
        upper.relatives.append(lower)
    level, seen_all = [way[0]], _grow(among, tree, [way[0]])
    for _ in range(FARTHEST):
        level = [inner for one in level for inner in one.relatives]
        if not level:
            break
        seen_all = _grow(among, tree, level) and seen_all
    for one in tree.values():
        one.relatives.sort(key=lambda inner: inner.run.id)
    cut = bool(level) or not seen_all or len(way) > FARTHEST
    return Lineage(way[0], tuple(one.run.id for one in way), cut)


def _runs(among: Among) -> "QuerySet[Run]":
    return (Run.objects.all() if among is None else among).defer(*_UNREAD)


def _way_up(run: Run, among: Among) -> list[Relative]:
    """The run with those above it, the first first."""
    found = [Relative(run)]
    while len(found) <= FARTHEST and (upper := _above(run, found, among)) is not None:
        run = upper
        found.append(Relative(run))
    return _told(found[::-1])


def _above(run: Run, found: list[Relative], among: Among) -> Run | None:
    """The run that this one came of; it is noted at the last that was found what it left from."""
    origin = origin_of(run, among)
    if origin is not None:
        found[-1] = Relative(run, "fork", origin.seq, origin.id)
        return origin.run
    if run.origin_checkpoint is None and run.parent_run is not None:
        found[-1] = Relative(run, CHILD, task=run.parent_task)
        return _runs(among).filter(id=run.parent_run).first()
    return None


def _told(way: list[Relative]) -> list[Relative]:
    """The way down, each run by how its first line began. One query, none for a single run."""
    if len(way) == 1:
        return [Relative(way[0].run)]
    lines = RunLine.objects.filter(run__in=[one.run.id for one in way], number=1)
    known = {line.run_id: line for line in lines}
    below = [_of_line(one.run, known[one.run.id]) if one.run.id in known else one for one in way[1:]]
    return [Relative(way[0].run), *below]


def _of_line(run: Run, line: RunLine) -> Relative:
    fault = fault_of(line, protection_of(run))
    return Relative(run, line.travel, line.departure_seq, line.departure, fault=fault)


def _grow(among: Among, tree: dict[UUID, Relative], level: Iterable[Relative]) -> bool:
    """Hang what came of these runs into the tree. False: there is more than it may hold. Two queries."""
    ids = [one.run.id for one in level]
    lines = RunLine.objects.filter(departure_run__in=ids, number=1)
    if among is not None:
        lines = lines.filter(run__in=among.values("id"))
    lines = lines.select_related("run").defer(*(f"run__{name}" for name in _UNREAD)).order_by("id")
    children = _runs(among).filter(parent_run__in=ids).order_by("id")
    found: list[Any] = [(line.departure_run, _of_line(line.run, line)) for line in lines[: MOST + 1]]
    found += [(run.parent_run, Relative(run, CHILD, task=run.parent_task)) for run in children[: MOST + 1]]
    for above, one in found:
        if one.run.id in tree:
            continue
        if len(tree) >= MOST:
            return False
        tree[one.run.id] = one
        tree[above].relatives.append(one)
    return True
