"""Dagster: a job ends after it has asked people, and another goes on once they have
signed; meanwhile there is no run. docs/dagster.md.
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

from orchestrator.bridges.signed_call import (
    Rejected,
    SignedCall,
    key_of,
    signed_arguments,
)
from orchestrator.client import Client

ASKED = "countersign/asked"
WAITING = "countersign/waiting"
SIGNED = "countersign/signed"
"""Tags of runs: the approval that was asked for, the call that waits for it, and, of the
run that goes on, the approval that it has.
"""


class PausedCall(NamedTuple):
    """A call in three parts: `ask` is an op that takes the arguments, `run` the one that
    carries out what was signed, and `sensor_of` makes the sensor that starts its job.
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
    """Split a function into parts of two jobs. `question` is that of `SignedCall`."""
    call = SignedCall(client, function, reviewers=reviewers, **question)

    @op(name=f"ask_{call.name}")
    def ask(context: OpExecutionContext, arguments: dict[str, Any]) -> str:
        key = key_of("dagster", call.name, _root(context.run))
        approval = call.ask(key, **arguments)
        tags = {ASKED: approval.id, WAITING: call.name}
        context.instance.add_run_tags(context.run_id, tags)
        return approval.id

    @op(name=call.name, config_schema={"approval": str})
    def run(context: OpExecutionContext) -> Any:
        id_ = context.op_config["approval"]
        filters = RunsFilter(tags={SIGNED: id_})
        [*first] = context.instance.get_run_records(filters, limit=1, ascending=True)
        if not first or first[0].dagster_run.run_id != _root(context.run):
            raise Failure("another run goes on after it", allow_retries=False)
        approval = client.approval(id_)
        if not approval.key.startswith(key_of("dagster", call.name, "")):
            raise Failure("the approval is that of another call", allow_retries=False)
        try:
            arguments = signed_arguments(approval)
        except Rejected as error:
            raise Failure(str(error), allow_retries=False) from error
        return call.run(id_, arguments)

    def sensor_of(job: JobDefinition) -> SensorDefinition:
        @sensor(name=f"{job.name}_when_signed", job=job, minimum_interval_seconds=look_every)
        def start(context: SensorEvaluationContext) -> Iterator[RunRequest]:
            for asking in context.instance.get_runs(RunsFilter(tags={WAITING: call.name})):
                id_ = asking.tags[ASKED]
                if context.instance.get_runs(RunsFilter(tags={SIGNED: id_}), limit=1):
                    context.instance.add_run_tags(asking.run_id, {WAITING: "no more"})
                elif client.approval(id_).decided:
                    config = {"ops": {call.name: {"config": {"approval": id_}}}}
                    yield RunRequest(id_, run_config=config, tags={SIGNED: id_})

        return start

    return PausedCall(ask, run, sensor_of)


def _root(run: DagsterRun) -> str:
    """Return the id that a run shares with those that execute it again."""
    return run.root_run_id or run.run_id
