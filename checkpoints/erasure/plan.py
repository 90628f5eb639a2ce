"""What an erasure would do, before anything is done: where values are, which runs inherited them, what stands against
it. Reads only.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from checkpoints import verification
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.core.state_paths import StatePath, parsed_path
from checkpoints.core.status import ENDS, Status
from checkpoints.erasure.places import PLACES
from checkpoints.erasure.state_words import texts_in, values_at
from checkpoints.erasure.store_forks import STORE_FORK, forks_made_of
from checkpoints.erasure.sweeps import SWEEPS
from checkpoints.models import Checkpoint, ErasureRecord, Run, RunLine
from checkpoints.models.run_line import Travel
from orchestrator.engine.errors import Erased, InvalidValue, TamperedRow, UnknownThing, WrongStatus
from orchestrator.engine.frozen import frozen

MOST_PATHS = 100
CHILD, ORIGIN, PARENT = "child", "origin", "parent"
NOTHING_LEFT = (Erased, UnknownThing)
"""Why nothing is to be erased of a run that inherited values: it is done, or they are not there any more."""

Held = Callable[[Iterable[UUID]], set[UUID]]
"""Which of these runs are under a legal hold."""
CONDITIONS: list[Callable[[Run], None]] = []
"""Of other floors: each raises where a run must stay as it is now. Asked before anything is written, and again under
the lock of the run.
"""


@frozen
class Inherited:
    """A run that has values of another one: it came of it (a fork, a replay, a child), or that came of it (an origin, a
    parent). `run` is None where it is not here any more, and of a fork that a store made and nobody has resumed.
    """

    id: UUID
    how: str
    run: Run | None

    @property
    def came_before(self) -> bool:
        """Whether the values came from there: it is named, and never erased along."""
        return self.how in (ORIGIN, PARENT)

    def json(self, *, along: bool) -> dict[str, Any]:
        """For the record. `along`: runs that came of it are erased with it."""
        erased = (along and not self.came_before) or (self.run is not None and self.run.erasure is not None)
        return {"run": str(self.id), "key": self.run.key if self.run else "", "how": self.how, "erased": erased}


@frozen
class ErasurePlan:
    """What would be erased of a run: `counts` are rows by place, `inherited` the other runs that have values of it,
    `words` the texts that stand at the paths now, `along` the plans of the runs that would be erased with it, `clears`
    the forks without a run that would go.
    """

    run: Run
    paths: tuple[StatePath, ...]
    counts: dict[str, int]
    inherited: tuple[Inherited, ...]
    words: tuple[str, ...] = ()
    along: tuple["ErasurePlan", ...] = ()
    clears: tuple[UUID, ...] = ()

    def json(self) -> dict[str, Any]:
        """For machines; never a value."""
        along = {*(one.run.id for one in self.along), *self.clears}
        return {
            "run": str(self.run.id),
            "key": self.run.key,
            "paths": [str(path) for path in self.paths],
            "rows": self.counts,
            "inherited": [one.json(along=one.id in along) for one in self.inherited],
        }


def plan_erasure(
    run_id: UUID | str, *, paths: Sequence[str] | None = None, forks: bool = False, held: Held
) -> ErasurePlan:
    """What an erasure of these paths of a run (None: of all its values) would do now, with `forks` also of the runs
    that came of it: one that is refused is refused here.

    Raises `UnknownThing` (run, or a path that is nowhere in it), `InvalidValue`, `WrongStatus` (it can still go on, is
    replayed now, or is held), `Erased` (it is so already), `TamperedRow`, `WrongKey`.
    """
    wanted = checked_paths(paths)
    run = Run.objects.filter(id=uuid_of(run_id, "run")).first()
    if run is None:
        raise unknown_thing("run", run_id)
    require_erasable(run, held)
    if going_on(run.id) is None:
        require_sound(run)
    found = values_at(run, wanted) if wanted else {}
    for path, values in found.items():
        if not values:
            raise UnknownThing(f"nothing stands at {path} in run {run.key}", run=str(run.id), path=str(path))
    words = sorted({text for values in found.values() for value in values for text in texts_in(value)})
    inherited = inherited_of(run)
    along = (_planned_along(one, wanted, held) for one in inherited) if forks else ()
    clears = tuple(one.id for one in inherited if forks and one.how == STORE_FORK)
    return ErasurePlan(run, wanted, _counts(run), inherited, tuple(words), tuple(one for one in along if one), clears)


def _planned_along(one: Inherited, wanted: tuple[StatePath, ...], held: Held) -> ErasurePlan | None:
    """The plan for a run that inherited values; None where it was erased already, or has nothing at these paths."""
    if one.run is None or one.came_before:
        return None
    try:
        return plan_erasure(one.id, paths=[str(path) for path in wanted] or None, held=held)
    except NOTHING_LEFT:
        return None


def checked_paths(paths: Any) -> tuple[StatePath, ...]:
    """The paths that texts write; none for None. Raises `InvalidValue`."""
    if paths is None:
        return ()
    if isinstance(paths, str) or not isinstance(paths, Sequence) or not 1 <= len(paths) <= MOST_PATHS:
        raise InvalidValue(f"paths is a list of 1 to {MOST_PATHS} paths, as applicant.name", path="paths")
    found = tuple(dict.fromkeys(parsed_path(path) for path in paths))
    if any("diagnostics" in path.partitions for path in found):
        raise InvalidValue("diagnostics are notes of the engine; no value stands there", path="paths")
    return found


def require_erasable(run: Run, held: Held) -> None:
    """Raise where a run must stay as it is now. Asked again under its lock."""
    # An imported run goes on nowhere, whatever it was doing when it was exported.
    if run.status == Status.TAMPERED:
        message = f"run {run.key} is tampered; put back what was changed, resume it, and cancel it first"
        raise WrongStatus(message, run=str(run.id), status=run.status)
    if run.status not in ENDS and not run.imported:
        message = f"run {run.key} is {run.status} and can still go on; cancel it first"
        raise WrongStatus(message, run=str(run.id), status=run.status)
    if held([run.id]):
        raise WrongStatus(f"run {run.key} is under a legal hold", run=str(run.id), status=run.status, hold=True)
    replaying = RunLine.objects.filter(departure_run=run.id, travel=Travel.REPLAY).exclude(run__status__in=ENDS)
    if (key := replaying.values_list("run__key", flat=True).first()) is not None:
        message = f"replay {key} reads what run {run.key} recorded, and has not ended; cancel it first"
        raise WrongStatus(message, run=str(run.id), status=run.status)
    if ErasureRecord.objects.filter(run=run.id, paths=[]).exclude(ended_at=None).exists():
        raise Erased(f"all values of run {run.key} were erased already", run=str(run.id))
    for condition in CONDITIONS:
        condition(run)


def require_sound(run: Run) -> None:
    """Raise where a run does not verify: to seal it anew would cover that up."""
    for fault in verification.verify_run(run.id, most=1):
        message = f"run {run.key} does not verify, so nothing is erased: {fault.reason}"
        raise TamperedRow(message, run=str(run.id), row=fault.what)


def going_on(run: UUID) -> ErasureRecord | None:
    """The erasure of a run that was begun and has not ended."""
    return ErasureRecord.objects.filter(run=run, ended_at=None).order_by("at", "id").first()


def inherited_of(run: Run) -> tuple[Inherited, ...]:
    """The runs that came of a run and what came of these, then those that it came of: each once, in order of their ids.
    Three queries a level of the first, two of the others, and one.
    """
    after, before = _followed(run.id, _came_of), _followed(run.id, _comes_from)
    there = Run.objects.in_bulk([*after, *before])
    named = (*sorted(after.items()), *sorted(before.items()))
    return tuple(Inherited(one, how, there.get(one)) for one, how in named)


def _followed(run: UUID, step: Callable[[set[UUID]], dict[UUID, str]]) -> dict[UUID, str]:
    """What is reached step by step, and how. A run that is not there any more had the values too, so it goes on behind
    it.
    """
    found: dict[UUID, str] = {}
    level = {run}
    while level:
        reached = {one: how for one, how in step(level).items() if one not in found and one != run}
        found |= reached
        level = set(reached)
    return found


def _came_of(level: set[UUID]) -> dict[UUID, str]:
    stored = dict.fromkeys(forks_made_of(level), STORE_FORK)
    lines = RunLine.objects.filter(departure_run__in=level, number=1).values_list("run", "travel")
    children = Run.objects.filter(parent_run__in=level).values_list("id", flat=True)
    # A fork that has a run has a line too, whoever made it.
    return stored | {run: str(travel) for run, travel in lines} | dict.fromkeys(children, CHILD)


def _comes_from(level: set[UUID]) -> dict[UUID, str]:
    origins = RunLine.objects.filter(run__in=level, number=1).values_list("departure_run", flat=True)
    parents = Run.objects.filter(id__in=level).exclude(parent_run=None).values_list("parent_run", flat=True)
    return dict.fromkeys(origins, ORIGIN) | {one: PARENT for one in parents if one is not None}


def _counts(run: Run) -> dict[str, int]:
    counts = {Run._meta.db_table: 1, Checkpoint._meta.db_table: Checkpoint.objects.filter(run=run.id).count()}
    counts |= {place.model._meta.db_table: place.rows(run.id).count() for place in PLACES}
    counts |= {sweep.name: sweep.count(run) for sweep in SWEEPS}
    return {name: count for name, count in counts.items() if count}
