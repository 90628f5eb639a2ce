"""Settles unknown outcomes: a person states what happened, one task at a time.
`runs.settle` calls it under its lock.
"""

from collections.abc import Collection
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from approvals import deadlines
from approvals.gates import guarded_channels
from checkpoints import lines, versions
from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from checkpoints.core.status import STOPPED, Status
from checkpoints.db.clock import db_now
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import locked_run
from checkpoints.ledger.run_error import RESTORED
from checkpoints.models import Run, TaskResult, Worker
from checkpoints.models.fields import task_columns
from checkpoints.models.task_result import Outcome
from checkpoints.queue.processes import Process
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import discovery
from orchestrator.engine import Task, registry
from orchestrator.engine.errors import (
    CountersignError,
    InvalidValue,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.reduce import output_of
from orchestrator.engine.values import identity
from orchestrator.execution import cancellation
from orchestrator.run_access.act import name_of


def unknown_tasks(run: Run) -> list[TaskResult]:
    """Return the attempts of this run that a person must settle."""
    return list(_unknown_rows(run).order_by("id"))


def _unknown_rows(run: Run) -> "QuerySet[TaskResult]":
    return TaskResult.objects.filter(run=run, line=run.line, outcome=Outcome.UNKNOWN)


def carried_keys(run: Run, *, limit: int | None = None) -> list[tuple[TaskResult, str]]:
    """Return the attempts that a person must settle, each with the idempotency key that
    its call carried, by which it is looked up outside. One query, which reads no
    outputs.
    """
    rows = _unknown_rows(run).order_by("id")
    rows = rows.only("run", "line", "node", "visit", "index", "attempt")
    return [(row, key_of(row)) for row in rows[:limit]]


def key_of(row: TaskResult) -> str:
    """Return the idempotency key of a task: all its attempts carry the same one."""
    return identity.idempotency_key(
        row.run_id, row.line, Task(row.node, row.visit, row.index)
    )


def settle_task(
    run: Run,
    task: str,
    *,
    happened: bool,
    output: Any,
    accept_risk: bool,
    by: Any,
    reason: str,
) -> None:
    """Record what a person states about one unknown task of a locked run. Raises as
    `runs.settle` does.
    """
    if not reason.strip():
        raise InvalidValue("settling an outcome needs a reason", path="reason")
    row = _row(run, task)
    if run.status not in STOPPED - {Status.TAMPERED}:
        # Its superstep may still be at work, and would stop without anything left to
        # settle.
        message = (
            f"run {run.key} is {run.status}; an outcome is settled when it has stopped"
        )
        raise WrongStatus(message, status=run.status)
    packed_output = b""
    if happened:
        packed_output = pack_json(_output(run, row, output))
    else:
        _require_not_done(row, output, accept_risk=accept_risk)
    journal.amend_result(
        row,
        protection_of(run),
        outcome=Outcome.DONE if happened else Outcome.NOT_DONE,
        output=packed_output,
        settled_by=by,
        settled_reason=pack_json(reason),
        result_at=timezone.now(),
    )
    event = NewEvent(
        "task_settled",
        {
            "happened": happened,
            "attempt": row.attempt,
            "reason": reason,
            "accept_risk": accept_risk,
        },
        node=row.node,
        task=row.task,
        actor=name_of(by),
    )
    audit_log.record_act(
        "settled",
        run,
        actor=by,
        seq=run.event_seq + 1,
        task=row.task,
        happened=happened,
    )
    _continue_or_wait(run, event)


def _require_not_done(row: TaskResult, output: Any, *, accept_risk: bool) -> None:
    """Raise `InvalidValue` unless a person may state that this attempt did nothing."""
    if output is not None:
        raise InvalidValue("an output goes with 'it happened' only", path="output")
    _require_over(row, accept_risk=accept_risk)


def _continue_or_wait(run: Run, event: NewEvent) -> None:
    """Add the event of a settling. After the last one the run continues, or ends if a
    cancel waits for that.
    """
    if _unknown_rows(run).exists() or run.status != Status.UNKNOWN:
        locked_run.append_locked(run, [event], at=timezone.now())
    elif run.cancel_at:
        cancellation.conclude_locked(run, [event])
    else:
        was_restored = run.error_code == RESTORED
        locked_run.requeue_run(run, events=[event], only=frozenset({Status.UNKNOWN}))
        # Otherwise, jobs that `restored` paused would never run.
        if was_restored:
            deadlines.go_on(run, was_restored=True)


def _row(run: Run, task: str) -> TaskResult:
    try:
        named = Task.parse(task)
    except ValueError as error:
        raise UnknownThing(
            f"there is no task {task!r}; a task is written node:visit:index", task=task
        ) from error
    for row in unknown_tasks(run):
        if row.task == str(named):
            return row
    raise _not_unknown(run, named)


def _not_unknown(run: Run, task: Task) -> CountersignError:
    """Return the refusal for a task that is not unknown: it names who settled it, if it
    was settled.
    """
    rows = TaskResult.objects.filter(**task_columns(run.id, run.line, task))
    settled = rows.exclude(settled_reason=b"").order_by("attempt").last()
    if settled is None:
        return UnknownThing(
            f"run {run.key} has no unknown outcome of {task}", task=str(task)
        )
    by = settled.settled_by.get_username() if settled.settled_by else ""
    return WrongStatus(
        f"{task} was settled by {by or 'the system'} before", task=str(task), by=by
    )


def _output(run: Run, row: TaskResult, output: Any) -> dict[str, Any]:
    """Return the output that a person gave, checked like a node's return. Raises
    `InvalidValue` if it would have to pass several gates, or one that is gone.
    """
    compiled = _next_version(run)
    checked = output_of(compiled, row.node, output, limit=conf().max_value_bytes)
    channels = {write.channel for write in checked.writes}
    gates = guarded_channels.guards(run.id, run.line, compiled, channels)
    # Another version may lack the gate that guards a channel in the run's own.
    if compiled.fingerprint != run.fingerprint:
        structure = versions.structure_of(run.fingerprint) or {"nodes": ()}
        signed = guarded_channels.signed_channels(
            lines.past(run.id, run.line), structure
        )
        gates |= {signed[channel] for channel in channels if channel in signed}
    _require_gate(compiled, row, gates)
    return checked.to_json()


def _require_gate(compiled: Compiled, row: TaskResult, gates: Collection[str]) -> None:
    """Raise `InvalidValue` unless the output can be held at one gate at most."""
    # A task has one request, and that of a call asked about its arguments.
    if gates and compiled.nodes[row.node].calls:
        named = ", ".join(sorted(gates))
        message = (
            f"{row.task} was called once people had approved it, and the gate of {named} "
            "guards what the output writes; give an output without it, and patch the run"
        )
        raise InvalidValue(message, path="output", gates=named)
    # The output is held at its task, which can wait at one gate only.
    if len(gates) > 1:
        named = ", ".join(sorted(gates))
        message = f"the output writes channels that different gates guard: {named}"
        raise InvalidValue(message, path="output", gates=named)
    for node in gates:
        if node not in compiled.nodes or compiled.nodes[node].gate is None:
            message = (
                f"the gate of {node} guards what the output writes, "
                f"and version {compiled.version} has it no more"
            )
            raise InvalidValue(message, path="output", gates=node)


def _next_version(run: Run) -> Compiled:
    """Return the version that will take the output. Raises `UnknownThing` if it may be
    a version of another process.
    """
    pinned = registry.find_graph(run.fingerprint)
    if pinned is not None:
        return pinned
    judging = discovery.judging_version(run.graph, run.fingerprint)
    adopting = versions.graph_for(run)
    if (
        judging is not None
        and adopting is not None
        and judging.fingerprint == adopting.fingerprint
    ):
        return adopting
    return registry.by_fingerprint(run.fingerprint)


def may_be_going_on(row: TaskResult) -> str | None:
    """Return None if the attempt is surely over, "maybe" if only the time that has
    passed suggests it, else until when it may act (ISO).
    """
    if row.thread_ended_at or _is_worker_gone(row):
        return None
    # By the database's clock, which also set it: hosts may differ by hours.
    over = TaskResult.objects.filter(id=row.pk, over_at__lt=db_now()).exists()
    return "maybe" if over else row.over_at.isoformat()


def _require_over(row: TaskResult, *, accept_risk: bool) -> None:
    going_on = may_be_going_on(row)
    if going_on is None or (going_on == "maybe" and accept_risk):
        return
    if going_on == "maybe":
        raise WrongStatus(
            f"nobody has seen the worker of {row.task} end; "
            "a frozen process could still act. Say so with accept_risk",
            task=row.task,
            needs="accept_risk",
        )
    raise WrongStatus(
        f"{row.task} may still be going on until {going_on}",
        task=row.task,
        until=going_on,
    )


def _is_worker_gone(row: TaskResult) -> bool:
    """Return whether the attempt's worker is proven gone: its cluster recorded its end,
    or its process no longer exists where this one would see it.
    """
    if row.worker:
        stopped = Worker.objects.filter(id=row.worker, stopped_at__isnull=False)
        if stopped.exists():
            return True
    return Process(row.host, row.pid_space, row.pid, row.process_started).is_gone()
