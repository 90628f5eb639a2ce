"""DBOS: a step that a workflow runs once people have signed its arguments. docs/job-runners.md."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast
from urllib.parse import unquote

from dbos import DBOS

from orchestrator.bridges.signed_call import (
    AWAY,
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

        @wraps(function)
        def ask_wait_and_run(*args: Any, **kwargs: Any) -> T:
            asking: Any = {**PATIENT, "name": f"{call.name}.ask"}
            running: Any = {"name": call.name, **(options or {})}
            workflow, approval_id = DBOS.run_step(asking, ask, *args, **kwargs)
            if workflow != DBOS.workflow_id:
                raise Rejected(
                    "a fork asks for itself: fork it from before the question"
                )
            while True:
                _wait(call, approval_id, (look_every, look_at_least_every))
                has_run, result = DBOS.run_step(running, _run, call, approval_id)
                if has_run:
                    return cast(T, result)

        return ask_wait_and_run

    return decorate


def _wait(call: SignedCall, approval_id: str, pauses: tuple[float, float]) -> None:
    """Wait in a workflow until people have decided. Raises `Rejected`."""
    looking: Any = {**PATIENT, "name": f"{call.name}.look"}
    pause, longest = pauses
    while not DBOS.run_step(looking, _look, call, approval_id):
        DBOS.recv(approval_id, pause)
        pause = min(pause * 2, longest)


def _look(call: SignedCall, approval_id: str) -> bool:
    approval = call.client.approval(approval_id)
    if approval.decided:
        signed_arguments(approval)
    return approval.decided


def _run(call: SignedCall, approval_id: str) -> tuple[bool, Any]:
    """Run what is signed now, which may be something else than when it was looked at.
    The first of the pair is False if nothing is, or the site is away.
    """
    try:
        approval = call.client.approval(approval_id)
    except AWAY:
        return False, None
    if not approval.decided:
        return False, None
    return True, call.run(approval)


def wake(approval: Approval) -> None:
    """Make the workflow that asked look at its approval now; does nothing for those of
    others. The message decides nothing.
    """
    library, *ids = approval.key.split(",")
    if library == "dbos" and len(ids) > 1:
        DBOS.send(unquote(ids[0]), None, topic=approval.id)
