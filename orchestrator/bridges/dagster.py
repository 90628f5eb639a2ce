"""Dagster: a job ends after it has asked people, and another goes on once they have
signed; meanwhile there is no run. docs/job-runners.md.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dagster import (
    DagsterRun,
    Failure,
    JobDefinition,
    OpDefinition,
    OpExecutionContext,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    op,
    sensor,
)

from orchestrator.bridges import signed_call
from orchestrator.client import Approval, Client

ASKED = "countersign/asked"
WAITING = "countersign/waiting"
SIGNED = "countersign/signed"
"""Tags of runs: which approval they asked for, which call waits, which they go on after."""


class PausedCall(NamedTuple):
    """`ask` is an op that takes arguments, `run` one that acts on what was signed, and
    `sensor_of` makes the sensor that starts its job.
    """

    ask: OpDefinition
    run: OpDefinition
    sensor_of: Callable[[JobDefinition], SensorDefinition]


def paused_call(
    client: Client,
    function: Callable[..., Any],
    *,
    reviewers: Sequence[str],
    look_every: int = 30,
    **question: Any,
) -> PausedCall:
    """Split a function into parts of two jobs. `question` is that of `SignedCall`; give
    two calls of one function a `name` each.
    """
    call = signed_call.SignedCall(client, function, reviewers=reviewers, **question)

    @op(name=f"ask_{call.name}")
    def ask(context: OpExecutionContext, arguments: dict[str, Any]) -> str:
        approval = call.ask(_key_of(call, context.run), **arguments)
        tags = {ASKED: approval.id, WAITING: call.address}
        context.instance.add_run_tags(context.run_id, tags)
        return approval.id

    @op(name=call.name, config_schema={"approval": str})
    def run(context: OpExecutionContext) -> Any:
        approval = client.approval(context.op_config["approval"])
        try:
            _require_own(context, approval, call)
            return call.run(approval)
        except signed_call.Rejected as error:
            raise Failure(str(error), allow_retries=False) from error

    def sensor_of(job: JobDefinition) -> SensorDefinition:
        name = f"{job.name}_when_signed"

        @sensor(name=name, job=job, minimum_interval_seconds=look_every)
        def start(context: SensorEvaluationContext) -> Iterator[RunRequest]:
            waiting = RunsFilter(tags={WAITING: call.address})
            for asking in context.instance.get_runs(waiting):
                approval_id = asking.tags[ASKED]
                tags = {SIGNED: approval_id}
                if context.instance.get_runs(RunsFilter(tags=tags), limit=1):
                    no_more = {WAITING: "no more"}
                    context.instance.add_run_tags(asking.run_id, no_more)
                elif client.approval(approval_id).decided:
                    op_config = {"config": {"approval": approval_id}}
                    run_config = {"ops": {call.name: op_config}}
                    yield RunRequest(approval_id, run_config, tags)

        return start

    return PausedCall(ask, run, sensor_of)


def _require_own(
    context: OpExecutionContext, approval: Approval, call: signed_call.SignedCall
) -> None:
    """Raise `Rejected` unless this run is the one that goes on after the approval."""
    filters = RunsFilter(tags={SIGNED: approval.id})
    records = context.instance.get_run_records(filters, limit=1, ascending=True)
    first = [record.dagster_run.run_id for record in records]
    if first != [root_of(context.run)]:
        raise signed_call.Rejected("another run goes on after it")
    asking = context.instance.get_runs(RunsFilter(tags={ASKED: approval.id}))
    if approval.key not in [_key_of(call, run) for run in asking]:
        raise signed_call.Rejected("it is the approval of another call")
    call.require_asked(approval)


def _key_of(call: signed_call.SignedCall, run: DagsterRun) -> str:
    """Return the key of what a run asks."""
    return signed_call.key_of("dagster", call.address, root_of(run))


def root_of(run: DagsterRun) -> str:
    """Return the id that a run shares with those that execute it again."""
    return run.root_run_id or run.run_id
