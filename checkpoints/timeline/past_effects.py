"""Side effects that happened outside the path to a checkpoint: on other lines of its
run, in its ancestors, and in their forks. They would happen again where a plan reaches
them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import (
    CharField,
    Exists,
    F,
    IntegerField,
    Min,
    OuterRef,
    Q,
    QuerySet,
    UUIDField,
    Value,
)
from django.db.models.expressions import RawSQL

from checkpoints import lines
from checkpoints.db import query_cache
from checkpoints.db.rows import fetch_records, from_driver
from checkpoints.lines import Stretch
from checkpoints.models import MemoryLanding, RunLine, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen

MEMORY = "memory"
"""Stands for an effect where something landed in memory."""
LEFT_MEMORY = -1
LEFT_LINES = (0, LEFT_MEMORY)
"""Line numbers under which a run keeps what its removed forks did: in their nodes, and
in memory.
"""
_LANDED = ""
"""Stands for an outcome where something landed in memory."""
LAST = 2**31 - 1
"""No seq is greater."""


@frozen
class Effect:
    """A task's effect on the world, or on memory, outside the path to a checkpoint.
    `certain`: it is known to have happened.
    """

    task: Task
    effect: str
    certain: bool

    def reaches(
        self,
        runs: Collection[str],
        lands: Collection[str],
    ) -> bool:
        """Return whether it would happen again where the nodes of `runs` run, and those
        of `lands` only land in memory what they returned.
        """
        if self.task.node in runs:
            return True
        return self.effect == MEMORY and self.task.node in lands


@frozen
class Way:
    """The path to a checkpoint: its `stretches`, the checkpoint's `run`, and the
    `atomic` nodes of its graph.
    """

    run: UUID
    stretches: Sequence[Stretch]
    atomic: frozenset[str]


def effects_off(
    way: Way,
    *,
    fenced: bool = False,
) -> list[Effect]:
    """Return the side effects that happened outside this path: those of the
    checkpoint's run and its ancestors, in the order in which they began, then those of
    all other forks of them; of the latter only what the path hasn't done itself.

    One query, whatever was forked; one more where something of the runs of the path is
    recorded as not done, two where something of other forks is. `fenced`: the plan
    stops whoever works on the checkpoint's run, so an atomic write under way in it
    won't happen.
    """
    own_rows: list[Sequence[Any]] = []
    rows_of_forks: list[Sequence[Any]] = []
    for row in _rows_elsewhere(way.stretches):
        is_of_fork = row[0] is None
        rows = rows_of_forks if is_of_fork else own_rows
        rows.append(row)
    own_effects = _done_by_own_runs(way, own_rows, fenced=fenced)
    return own_effects + _done_by_other_forks(way, rows_of_forks)


def _done_by_own_runs(
    way: Way,
    rows: Iterable[Sequence[Any]],
    *,
    fenced: bool,
) -> list[Effect]:
    """Return what the runs of the path did, and what they left in memory, outside it."""
    effects: dict[tuple[UUID, int, bool, Task], Effect] = {}
    has_unproven = False
    for row in sorted(rows, key=_in_order):
        run, line, node, visit, index, effect, outcome, _ = row
        # A `NOT_DONE` record is the only thing that keeps an effect off the plan, so it
        # is verified.
        if outcome == Outcome.NOT_DONE:
            has_unproven = True
            continue
        is_stopped = fenced and run == way.run
        if node in way.atomic and _is_rolled_back(outcome, is_stopped=is_stopped):
            continue
        task = Task(node, visit, index)
        # A task can act in the world and land in memory: two effects.
        key = (run, line, effect == MEMORY, task)
        is_certain = outcome in (Outcome.DONE, _LANDED)
        if is_certain or key not in effects:
            effects[key] = Effect(task, effect, certain=is_certain)

    if has_unproven:
        _verify_not_done(_results_elsewhere(way.stretches))
    return list(effects.values())


def _is_rolled_back(
    outcome: str,
    *,
    is_stopped: bool,
) -> bool:
    """Return whether the transaction of an atomic write was rolled back, or will be."""
    return outcome == Outcome.FAILED or (is_stopped and outcome != Outcome.DONE)


def _verify_not_done(rows: "QuerySet[TaskResult]") -> None:
    """Verify the records that nothing happened. Raises `TamperedRow`, `WrongKey`."""
    for result in _recorded_not_done(rows):
        sealed_rows.verify_row(result, protection_of(result.run))


def _results_elsewhere(stretches: Sequence[Stretch]) -> "QuerySet[TaskResult]":
    """Build the query for what the runs of these stretches did outside them."""
    runs = {stretch.run for stretch in stretches}
    on_way = lines.within(stretches)
    # A result that no checkpoint lists is on no path: it may have happened.
    elsewhere = (
        TaskResult.objects.filter(run__in=runs)
        .exclude(on_way, seq__isnull=False)
        .order_by()
    )
    # The effects of a removed fork count like those of any other fork.
    return elsewhere.exclude(Q(line__in=LEFT_LINES) & _done_on_way(on_way))


def _rows_elsewhere(stretches: Sequence[Stretch]) -> list[Sequence[Any]]:
    """Return (run, line, node, visit, index, effect, outcome, id) of what was done, and
    what landed in memory, outside the path: by its own runs, and without run and line
    by all forks below them. One query.
    """
    text, params = query_cache.compiled(
        _query_elsewhere(len(stretches)), *_values_of(stretches)
    )
    runs = [stretch.run for stretch in stretches]
    records = fetch_records(f"{_forks_below(len(runs))} {text}", [*runs, *params])
    return from_driver(TaskResult, _ELSEWHERE, records, connection.vendor)


_ELSEWHERE = ("run", "line", "node", "visit", "index", "effect", "outcome", "id")
_TASK = ("node", "visit", "index")


@cache
def _forks_below(count: int) -> str:
    """Return the beginning of a query that names the runs `below` so many runs: those
    that were forked or replayed from them, those from these, and so on; a replay has no
    outside, its forks have.
    """
    table = RunLine._meta.db_table
    runs = ", ".join(["%s"] * count)
    return (
        "WITH RECURSIVE below (run_id) AS ("  # noqa: S608
        f"SELECT run_id FROM {table} WHERE number = 1 AND departure_run IN ({runs}) "
        # A run that is reached again adds no row, so a circle ends.
        f"UNION SELECT l.run_id FROM {table} l "
        "JOIN below b ON l.departure_run = b.run_id WHERE l.number = 1)"
    )


@cache
def _query_elsewhere(count: int) -> query_cache.Query:
    """Return the builder of the query for `_rows_elsewhere`, for a path of so many
    stretches. It stands behind `_forks_below`.
    """

    def query(*values: Any) -> "QuerySet[Any, Any]":
        stretches = _stretches_of(values, count)
        on_way = lines.within(stretches)
        own_runs = {stretch.run for stretch in stretches}

        # SQLite refuses a union whose parts are ordered, as these tables are by
        # default.
        results = _results_elsewhere(stretches).order_by()
        landings = MemoryLanding.objects.filter(run__in=own_runs).exclude(on_way)
        landings = landings.order_by()
        parts = [
            results.annotate(**_OF_OWN_RUN, **_ACTED, first=F("id")),
            landings.values("run", "line", *_TASK).annotate(
                **_OF_OWN_RUN, **_HAS_LANDED, first=Min("id")
            ),
        ]

        below = RawSQL("SELECT run_id FROM below", ())
        results = _results_of_forks(stretches, below).exclude(run__in=own_runs)
        landings = MemoryLanding.objects.filter(run__in=below).exclude(
            _on_way(MemoryLanding, on_way)
        )
        results = results.order_by()
        landings = landings.exclude(run__in=own_runs).order_by()
        # One row for each task, however many forks did it.
        parts += [
            results.values(*_TASK, "effect", "outcome").annotate(
                **_OF_FORK, **_ACTED, first=Min("id")
            ),
            landings.values(*_TASK).annotate(
                **_OF_FORK, **_HAS_LANDED, first=Min("id")
            ),
        ]
        columns = ("of_run", "on_line", *_TASK, "does", "came_to", "first")
        rows = [part.values_list(*columns) for part in parts]
        union: QuerySet[Any, Any] = rows[0].union(*rows[1:], all=True)
        return union

    return query


def _text(word: str) -> Value:
    return Value(str(word), output_field=CharField())


_OF_OWN_RUN = {"of_run": F("run"), "on_line": F("line")}
_OF_FORK = {
    "of_run": Value(None, output_field=UUIDField()),
    "on_line": Value(None, output_field=IntegerField()),
}
_ACTED = {"does": F("effect"), "came_to": F("outcome")}
_HAS_LANDED = {"does": _text(MEMORY), "came_to": _text(_LANDED)}


def _values_of(stretches: Sequence[Stretch]) -> list[UUID | int]:
    """Return the values of which kept queries make these stretches again."""
    values: list[UUID | int] = []
    for stretch in stretches:
        # The way to a checkpoint ends there, so none of its stretches is without end.
        last = LAST if stretch.last is None else stretch.last
        values += [stretch.run, stretch.line, last]
    return values


def _stretches_of(values: Sequence[Any], count: int) -> list[Stretch]:
    """Return as many stretches as `_values_of` made values of."""
    stretches: list[Stretch] = []
    for first in range(0, 3 * count, 3):
        stretches.append(Stretch(*values[first : first + 3]))
    return stretches


def _in_order(row: Sequence[Any]) -> tuple[bool, int]:
    """Sort effects of nodes before those that landed in memory, each as they began."""
    return row[5] == MEMORY, row[-1]


def _done_by_other_forks(
    way: Way,
    rows: Iterable[Sequence[Any]],
) -> list[Effect]:
    """Return what other forks did and the path didn't: a visit that the path used up
    need not have done it. One effect for each task, however many forks did it.
    """
    effects: dict[Task, Effect] = {}
    left_in_memory: list[Effect] = []
    landed_in_memory: list[Effect] = []
    has_unproven = False
    for row in sorted(rows, key=itemgetter(-1)):
        _, _, node, visit, index, effect, outcome, _ = row
        task = Task(node, visit, index)
        if outcome == Outcome.NOT_DONE:
            has_unproven = True
        elif outcome == _LANDED:
            landed_in_memory.append(Effect(task, effect, certain=True))
        # A removed fork keeps what it landed among its results (`LEFT_MEMORY`).
        elif effect == MEMORY:
            left_in_memory.append(Effect(task, effect, certain=True))
        # The transaction of an atomic write that failed was rolled back.
        elif outcome != Outcome.FAILED or node not in way.atomic:
            is_certain = outcome == Outcome.DONE
            _note_once(effects, Effect(task, effect, certain=is_certain))

    if has_unproven:
        for effect in _unproven_effects(way.stretches):
            effects.setdefault(effect.task, effect)
    return [*effects.values(), *left_in_memory, *landed_in_memory]


def _note_once(effects: dict[Task, Effect], effect: Effect) -> None:
    """Add an effect unless its task has one already; a certain one replaces it."""
    if effect.certain or effect.task not in effects:
        effects[effect.task] = effect


def _unproven_effects(stretches: Sequence[Stretch]) -> Iterator[Effect]:
    """Yield an uncertain effect for each record that something did not happen in a fork
    and that does not prove it. The fault concerns that run alone, and the caller may
    not be allowed to know of it.
    """
    own_runs = {stretch.run for stretch in stretches}
    forks = [run for run in _runs_below(own_runs) if run not in own_runs]
    for runs in lines.in_parts(forks):
        for row in _recorded_not_done(_results_of_forks(stretches, runs)):
            if fault_of(row, protection_of(row.run)):
                task = Task(row.node, row.visit, row.index)
                yield Effect(task, row.effect, certain=False)


def _runs_below(runs: Collection[UUID]) -> list[UUID]:
    """Return all runs below these, in no order. One query."""
    text = f"{_forks_below(len(runs))} SELECT run_id FROM below"  # noqa: S608
    records = from_driver(
        RunLine, ["run_id"], fetch_records(text, runs), connection.vendor
    )
    return [record[0] for record in records]


def _results_of_forks(
    stretches: Sequence[Stretch], runs: Sequence[UUID] | RawSQL
) -> "QuerySet[TaskResult]":
    """Build the query for what these forks did and the path didn't."""
    done_on_way = _done_on_way(lines.within(stretches))
    return TaskResult.objects.filter(run__in=runs).exclude(done_on_way)


def _done_on_way(way: Q) -> Q:
    """Build the filter for results whose task the path has done itself; for what a
    removed fork left in memory, whose task landed there.
    """
    landed = Q(_on_way(MemoryLanding, way))
    done = Q(_on_way(TaskResult, way, outcome=Outcome.DONE))
    is_memory = Q(line=LEFT_MEMORY)
    return (is_memory & landed) | (~is_memory & done)


def _on_way(model: type[Any], way: Q, **conditions: Any) -> Exists:
    """Build the condition that the path has a row of the same task."""
    same_task = {name: OuterRef(name) for name in ("node", "visit", "index")}
    return Exists(model.objects.filter(way, **same_task, **conditions))


def _recorded_not_done(rows: "QuerySet[TaskResult]") -> "QuerySet[TaskResult]":
    """Return the results that record that nothing happened, with what verifying them
    takes: such a record is what keeps an effect off the plan.
    """
    own_columns = [field.attname for field in TaskResult._meta.concrete_fields]
    not_done: QuerySet[TaskResult] = rows.filter(
        outcome=Outcome.NOT_DONE
    ).select_related("run")
    return not_done.only(*own_columns, "run__encrypted", "run__hash_key")
