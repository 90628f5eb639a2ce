"""Holds, pins and policies: what people said must stay, and for how long. Each row is sealed, and is compared with the
lines of the audit log that tell who made, ended, saved and deleted it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Model

from checkpoints.models import AuditLine, LegalHold, Pin, RetentionPolicy
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.frozen import frozen

HELD, RELEASED = "run_held", "hold_released"
PINNED, UNPINNED = "checkpoint_pinned", "checkpoint_unpinned"
SAVED, DELETED = "retention_policy_saved", "retention_policy_deleted"
POLICY_FIELDS = ("keep_last", "max_age_days", "remove_runs_after_days", "archive")
"""What the audit log tells of a policy beside its graph."""
ADDED_POLICY_FIELDS = {"switched_off": False, "most_a_night": None}
"""What it tells of newer ones too, and what a line means that does not."""
PAGE = 100


def kept_by_people(subject: Subject) -> Iterator[Fault]:
    """The holds on a run, and the pins on its checkpoints. Three queries."""
    yield from _confirmed(lambda: list(_faults([subject.run.id], _SORTS)))


def kept_in_installation() -> Iterator[Fault]:
    """All holds, pins and policies: also those of runs that are gone."""
    kinds = (HELD, RELEASED, PINNED, UNPINNED)
    told = AuditLine.objects.filter(kind__in=kinds, run__isnull=False).order_by().values_list("run", flat=True)
    held = LegalHold.objects.order_by().values_list("run", flat=True)
    named = told.union(held, Pin.objects.order_by().values_list("run", flat=True))
    runs = sorted(run for run in set(named) if run is not None)
    for first in range(0, len(runs), PAGE):
        some = runs[first : first + PAGE]
        yield from _confirmed(lambda some=some: list(_faults(some, _SORTS)))  # type: ignore[misc]
    lines = AuditLine.objects.filter(kind__in=(SAVED, DELETED)).order_by().values_list("graph", flat=True)
    stored = RetentionPolicy.objects.order_by().values_list("graph", flat=True)
    for graph in sorted(set(stored.union(lines))):
        fault = policy_fault(graph)
        if fault is not None:
            yield fault


def hold_faults(runs: Sequence[UUID]) -> list[Fault]:
    """Return what is wrong with the holds on these runs. Two queries, or four where something seems wrong."""
    return _confirmed(lambda: list(_faults(runs, _SORTS[:1])))


def _confirmed(look: Callable[[], list[Fault]]) -> list[Fault]:
    """Look once more where something seems wrong: a person may have made or ended one between the queries."""
    return look() and look()


@frozen
class _Sort:
    """Rows that are kept by people: their model, the kinds of the lines that tell that one was made and ended, and what
    tells one from another, in a row and in a line.
    """

    model: Any
    made: str
    ended: str
    name_in_row: Callable[[Any], Any]
    name_in_line: str


_SORTS = (
    _Sort(LegalHold, HELD, RELEASED, lambda row: row.id, "hold"),
    _Sort(Pin, PINNED, UNPINNED, lambda row: str(row.checkpoint), "checkpoint"),
)


def _faults(runs: Sequence[UUID], sorts: Sequence[_Sort]) -> Iterator[Fault]:
    kinds = [kind for sort in sorts for kind in (sort.made, sort.ended)]
    lines = list(AuditLine.objects.filter(run__in=runs, kind__in=kinds))
    sound = [line for line in lines if isinstance(line.facts, dict) and fault_of(line, sealed_rows.PLAIN) is None]
    for sort in sorts:
        yield from _of_sort(sort, runs, [line for line in sound if line.kind in (sort.made, sort.ended)])


def _of_sort(sort: _Sort, runs: Sequence[UUID], lines: Sequence[AuditLine]) -> Iterator[Fault]:
    """Compare rows with the lines that tell of them: as many as were made are there, and as many have ended."""
    made: Counter[Any] = Counter()
    ended: Counter[Any] = Counter()
    of: dict[Any, Any] = {}
    for line in lines:
        one = line.facts.get(sort.name_in_line)
        (made if line.kind == sort.made else ended)[one] += 1
        of[one] = line.run
    for row in sort.model.objects.filter(run__in=runs):
        fault = fault_of(row, sealed_rows.PLAIN)
        if fault is not None:
            yield _fault(sort.model, row.run, row.pk, fault.reason, code=fault.code)
        one = sort.name_in_row(row)
        of[one] = row.run
        made[one] -= 1
        if row.released_at is not None:
            ended[one] -= 1
    for one in sorted(of, key=str):
        yield from _miscounted(sort.model, of[one], one, made=made[one], ended=ended[one])


def _miscounted(model: type[Model], run: UUID, one: Any, *, made: int, ended: int) -> Iterator[Fault]:
    """`made` and `ended`: how many more the audit log tells of than there are."""
    table = model._meta.db_table
    if made > 0:
        yield _fault(model, run, one, f"{table} {one} of run {run} is gone, though the audit log says that it was made")
    elif made < 0:
        yield _fault(model, run, one, f"{table} {one} of run {run} was put in: the audit log does not speak of it")
    elif ended > 0:
        yield _fault(model, run, one, f"{table} {one} of run {run} lasts, though the audit log says that it was ended")
    elif ended < 0:
        yield _fault(model, run, one, f"{table} {one} of run {run} has ended, but the audit log does not say so")


def _fault(model: type[Model], run: UUID | None, one: Any, reason: str, *, code: str = "tampered_row") -> Fault:
    table = model._meta.db_table
    return Fault(str(run or ""), "", table, f"{table} {one}", reason, code)


def policy_fault(graph: str) -> Fault | None:
    """Return what is wrong with the policy of a graph; None where it is as somebody saved it, and where there is none.
    Two queries, or four where something seems wrong.
    """
    if _policy_fault(graph) is None:
        return None
    return _policy_fault(graph)


def _policy_fault(graph: str) -> Fault | None:
    table = RetentionPolicy._meta.db_table
    row = RetentionPolicy.objects.filter(graph=graph).first()
    if row is not None:
        fault = fault_of(row, sealed_rows.PLAIN)
        if fault is not None:
            return _fault(RetentionPolicy, None, graph, fault.reason, code=fault.code)
    lines = AuditLine.objects.filter(graph=graph, kind__in=(SAVED, DELETED)).order_by("-at", "-id")
    newest = next((line for line in lines[:PAGE] if fault_of(line, sealed_rows.PLAIN) is None), None)
    told = _told(newest)
    if row is None and told is not None:
        return _fault(RetentionPolicy, None, graph, f"{table} {graph} is gone, though nobody deleted it")
    if row is not None and told != {name: getattr(row, name) for name in (*POLICY_FIELDS, *ADDED_POLICY_FIELDS)}:
        return _fault(RetentionPolicy, None, graph, f"{table} {graph} is another policy than the audit log tells of")
    return None


def _told(line: AuditLine | None) -> dict[str, Any] | None:
    """What a line says that a policy was; None where it was deleted, or never saved."""
    if line is None or line.kind == DELETED or not isinstance(line.facts, dict):
        return None
    facts = {name: line.facts.get(name) for name in POLICY_FIELDS}
    return facts | {name: line.facts.get(name, default) for name, default in ADDED_POLICY_FIELDS.items()}
