"""Side effects that happened outside the path to a checkpoint: on other lines of its
run, in its ancestors, and in their forks. They would happen again where a plan reaches
them.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import (
    CharField,
    Exists,
    F,
    IntegerField,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Value,
)

from checkpoints import lines
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
_FORK = ""
"""Stands for an effect in a row that names a fork."""


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

    One query where nothing was forked, one more where something is recorded as not
    done; three more where something was forked, and one for each generation of forks,
    whatever these did; more for each thousand of them. `fenced`: the plan stops whoever
    works on the checkpoint's run, so an atomic write under way in it won't happen.
    """
    own_runs = {stretch.run for stretch in way.stretches}
    on_way = lines.within(way.stretches)
    effects, forks = _done_by_own_runs(way, own_runs, on_way, fenced=fenced)
    for runs in lines.in_parts(lines.forks_below(own_runs, nearest=forks)):
        effects += _done_by_other_forks(way, runs, on_way)
    return effects


def _done_by_own_runs(
    way: Way,
    runs: Collection[UUID],
    on_way: Q,
    *,
    fenced: bool,
) -> tuple[list[Effect], list[UUID]]:
    """Return what these runs did, and what of theirs landed in memory, outside the
    path; and the runs that were forked from them.
    """
    # A result that no checkpoint lists is on no path: it may have happened.
    elsewhere = (
        TaskResult.objects.filter(run__in=runs)
        .exclude(on_way, seq__isnull=False)
        .order_by()
    )
    # The effects of a removed fork count like those of any other fork.
    elsewhere = elsewhere.exclude(Q(line__in=LEFT_LINES) & _done_on_way(on_way))
    effects: dict[tuple[UUID, int, bool, Task], Effect] = {}
    forks: list[UUID] = []
    has_unproven = False
    for row in sorted(_rows_elsewhere(runs, on_way, elsewhere), key=_in_order):
        run, line, node, visit, index, effect, outcome, _ = row
        if effect == _FORK:
            forks.append(run)
            continue
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
        is_certain = outcome == Outcome.DONE
        if is_certain or key not in effects:
            effects[key] = Effect(task, effect, certain=is_certain)

    if has_unproven:
        _verify_not_done(elsewhere)
    return list(effects.values()), forks


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


def _rows_elsewhere(
    runs: Collection[UUID],
    on_way: Q,
    elsewhere: "QuerySet[TaskResult]",
) -> Any:
    """Return (run, line, node, visit, index, effect, outcome, id) of what was done
    outside the path, of what landed in memory there, and of the runs that were forked
    (these have only run and id). One query.
    """
    task = ("line", "node", "visit", "index")
    columns = ("run", *task, "does", "came_to", "first")

    acted = elsewhere.annotate(does=F("effect"), came_to=F("outcome"), first=F("id"))

    # SQLite refuses a union whose parts are ordered, as these tables are by default.
    landings = MemoryLanding.objects.filter(run__in=runs).exclude(on_way).order_by()
    landed = landings.values("run", *task).annotate(
        does=_text(MEMORY), came_to=_text(Outcome.DONE), first=Min("id")
    )

    first_lines = RunLine.objects.filter(departure_run__in=runs, number=1).order_by()
    forked = first_lines.annotate(
        line=_zero(),
        visit=_zero(),
        index=_zero(),
        node=_text(""),
        does=_text(_FORK),
        came_to=_text(""),
        first=F("id"),
    )
    return acted.values_list(*columns).union(
        landed.values_list(*columns), forked.values_list(*columns), all=True
    )


def _text(word: str) -> Value:
    return Value(str(word), output_field=CharField())


def _zero() -> Value:
    return Value(0, output_field=IntegerField())


def _in_order(row: Sequence[Any]) -> tuple[bool, int]:
    """Sort effects of nodes before those that landed in memory, each as they began."""
    return row[5] == MEMORY, row[-1]


def _done_by_other_forks(
    way: Way,
    runs: Collection[UUID],
    on_way: Q,
) -> list[Effect]:
    """Return what these forks did and the path didn't: a visit that the path used up
    need not have done it. One effect for each task, however many forks did it.
    """
    results = TaskResult.objects.filter(run__in=runs).exclude(_done_on_way(on_way))
    landings = MemoryLanding.objects.filter(run__in=runs).exclude(
        _on_way(MemoryLanding, on_way)
    )
    acted = results.exclude(outcome=Outcome.NOT_DONE).values_list(
        "node", "visit", "index", "effect", "outcome"
    )
    acted_in_order = acted.annotate(first=Min("id")).order_by("first")

    effects: dict[Task, Effect] = {}
    left_in_memory: list[Effect] = []
    for node, visit, index, effect, outcome, _ in acted_in_order:
        task = Task(node, visit, index)
        # A removed fork keeps what it landed among these rows too (`LEFT_MEMORY`).
        if effect == MEMORY:
            left_in_memory.append(Effect(task, effect, certain=True))
            continue
        was_rolled_back = outcome == Outcome.FAILED and node in way.atomic
        is_certain = outcome == Outcome.DONE
        if not was_rolled_back and (is_certain or task not in effects):
            effects[task] = Effect(task, effect, certain=is_certain)

    # What can't be proven not to have happened may have happened. The fault concerns
    # that run alone, and the caller may not be allowed to know of it.
    for row in _recorded_not_done(results):
        task = Task(row.node, row.visit, row.index)
        if task not in effects and fault_of(row, protection_of(row.run)):
            effects[task] = Effect(task, row.effect, certain=False)
    return [*effects.values(), *left_in_memory, *_landed_in_memory(landings)]


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


def _landed_in_memory(landings: "QuerySet[MemoryLanding]") -> list[Effect]:
    tasks = (
        landings.values_list("node", "visit", "index")
        .annotate(first=Min("id"))
        .order_by("first")
    )
    return [
        Effect(Task(node, visit, index), MEMORY, certain=True)
        for node, visit, index, _ in tasks
    ]


def _recorded_not_done(rows: "QuerySet[TaskResult]") -> "QuerySet[TaskResult]":
    """Return the results that record that nothing happened, with what verifying them
    takes: such a record is what keeps an effect off the plan.
    """
    own_columns = [field.attname for field in TaskResult._meta.concrete_fields]
    not_done = rows.filter(outcome=Outcome.NOT_DONE).select_related("run")
    return not_done.only(*own_columns, "run__encrypted", "run__hash_key")
