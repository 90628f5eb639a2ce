"""What was done elsewhere than on the way to a point: by its run off that way, by the runs that it comes from and by
their forks. It would happen again where a plan reaches it.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.db.models import CharField, Exists, F, IntegerField, Min, OuterRef, Q, QuerySet, Value

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
"""The effect of what landed in memory."""
LEFT_MEMORY = -1
LEFT_LINES = (0, LEFT_MEMORY)
"""The lines on which a run has what forks of it did that were removed: of their nodes, and of their memory."""
_FORK = ""
"""In the place of an effect, where a row tells of a fork."""


@frozen
class Effect:
    """What a task did to the world, or to memory, elsewhere than on the way to a point. `certain`: it happened."""

    task: Task
    effect: str
    certain: bool

    def reaches(self, runs: Collection[str], lands: Collection[str]) -> bool:
        """Whether it would happen again where these nodes run, and those only land what they returned."""
        return self.task.node in runs or (self.effect == MEMORY and self.task.node in lands)


@frozen
class Way:
    """The way to a point: its `stretches`, the `run` of the point, and the nodes of its graph that are `atomic`."""

    run: UUID
    stretches: Sequence[Stretch]
    atomic: frozenset[str]


def effects_off(way: Way, *, fenced: bool = False) -> list[Effect]:
    """What was done elsewhere than on this way: by the run of the point and the runs that it comes from, in the order
    in which it was begun, then by all other forks of them; of those only what the way has not done itself.

    One query where nothing was forked, one more where something is said not to have happened; three more where
    something was forked, and one for each generation of forks, whatever these did; more for each thousand of them.
    `fenced`: whoever works on the point's run is stopped by what is planned, so an atomic write that is under way in
    it does not happen.
    """
    own, rows = {one.run for one in way.stretches}, lines.within(way.stretches)
    found, nearest = _done_by_own(way, own, rows, fenced=fenced)
    for runs in lines.in_parts(lines.forks_below(own, nearest=nearest)):
        found += _done_by_others(way, runs, rows)
    return found


def _done_by_own(way: Way, runs: Collection[UUID], on_way: Q, *, fenced: bool) -> tuple[list[Effect], list[UUID]]:
    """What these runs did and landed in memory off the way; and the runs that were forked from them."""
    elsewhere = TaskResult.objects.filter(run__in=runs).exclude(on_way, seq__isnull=False).order_by()
    # What a fork did that was removed counts like what any other fork did.
    elsewhere = elsewhere.exclude(Q(line__in=LEFT_LINES) & _done_on_way(on_way))
    found: dict[tuple[UUID, int, str, Task], Effect] = {}
    nearest: list[UUID] = []
    unproven = False
    for run, line, node, visit, index, effect, outcome, _ in sorted(_rows(runs, on_way, elsewhere), key=_in_order):
        certain = outcome == Outcome.DONE
        stopped = fenced and run == way.run and not certain
        unproven = unproven or outcome == Outcome.NOT_DONE
        if effect == _FORK:
            nearest.append(run)
            continue
        if outcome == Outcome.NOT_DONE or (node in way.atomic and (outcome == Outcome.FAILED or stopped)):
            continue  # nothing happened; or its transaction was rolled back, or will be
        key = run, line, MEMORY if effect == MEMORY else "", Task(node, visit, index)
        if certain or key not in found:
            found[key] = Effect(key[3], effect, certain=certain)
    for row in _said_not_done(elsewhere) if unproven else ():
        sealed_rows.verify_row(row, protection_of(row.run))
    return [*found.values()], nearest


def _rows(runs: Collection[UUID], way: Q, elsewhere: "QuerySet[TaskResult]") -> Any:
    """(run, line, node, visit, index, effect, outcome, id) of what was done elsewhere, of what landed in memory there,
    and (run and id alone) of the runs that were forked. One query.
    """
    landed = MemoryLanding.objects.filter(run__in=runs).exclude(way).order_by()
    forked = RunLine.objects.filter(departure_run__in=runs, number=1).order_by()
    task = ("line", "node", "visit", "index")
    acted = elsewhere.annotate(does=F("effect"), came_to=F("outcome"), first=F("id"))
    kept = landed.values("run", *task).annotate(does=_text(MEMORY), came_to=_text(Outcome.DONE), first=Min("id"))
    numbers = {name: Value(0, output_field=IntegerField()) for name in ("line", "visit", "index")}
    forks = forked.annotate(**numbers, node=_text(""), does=_text(_FORK), came_to=_text(""), first=F("id"))
    columns = ("run", *task, "does", "came_to", "first")
    found = acted.values_list(*columns)
    return found.union(kept.values_list(*columns), forks.values_list(*columns), all=True)


def _text(word: str) -> Value:
    return Value(str(word), output_field=CharField())


def _in_order(row: Sequence[Any]) -> tuple[bool, int]:
    """What nodes did before what landed in memory, each as it began."""
    return row[5] == MEMORY, row[-1]


def _done_by_others(way: Way, runs: Collection[UUID], on_way: Q) -> list[Effect]:
    """What these forks did that the way to the point did not: a visit that the way used up need not have done it. One
    of each task, however many of them did it.
    """
    results = TaskResult.objects.filter(run__in=runs).exclude(_done_on_way(on_way))
    landed = MemoryLanding.objects.filter(run__in=runs).exclude(_on_way(MemoryLanding, on_way))
    acted = results.exclude(outcome=Outcome.NOT_DONE).values_list("node", "visit", "index", "effect", "outcome")
    found: dict[Task, Effect] = {}
    left_in_memory: list[Effect] = []
    for node, visit, index, effect, outcome, _ in acted.annotate(first=Min("id")).order_by("first"):
        certain, task = outcome == Outcome.DONE, Task(node, visit, index)
        rolled_back = outcome == Outcome.FAILED and node in way.atomic
        if effect == MEMORY:
            left_in_memory.append(Effect(task, effect, certain=True))
        elif not rolled_back and (certain or task not in found):
            found[task] = Effect(task, effect, certain=certain)
    for row in _said_not_done(results):
        task = Task(row.node, row.visit, row.index)
        # What is not proven may have happened. The fault is that run's alone, and who asks may not know of it.
        if task not in found and fault_of(row, protection_of(row.run)):
            found[task] = Effect(task, row.effect, certain=False)
    return [*found.values(), *left_in_memory, *_tasks_in_memory(landed)]


def _done_on_way(way: Q) -> Q:
    """The filter for results whose task the way has done itself: of what is left of memory, whose task landed there."""
    landed = Q(_on_way(MemoryLanding, way))
    done = Q(_on_way(TaskResult, way, outcome=Outcome.DONE))
    return (Q(line=LEFT_MEMORY) & landed) | (~Q(line=LEFT_MEMORY) & done)


def _on_way(model: type[Any], way: Q, **more: Any) -> Exists:
    """Whether the way has a row of the same task."""
    same = {name: OuterRef(name) for name in ("node", "visit", "index")}
    return Exists(model.objects.filter(way, **same, **more))


def _tasks_in_memory(landed: "QuerySet[MemoryLanding]") -> list[Effect]:
    tasks = landed.values_list("node", "visit", "index").annotate(first=Min("id")).order_by("first")
    return [Effect(Task(node, visit, index), MEMORY, certain=True) for node, visit, index, _ in tasks]


def _said_not_done(rows: "QuerySet[TaskResult]") -> "QuerySet[TaskResult]":
    """Those that say that nothing happened, to be verified: it is what keeps an effect off the plan."""
    own = [field.attname for field in TaskResult._meta.concrete_fields]
    said = rows.filter(outcome=Outcome.NOT_DONE).select_related("run")
    return said.only(*own, "run__encrypted", "run__hash_key")
