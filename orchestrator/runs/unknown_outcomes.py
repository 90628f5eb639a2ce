"""Settling unknown outcomes: a person says what happened, one task at a time. `runs.settle` calls it under its lock."""

from typing import Any

from django.utils import timezone

from approvals.gates import guarded_channels
from checkpoints import audit_log, lines, versions
from checkpoints.conf import conf
from checkpoints.core.status import STOPPED, Status
from checkpoints.db.clock import db_now
from checkpoints.event_log import NewEvent
from checkpoints.journal import results as journal
from checkpoints.ledger import locked_run
from checkpoints.models import Run, TaskResult, Worker
from checkpoints.models.fields import task_columns
from checkpoints.models.task_result import Outcome
from checkpoints.queue.processes import Process
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import discovery
from orchestrator.engine import Task, identity, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import CountersignError, InvalidValue, UnknownThing, WrongStatus
from orchestrator.engine.reduce import output_of
from orchestrator.execution import cancellation


def unknown_tasks(run: Run) -> list[TaskResult]:
    """The attempts of this run that a person must settle."""
    return list(TaskResult.objects.filter(run=run, line=run.line, outcome=Outcome.UNKNOWN).order_by("id"))


def carried_keys(run: Run, *, limit: int | None = None) -> list[tuple[TaskResult, str]]:
    """Return the attempts that a person must settle, each with the idempotency key that its call carried, by which it
    is looked up outside. One query, which reads no outputs.
    """
    rows = TaskResult.objects.filter(run=run, line=run.line, outcome=Outcome.UNKNOWN).order_by("id")
    named = rows.only("run", "line", "node", "visit", "index", "attempt")[:limit]
    return [(row, key_of(row)) for row in named]


def key_of(row: TaskResult) -> str:
    """Return the idempotency key of a task: all its attempts carry the same one."""
    return identity.idempotency_key(row.run_id, row.line, Task(row.node, row.visit, row.index))


def settle_task(run: Run, task: str, *, happened: bool, output: Any, accept_risk: bool, by: Any, reason: str) -> None:
    """Write down what a person says of one unknown task of a locked run. Raises as `runs.settle` says."""
    if not reason.strip():
        raise InvalidValue("settling an outcome needs a reason", path="reason")
    row = _row(run, task)
    if run.status not in STOPPED - {Status.TAMPERED}:
        # Its superstep may still be in hand, and would stop without anything left to settle.
        message = f"run {run.key} is {run.status}; an outcome is settled when it has stopped"
        raise WrongStatus(message, status=run.status)
    if not happened and output is not None:
        raise InvalidValue("an output goes with 'it happened' only", path="output")
    if not happened:
        _require_over(row, accept_risk=accept_risk)
    journal.amend_result(
        row,
        protection_of(run),
        outcome=Outcome.DONE if happened else Outcome.NOT_DONE,
        output=pack_json(_output(run, row, output)) if happened else b"",
        settled_by=by,
        settled_reason=pack_json(reason),
        result_at=timezone.now(),
    )
    actor = by.get_username() if by else ""
    facts = {"happened": happened, "attempt": row.attempt, "reason": reason, "accept_risk": accept_risk}
    line = NewEvent("task_settled", facts, node=row.node, task=row.task, actor=actor)
    audit_log.record_act("settled", run, actor=by, seq=run.event_seq + 1, task=row.task, happened=happened)
    left = TaskResult.objects.filter(run=run, line=run.line, outcome=Outcome.UNKNOWN).exists()
    if left or run.status != Status.UNKNOWN:
        locked_run.append_locked(run, [line], at=timezone.now())
    elif run.cancel_at:
        cancellation.conclude_locked(run, [line])
    else:
        locked_run.requeue_run(run, events=[line], only=frozenset({Status.UNKNOWN}))


def _row(run: Run, task: str) -> TaskResult:
    try:
        named = Task.parse(task)
    except ValueError as error:
        raise UnknownThing(f"there is no task {task!r}; a task is written node:visit:index", task=task) from error
    for row in unknown_tasks(run):
        if row.task == str(named):
            return row
    raise _not_unknown(run, named)


def _not_unknown(run: Run, task: Task) -> CountersignError:
    """Who settled it before, where somebody did."""
    rows = TaskResult.objects.filter(**task_columns(run.id, run.line, task))
    settled = rows.exclude(settled_reason=b"").order_by("attempt").last()
    if settled is None:
        return UnknownThing(f"run {run.key} has no unknown outcome of {task}", task=str(task))
    by = settled.settled_by.get_username() if settled.settled_by else ""
    return WrongStatus(f"{task} was settled by {by or 'the system'} before", task=str(task), by=by)


def _output(run: Run, row: TaskResult, output: Any) -> dict[str, Any]:
    compiled = _going_on(run)
    given = output_of(compiled, row.node, output, limit=conf().max_value_bytes)
    channels = {write.channel for write in given.writes}
    gates = guarded_channels.guards(run.id, run.line, compiled, channels)
    if compiled.fingerprint != run.fingerprint:
        structure = versions.structure_of(run.fingerprint) or {"nodes": ()}
        signed = guarded_channels.signed_channels(lines.past(run.id, run.line), structure)
        gates |= {signed[channel] for channel in channels if channel in signed}
    if len(gates) > 1:
        named = ", ".join(sorted(gates))
        message = f"the output writes channels that different gates guard: {named}"
        raise InvalidValue(message, path="output", gates=named)
    for node in gates:
        if node not in compiled.nodes or compiled.nodes[node].gate is None:
            message = f"the gate of {node} guards what the output writes, and version {compiled.version} has it no more"
            raise InvalidValue(message, path="output", gates=node)
    return given.to_json()


def _going_on(run: Run) -> Compiled:
    """The version that will take the output. Raises `UnknownThing` where another process's version may."""
    if (pinned := registry.find_graph(run.fingerprint)) is not None:
        return pinned
    judging, found = discovery.judging_version(run.graph, run.fingerprint), versions.graph_for(run)
    if judging is None or found is None or judging.fingerprint != found.fingerprint:
        return registry.by_fingerprint(run.fingerprint)
    return found


def may_be_going_on(row: TaskResult) -> str | None:
    """None where the attempt is surely over, "maybe" where only time says so, else until when it may act (ISO)."""
    if row.thread_ended_at or _gone(row):
        return None
    # By the database's clock, as it was written: hosts may disagree by hours.
    over = TaskResult.objects.filter(id=row.pk, over_at__lt=db_now()).exists()
    return "maybe" if over else row.over_at.isoformat()


def _require_over(row: TaskResult, *, accept_risk: bool) -> None:
    going_on = may_be_going_on(row)
    if going_on is None or (going_on == "maybe" and accept_risk):
        return
    if going_on == "maybe":
        unseen = f"nobody has seen the worker of {row.task} end; a frozen process could still act"
        raise WrongStatus(f"{unseen}. Say so with accept_risk", task=row.task, needs="accept_risk")
    raise WrongStatus(f"{row.task} may still be going on until {going_on}", task=row.task, until=going_on)


def _gone(row: TaskResult) -> bool:
    """Whether the attempt's worker is proven gone: its cluster said so, or its process is not there any more
    where this one would see it.
    """
    if row.worker and Worker.objects.filter(id=row.worker, stopped_at__isnull=False).exists():
        return True
    return Process(row.host, row.pid_space, row.pid, row.process_started).is_gone()
