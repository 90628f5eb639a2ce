"""Planning an erasure before anything is done: where values are, which runs inherited
them, what forbids it. Reads only.
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
from checkpoints.models import Checkpoint, ErasureRecord, Run, RunEvent, RunLine
from checkpoints.models.run_line import Travel
from checkpoints.threads import is_thread
from checkpoints.threads.names import COPIED
from orchestrator.engine.errors import (
    Erased,
    InvalidValue,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen

MOST_PATHS = 100
CHILD = "child"
COPY = "copy"
ORIGIN = "origin"
PARENT = "parent"
NOTHING_LEFT = (Erased, UnknownThing)
"""The refusals for which a run that inherited values is left out: they are erased
already, or they are no longer there.
"""

# Retention, which knows of holds, builds on this package and passes the check in.
Held = Callable[[Iterable[UUID]], set[UUID]]
"""Returns those of these runs that are under a legal hold."""
CONDITIONS: list[Callable[[Run], None]] = []
"""Of other floors: each raises if a run must stay as it is now. Checked before anything
is written, and again under the lock of the run.
"""


@frozen
class Inherited:
    """A run that has values of another one: it came of it (a fork, a replay, a child, a
    copy), or that came of it (an origin, a parent). `run` is None if it is no longer
    here, and of a fork that a store made and nobody has resumed.
    """

    id: UUID
    how: str
    run: Run | None

    @property
    def came_before(self) -> bool:
        """Return whether the values came from there: it is listed, and never erased
        along.
        """
        return self.how in (ORIGIN, PARENT)

    def json(self, *, along: bool) -> dict[str, Any]:
        """Return it for the record. `along`: runs that came of it are erased too."""
        erased_before = self.run is not None and self.run.erasure is not None
        erased = erased_before or (along and not self.came_before)
        return {
            "run": str(self.id),
            "key": self.run.key if self.run else "",
            "how": self.how,
            "erased": erased,
        }


@frozen
class ErasurePlan:
    """The values of a run that would be erased: `counts` are rows by place, `inherited` the other
    runs that have values of it, `words` the texts that stand at the paths now, `along`
    the plans of the runs that would be erased with it, `clears` the forks without a run
    that would go.
    """

    run: Run
    paths: tuple[StatePath, ...]
    counts: dict[str, int]
    inherited: tuple[Inherited, ...]
    words: tuple[str, ...] = ()
    along: tuple["ErasurePlan", ...] = ()
    clears: tuple[UUID, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return it for machines; never with a value."""
        along = {*self.clears}
        for run_plan in self.along:
            along.add(run_plan.run.id)
        inherited = [heir.json(along=heir.id in along) for heir in self.inherited]
        return {
            "run": str(self.run.id),
            "key": self.run.key,
            "paths": [str(path) for path in self.paths],
            "rows": self.counts,
            "inherited": inherited,
        }


def plan_erasure(
    run_id: UUID | str,
    *,
    paths: Sequence[str] | None = None,
    forks: bool = False,
    held: Held,
) -> ErasurePlan:
    """Return what an erasure of these paths of a run (None: of all its values) would do
    now, and, with `forks`, of the runs that came from it. An erasure that would be
    refused is refused here.

    Raises `UnknownThing` (run, or a path that is nowhere in it), `InvalidValue`,
    `WrongStatus` (it can still go on, is replayed now, or is held), `Erased` (it is so
    already), `TamperedRow`, `WrongKey`.
    """
    state_paths = checked_paths(paths)
    run = Run.objects.filter(id=uuid_of(run_id, "run")).first()
    if run is None:
        raise unknown_thing("run", run_id)
    require_erasable(run, held)
    _require_whole(run, state_paths)
    # An erasure under way verified the run when it began, and verifies each row again.
    if going_on(run.id) is None:
        require_sound(run)
    words = _words_at(run, state_paths)
    counts = _counts(run)
    inherited = inherited_of(run)
    along = []
    clears = []
    if forks:
        for heir in inherited:
            # Without its own forks: `inherited` goes to any depth.
            run_plan = _planned_along(heir, state_paths, held)
            if run_plan is not None:
                along.append(run_plan)
            if heir.how == STORE_FORK:
                clears.append(heir.id)
    return ErasurePlan(
        run=run,
        paths=state_paths,
        counts=counts,
        inherited=inherited,
        words=words,
        along=tuple(along),
        clears=tuple(clears),
    )


def _require_whole(run: Run, paths: tuple[StatePath, ...]) -> None:
    """Raise `InvalidValue` for paths in a thread: each value is also in bytes that only
    its engine can read, in which no path leads anywhere.
    """
    if paths and is_thread(run):
        raise InvalidValue(
            f"run {run.key} is a thread of another engine, which is erased as a whole",
            path="paths",
        )


def _words_at(run: Run, paths: tuple[StatePath, ...]) -> tuple[str, ...]:
    """Return the texts in all values at these paths. Raises `UnknownThing` for a path
    that is nowhere in the run.
    """
    if not paths:
        return ()
    words: set[str] = set()
    values_by_path = values_at(run, paths)
    for path, values in values_by_path.items():
        if not values:
            raise UnknownThing(
                f"nothing stands at {path} in run {run.key}",
                run=str(run.id),
                path=str(path),
            )
        for value in values:
            words.update(texts_in(value))
    return tuple(sorted(words))


def _planned_along(
    heir: Inherited, paths: tuple[StatePath, ...], held: Held
) -> ErasurePlan | None:
    """Return the plan for a run that inherited values; None if it was erased already,
    or has nothing at these paths.
    """
    if heir.run is None or heir.came_before:
        return None
    texts = [str(path) for path in paths]
    try:
        return plan_erasure(heir.id, paths=texts or None, held=held)
    except NOTHING_LEFT:
        return None


def checked_paths(paths: Any) -> tuple[StatePath, ...]:
    """Return the paths in these texts, each once. Raises `InvalidValue`."""
    if paths is None:
        return ()
    is_list = isinstance(paths, Sequence) and not isinstance(paths, str)
    if not is_list or not 1 <= len(paths) <= MOST_PATHS:
        raise InvalidValue(
            f"paths is a list of 1 to {MOST_PATHS} paths, as applicant.name",
            path="paths",
        )
    parsed = tuple(dict.fromkeys(parsed_path(path) for path in paths))
    if any("diagnostics" in path.partitions for path in parsed):
        raise InvalidValue(
            "diagnostics are notes of the engine; no value stands there", path="paths"
        )
    return parsed


def require_erasable(run: Run, held: Held) -> None:
    """Raise if a run must stay as it is now. Checked again under its lock."""
    if run.status == Status.TAMPERED:
        message = (
            f"run {run.key} is tampered; put back what was changed, "
            "resume it, and cancel it first"
        )
        raise WrongStatus(message, run=str(run.id), status=run.status)
    # An imported run never goes on, whatever it was doing when it was exported.
    if run.status not in ENDS and not run.imported:
        message = f"run {run.key} is {run.status} and can still go on; cancel it first"
        raise WrongStatus(message, run=str(run.id), status=run.status)
    if held([run.id]):
        raise WrongStatus(
            f"run {run.key} is under a legal hold",
            run=str(run.id),
            status=run.status,
            hold=True,
        )
    replays = RunLine.objects.filter(departure_run=run.id, travel=Travel.REPLAY)
    replays = replays.exclude(run__status__in=ENDS)
    key = replays.values_list("run__key", flat=True).first()
    if key is not None:
        message = (
            f"replay {key} reads what run {run.key} recorded, and has not ended; "
            "cancel it first"
        )
        raise WrongStatus(message, run=str(run.id), status=run.status)
    # A record without paths is that of all values.
    whole_erasures = ErasureRecord.objects.filter(run=run.id, paths=[])
    if whole_erasures.exclude(ended_at=None).exists():
        raise Erased(
            f"all values of run {run.key} were erased already", run=str(run.id)
        )
    for condition in CONDITIONS:
        condition(run)


def require_sound(run: Run) -> None:
    """Raise if a run does not verify: sealing it again would cover that up."""
    for fault in verification.verify_run(run.id, most=1):
        message = f"run {run.key} does not verify, so nothing is erased: {fault.reason}"
        raise TamperedRow(message, run=str(run.id), row=fault.what)


def going_on(run: UUID) -> ErasureRecord | None:
    """Return the erasure of a run that was begun and has not ended, or None."""
    records = ErasureRecord.objects.filter(run=run, ended_at=None)
    return records.order_by("at", "id").first()


def inherited_of(run: Run) -> tuple[Inherited, ...]:
    """Return the runs that came of a run and those that came of these, then the runs
    that it came of: each once, in order of their ids. Four queries a level of the
    first, three of the others, and one.
    """
    after = _followed(run.id, _came_of)
    before = _followed(run.id, _comes_from)
    runs = Run.objects.in_bulk([*after, *before])
    relatives = (*sorted(after.items()), *sorted(before.items()))
    return tuple(Inherited(id_, how, runs.get(id_)) for id_, how in relatives)


def _followed(
    run: UUID, step: Callable[[set[UUID]], dict[UUID, str]]
) -> dict[UUID, str]:
    """Return the runs that are reached step by step, and how. A run that was removed
    had the values too, so the search goes on past it.
    """
    followed: dict[UUID, str] = {}
    level = {run}
    while level:
        reached = {}
        for relative, how in step(level).items():
            if relative not in followed and relative != run:
                reached[relative] = how
        followed |= reached
        level = set(reached)
    return followed


def _came_of(level: set[UUID]) -> dict[UUID, str]:
    came_of: dict[UUID, str] = dict.fromkeys(forks_made_of(level), STORE_FORK)
    # A fork that has a run has a line too, whichever way it was made.
    lines = RunLine.objects.filter(departure_run__in=level, number=1)
    for run, travel in lines.values_list("run", "travel"):
        came_of[run] = str(travel)
    copies = RunEvent.objects.filter(type=COPIED, task__in=map(str, level)).order_by()
    for copy in copies.values_list("run", flat=True):
        came_of[copy] = COPY
    children = Run.objects.filter(parent_run__in=level)
    for child in children.values_list("id", flat=True):
        came_of[child] = CHILD
    return came_of


def _comes_from(level: set[UUID]) -> dict[UUID, str]:
    lines = RunLine.objects.filter(run__in=level, number=1)
    origins = lines.values_list("departure_run", flat=True)
    comes_from: dict[UUID, str] = dict.fromkeys(origins, ORIGIN)
    copied_from = RunEvent.objects.filter(type=COPIED, run__in=level).order_by()
    for source in copied_from.values_list("task", flat=True):
        comes_from[UUID(source)] = ORIGIN
    with_parent = Run.objects.filter(id__in=level).exclude(parent_run=None)
    for parent in with_parent.values_list("parent_run", flat=True):
        if parent is not None:
            comes_from[parent] = PARENT
    return comes_from


def _counts(run: Run) -> dict[str, int]:
    counts = {
        Run._meta.db_table: 1,
        Checkpoint._meta.db_table: Checkpoint.objects.filter(run=run.id).count(),
    }
    for place in PLACES:
        counts[place.model._meta.db_table] = place.rows(run.id).count()
    for sweep in SWEEPS:
        counts[sweep.name] = sweep.count(run)
    return {name: count for name, count in counts.items() if count}
