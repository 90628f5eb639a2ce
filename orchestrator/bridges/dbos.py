"""DBOS: a step that a workflow runs once people have signed its arguments. docs/job-runners.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar
from urllib.parse import unquote

from dbos import DBOS

from orchestrator.bridges.signed_call import (
    AWAY,
    CALL,
    Rejected,
    SignedCall,
    key_of,
    signed_arguments,
)
from orchestrator.client import Approval, Client

T = TypeVar("T")
PATIENT: Mapping[str, Any] = {
    "retries_allowed": True,
    "max_attempts": 100,
    "should_retry": lambda error: isinstance(error, AWAY),
}
"""Options of the steps that talk to Countersign, which may be away for days."""


def step_when_signed(
    client: Client,
    *,
    reviewers: Sequence[str],
    look_every: float = 5.0,
    look_at_least_every: float = 900.0,
    options: Mapping[str, Any] | None = None,
    **question: Any,
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Make a function of workflows of a function: it asks people about the arguments,
    waits for `wake` with growing pauses, and runs the function as a step with what was
    signed. Raises `Rejected` in the workflow. `options` are those of the step,
    `question` those of `SignedCall`.
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        call = SignedCall(client, function, reviewers=reviewers, **question)

        def ask(*args: Any, **kwargs: Any) -> tuple[str, str]:
            workflow = str(DBOS.workflow_id)
            status = DBOS.get_workflow_status(workflow)
            # Programs name their workflows: another database may have the same names.
            began = str(status.created_at if status else None)
            key = key_of("dbos", workflow, call.name, str(DBOS.step_id), began)
            return workflow, call.ask(key, *args, **kwargs).id

        def look(approval_id: str) -> dict[str, Any] | None:
            approval = client.approval(approval_id)
            if not approval.decided:
                return None
            arguments = signed_arguments(approval)
            return {"arguments": arguments, "hash": approval.item(CALL).hash}

        def run(approval_id: str, signed: Mapping[str, Any]) -> T:
            result: T = call.run(approval_id, signed["arguments"], hash=signed["hash"])
            return result

        @wraps(function)
        def ask_wait_and_run(*args: Any, **kwargs: Any) -> T:
            asking: Any = {**PATIENT, "name": f"{call.name}.ask"}
            looking: Any = {**PATIENT, "name": f"{call.name}.look"}
            running: Any = {"name": call.name, **(options or {})}
            workflow, approval_id = DBOS.run_step(asking, ask, *args, **kwargs)
            if workflow != DBOS.workflow_id:
                raise Rejected(
                    "a fork asks for itself: fork it from before the question"
                )
            pause = look_every
            while (signed := DBOS.run_step(looking, look, approval_id)) is None:
                DBOS.recv(approval_id, pause)
                pause = min(pause * 2, look_at_least_every)
            result: T = DBOS.run_step(running, run, approval_id, signed)
            return result

        return ask_wait_and_run

    return decorate


def wake(approval: Approval) -> None:
    """Make the workflow that asked look at its approval now; does nothing for those of
    others. The message decides nothing.
    """
    library, *ids = approval.key.split(",")
    if library == "dbos" and len(ids) > 1:
        DBOS.send(unquote(ids[0]), None, topic=approval.id)
