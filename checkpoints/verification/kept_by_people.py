"""Examines holds, pins and policies, by which people keep history: each row is sealed,
and is compared with the lines of the audit log that record who made, ended, saved and
deleted it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Model

from checkpoints.models import AuditLine, LegalHold, Pin, RetentionPolicy
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.verification.base import Fault, Subject
from orchestrator.engine.frozen import frozen

HELD = "run_held"
RELEASED = "hold_released"
PINNED = "checkpoint_pinned"
UNPINNED = "checkpoint_unpinned"
SAVED = "retention_policy_saved"
DELETED = "retention_policy_deleted"
POLICY_FIELDS = ("keep_last", "max_age_days", "remove_runs_after_days", "archive")
"""What the audit log records of a policy beside its graph."""
ADDED_POLICY_FIELDS = {"switched_off": False, "most_a_night": None}
"""What it also records since a later version, with what older lines mean."""
PAGE = 100


def kept_by_people(subject: Subject) -> Iterator[Fault]:
    """Yield the faults of the holds on a run and the pins on its checkpoints. Three
    queries.
    """
    yield from _confirmed(partial(_list_of_faults, [subject.run.id], _KEEPERS))


def kept_in_installation() -> Iterator[Fault]:
    """Yield the faults of all holds, pins and policies, including those of runs that
    are gone.
    """
    runs = _runs_with_keepers()
    for start in range(0, len(runs), PAGE):
        page = runs[start : start + PAGE]
        yield from _confirmed(partial(_list_of_faults, page, _KEEPERS))
    for graph in _graphs_with_policies():
        fault = policy_fault(graph)
        if fault is not None:
            yield fault


def _runs_with_keepers() -> list[UUID]:
    """Return the runs that have holds or pins, by their rows or by the audit log."""
    kinds = (HELD, RELEASED, PINNED, UNPINNED)
    # Also by the log: otherwise a run whose holds were all deleted would not be
    # examined.
    lines = AuditLine.objects.filter(kind__in=kinds, run__isnull=False)
    logged = lines.order_by().values_list("run", flat=True)
    held = LegalHold.objects.order_by().values_list("run", flat=True)
    pinned = Pin.objects.order_by().values_list("run", flat=True)
    return sorted(run for run in set(logged.union(held, pinned)) if run is not None)


def _graphs_with_policies() -> list[str]:
    # Also by the log, for the same reason: the row may be the one that was deleted.
    lines = AuditLine.objects.filter(kind__in=(SAVED, DELETED))
    logged = lines.order_by().values_list("graph", flat=True)
    stored = RetentionPolicy.objects.order_by().values_list("graph", flat=True)
    return sorted(set(stored.union(logged)))


def hold_faults(runs: Sequence[UUID]) -> list[Fault]:
    """Return the faults of the holds on these runs. Two queries, or four where
    something seems wrong.
    """
    return _confirmed(partial(_list_of_faults, runs, [_HOLD]))


def _list_of_faults(runs: Sequence[UUID], keepers: Sequence["_Keeper"]) -> list[Fault]:
    return list(_faults(runs, keepers))


def _confirmed(look: Callable[[], list[Fault]]) -> list[Fault]:
    """Look once more where something seems wrong: a person may have made or ended one
    between the queries.
    """
    faults = look()
    if faults:
        faults = look()
    return faults


@frozen
class _Keeper:
    """A model whose rows keep history, and how the audit log records them.

    `kind_of_making`, `kind_of_ending`: the kinds of the lines that record that one was
    made, and that it was ended. `name_in_row`, `name_in_line`: what identifies one.
    """

    model: Any
    kind_of_making: str
    kind_of_ending: str
    name_in_row: Callable[[Any], Any]
    name_in_line: str


def _id_of_hold(row: LegalHold) -> Any:
    return row.id


def _checkpoint_of_pin(row: Pin) -> str:
    return str(row.checkpoint)


_HOLD = _Keeper(LegalHold, HELD, RELEASED, _id_of_hold, "hold")
_PIN = _Keeper(Pin, PINNED, UNPINNED, _checkpoint_of_pin, "checkpoint")
_KEEPERS = (_HOLD, _PIN)


def _faults(runs: Sequence[UUID], keepers: Sequence[_Keeper]) -> Iterator[Fault]:
    """Yield the faults of these keepers of these runs. One query, and one for each
    keeper.
    """
    kinds: list[str] = []
    for keeper in keepers:
        kinds += (keeper.kind_of_making, keeper.kind_of_ending)
    sound_lines = []
    for line in AuditLine.objects.filter(run__in=runs, kind__in=kinds):
        # A forged line counts for nothing; the examiner of the audit log names it.
        if isinstance(line.facts, dict) and fault_of(line, sealed_rows.PLAIN) is None:
            sound_lines.append(line)
    for keeper in keepers:
        yield from _faults_of_keeper(keeper, runs, sound_lines)


def _faults_of_keeper(
    keeper: _Keeper, runs: Sequence[UUID], lines: Sequence[AuditLine]
) -> Iterator[Fault]:
    """Yield a fault unless as many rows are there, and as many have ended, as the audit
    log records.
    """
    # Counted, because a checkpoint that was unpinned may be pinned again, in a further
    # row.
    run_by_name: dict[Any, Any] = {}
    missing: Counter[Any] = Counter()
    unended: Counter[Any] = Counter()
    for line in lines:
        if line.kind not in (keeper.kind_of_making, keeper.kind_of_ending):
            continue
        name = line.facts.get(keeper.name_in_line)
        if not isinstance(name, str | int):
            what = f"{AuditLine._meta.db_table} {line.pk}"
            reason = f"{what} names no {keeper.name_in_line}"
            yield _fault(AuditLine, line.run, line.pk, reason)
            continue
        run_by_name[name] = line.run
        if line.kind == keeper.kind_of_making:
            missing[name] += 1
        else:
            unended[name] += 1

    for row in keeper.model.objects.filter(run__in=runs):
        fault = fault_of(row, sealed_rows.PLAIN)
        if fault is not None:
            yield _fault(keeper.model, row.run, row.pk, fault.reason, code=fault.code)
        name = keeper.name_in_row(row)
        run_by_name[name] = row.run
        missing[name] -= 1
        if row.released_at is not None:
            unended[name] -= 1

    for name in sorted(run_by_name, key=str):
        reason = _reason_against(missing[name], unended[name])
        if reason:
            run = run_by_name[name]
            what = f"{keeper.model._meta.db_table} {name} of run {run}"
            yield _fault(keeper.model, run, name, f"{what} {reason}")


def _reason_against(missing: int, unended: int) -> str:
    """Return what is wrong with a row; empty if nothing is. `missing` and `unended`
    count how many more the audit log records as made, and as ended, than there are.
    """
    if missing > 0:
        return "is gone, though the audit log says that it was made"
    if missing < 0:
        return "was put in: the audit log does not speak of it"
    if unended > 0:
        return "lasts, though the audit log says that it was ended"
    if unended < 0:
        return "has ended, but the audit log does not say so"
    return ""


def _fault(
    model: type[Model],
    run: UUID | None,
    name: Any,
    reason: str,
    *,
    code: str = "tampered_row",
) -> Fault:
    table = model._meta.db_table
    return Fault(str(run or ""), "", table, f"{table} {name}", reason, code)


def policy_fault(graph: str) -> Fault | None:
    """Return the fault of the policy of a graph; None if it is as a person saved it, or
    if there is none and none was saved. Two queries, or four where something seems
    wrong.
    """
    # A person may have saved or deleted it between the queries.
    if _policy_fault(graph) is None:
        return None
    return _policy_fault(graph)


def _policy_fault(graph: str) -> Fault | None:
    row = RetentionPolicy.objects.filter(graph=graph).first()
    if row is not None:
        fault = fault_of(row, sealed_rows.PLAIN)
        if fault is not None:
            return _fault(RetentionPolicy, None, graph, fault.reason, code=fault.code)

    logged = _logged_policy(_newest_line(graph))
    what = f"{RetentionPolicy._meta.db_table} {graph}"
    if row is None:
        if logged is None:
            return None
        return _fault(
            RetentionPolicy, None, graph, f"{what} is gone, though nobody deleted it"
        )
    fields = (*POLICY_FIELDS, *ADDED_POLICY_FIELDS)
    stored = {name: getattr(row, name) for name in fields}
    if stored == logged:
        return None
    return _fault(
        RetentionPolicy,
        None,
        graph,
        f"{what} is another policy than the audit log tells of",
    )


def _newest_line(graph: str) -> AuditLine | None:
    """Return the newest sound line about the policy of a graph. One query."""
    lines = AuditLine.objects.filter(graph=graph, kind__in=(SAVED, DELETED))
    # By time, because the newest line may still have no number.
    for line in lines.order_by("-at", "-id")[:PAGE]:
        if fault_of(line, sealed_rows.PLAIN) is None:
            return line
    return None


def _logged_policy(line: AuditLine | None) -> dict[str, Any] | None:
    """Return the policy that a line records; None if it was deleted, or never saved."""
    if line is None or line.kind == DELETED or not isinstance(line.facts, dict):
        return None
    policy = {name: line.facts.get(name) for name in POLICY_FIELDS}
    for name, default in ADDED_POLICY_FIELDS.items():
        policy[name] = line.facts.get(name, default)
    return policy
